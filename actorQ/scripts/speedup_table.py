"""Compares the time to a common reward of runs that differ in the actors' precision.

    python -m actorQ.scripts.speedup_table --fp32 logs/fp32_* --quantized logs/int8_* --out results

A table as in QuaRL's paper goes to stdout, and with --out to speedup.md and speedup.csv, beside
the learning curves in convergence.png.
"""

import argparse
from collections.abc import Sequence
import dataclasses
import sys

from matplotlib import patches
import numpy as np

from actorQ.core import curves
from actorQ.core import errors
from actorQ.core import output
from actorQ.core import plotting
from actorQ.core import precisions
from actorQ.experiments.run_logs import paper
from actorQ.experiments.run_logs import times

_NAME = "speedup_table"


@dataclasses.dataclass(frozen=True)
class Side:
    """The runs of one precision, or of somebody else's agent."""

    precision: int
    runs: list[curves.Run]
    seed_curves: list[curves.Curve]  # In the order of `runs`.
    mean: curves.MeanCurve
    reach: times.Reach  # Of the mean curve.
    seed_reaches: list[times.Reach]
    actor_steps_per_s: float  # Mean over the runs, all actors together.
    learner_steps_per_s: float
    label: str = ""  # In a figure's legend; "": actors of this precision.
    colour: str = ""  # Of the curve; "": that of the precision.

    @property
    def name(self) -> str:
        """'fp32', 'fp16', 'int8' or 'int4'."""
        return precisions.NAMES[self.precision]

    @property
    def seeds_reached(self) -> int:
        """How many runs reached the return by themselves."""
        return sum(reach.reached for reach in self.seed_reaches)

    def seeds_text(self) -> str:
        """Returns 'first to last (reached of all seeds)'; the last is a bound if one did not."""
        everyone = self.seeds_reached == len(self.runs)
        last = times.at_least_unless(max(reach.seconds for reach in self.seed_reaches), everyone)
        seconds = [reach.seconds for reach in self.seed_reaches if reach.reached]
        first = output.number(min(seconds)) if seconds else ""
        span = f"{first} to {last}" if first and first != last else last
        return f"{span} ({self.seeds_reached} of {len(self.runs)} seeds)"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Everything that tables and figure show; `sides` starts with fp32, then fewer bits."""

    task: str
    algorithm: str
    target: float
    target_given: bool
    window: int
    sides: list[Side]
    warnings: list[str]

    def speedup(self, side: Side) -> times.Speedup:
        """Returns how much sooner than fp32 a precision reaches the return."""
        return times.speedup_between(self.sides[0].reach, side.reach)

    @property
    def published(self) -> paper.Result | None:
        """The paper's row, where it has this task and we have int8."""
        if any(side.precision == 8 for side in self.sides):
            return paper.SPEEDUPS.get(self.task)
        return None


def compare(
    fp32_folders: Sequence[str],
    quantized_folders: Sequence[str],
    target: float | None = None,
    window: int = curves.DEFAULT_WINDOW,
) -> Comparison:
    """Reads the runs and finds the times to reward.

    Args:
      fp32_folders: run folders with --quantize=32, one for each seed.
      quantized_folders: run folders with --quantize 16, 8 or 4, in any order.
      target: return to reach; None: the highest that every precision's mean curve reaches.
      window: evaluations in the running mean.

    Raises:
      errors.UserError: a log is missing, or the runs are not comparable.
    """
    if window < 1:
        raise errors.UserError(f"--window={window} is out of range: it must be at least 1.")
    if target is not None and not np.isfinite(target):
        raise errors.UserError(f"--target={target} is not a return.")
    runs = curves.load_runs([*fp32_folders, *quantized_folders])
    for i, run in enumerate(runs):
        option = "--fp32" if i < len(fp32_folders) else "--quantized"
        if (run.precision == 32) != (option == "--fp32"):
            raise errors.UserError(
                f"{run.folder} was run with --quantize={run.precision}: it does not belong to "
                f"{option}."
            )
    task = _common("task", [run.task for run in runs], runs)
    algorithm = _common("algorithm", [run.algorithm for run in runs], runs)

    groups: dict[int, list[curves.Run]] = {}
    for run in sorted(runs, key=lambda run: -run.precision):
        groups.setdefault(run.precision, []).append(run)
    loaded = {
        precision: [curves.load_curve(run.folder, window) for run in group]
        for precision, group in groups.items()
    }
    means = {precision: curves.mean_curve(group) for precision, group in loaded.items()}
    goal = min(mean.mean.max() for mean in means.values()) if target is None else target
    sides = []
    for precision, group in groups.items():
        rates = np.mean([curves.throughput(run.folder) for run in group], axis=0)
        mean = means[precision]
        sides.append(
            Side(
                precision,
                group,
                loaded[precision],
                mean,
                _reach(mean.seconds, mean.mean, mean.evaluation_s, goal),
                [_reach(c.seconds, c.smoothed, c.evaluation_s, goal) for c in loaded[precision]],
                float(rates[0]),
                float(rates[1]),
            )
        )
    return Comparison(
        task, algorithm, float(goal), target is not None, window, sides, _warnings(runs, sides)
    )


def markdown(comparison: Comparison) -> str:
    """Returns the tables and their notes."""
    sides = comparison.sides
    quantized = sides[1:]
    several = len(quantized) > 1
    published = comparison.published
    header = ["Task", "Reward", *(f"{side.name} s" for side in sides)]
    header += [f"{side.name} speed-up" if several else "speed-up" for side in quantized]
    header += ["paper: reward", "fp32 s", "int8 s", "speed-up"]
    row = [comparison.task, f"{comparison.target:.2f}", *(side.reach.text() for side in sides)]
    row += [comparison.speedup(side).text() for side in quantized]
    row += [f"{value:.2f}" for value in published[1:]] if published else ["–"] * 4
    text = output.markdown_table(header, [row]) + "\n"

    rows = []
    base = sides[0].actor_steps_per_s  # None at all in a run that ended before the first insert.
    for side in sides:
        first = side is sides[0]
        rate = side.actor_steps_per_s / base if base else np.nan
        rows.append(
            [
                side.name,
                output.number(side.mean.mean.max(), 2),
                side.reach.text(),
                output.number(side.reach.evaluation_s),
                side.seeds_text(),
                "1" if first else comparison.speedup(side).text(),
                output.number(side.actor_steps_per_s),
                "1" if first else output.number(rate, 2),
                output.number(side.learner_steps_per_s),
            ]
        )
    text += output.markdown_table(
        [
            "Actors", "Best mean return", "Time to reward, s", "evaluation in it, s",
            "by seed, s", "Speed-up", "Actor steps/s", "vs. fp32", "Learner steps/s",
        ],
        rows,
    )
    text += "\n" + "\n".join(f"- {line}" for line in _notes(comparison)) + "\n"
    return text


def csv_rows(comparison: Comparison) -> list[dict[str, object]]:
    """Returns one row for each precision."""
    published = comparison.published
    rows = []
    for side in comparison.sides:
        speedup = comparison.speedup(side)
        rows.append(
            {
                "task": comparison.task,
                "algorithm": comparison.algorithm,
                "precision": side.name,
                "seeds": len(side.runs),
                "seeds_reached": side.seeds_reached,
                "target_return": comparison.target,
                "best_mean_return": float(side.mean.mean.max()),
                "reached": int(side.reach.reached),
                "seconds": side.reach.seconds,
                "evaluation_seconds": side.reach.evaluation_s,
                "seed_seconds": ";".join(reach.text() for reach in side.seed_reaches),
                "speedup": float("nan") if speedup.bound == "?" else speedup.value,
                "speedup_bound": speedup.bound.strip("?"),
                "actor_steps_per_s": side.actor_steps_per_s,
                "learner_steps_per_s": side.learner_steps_per_s,
                "paper_return": published.reward if published else "",
                "paper_seconds": _published_seconds(published, side.precision),
                "paper_speedup": published.speedup if published and side.precision == 8 else "",
            }
        )
    return rows


def draw(
    comparison: Comparison,
    path: str,
    verbs: tuple[str, str] = ("reached in", "not reached in"),
) -> str:
    """Draws return against time, one colour for each precision; returns `path`.

    Args:
      comparison: what to draw.
      path: of the PNG.
      verbs: what the legend says before the time of a side that reached the return, and before
        that of one that did not.
    """
    figure, (ax,) = plotting.new_figure()
    several = any(len(side.runs) > 1 for side in comparison.sides)
    for side in comparison.sides:
        colour = side.colour or plotting.PRECISION_COLOURS[side.precision]
        mean = side.mean
        count = f"mean of {len(side.runs)} seeds" if len(side.runs) > 1 else "1 seed"
        verb = verbs[0] if side.reach.reached else verbs[1]
        ax.step(
            mean.seconds, mean.mean, where="post", color=colour, linewidth=1.8,
            label=f"{side.label or f'{side.name} actors'}, {count}: {verb} "
            f"{side.reach.seconds:.0f} s",
        )
        if len(side.runs) > 1:
            ax.fill_between(
                mean.seconds, mean.low, mean.high, step="post", color=colour, alpha=0.18,
                linewidth=0,
            )
        if side.reach.reached:
            ax.plot(side.reach.seconds, comparison.target, "o", color=colour, zorder=3)
    line = ax.axhline(comparison.target, color="0.35", linestyle="--", linewidth=1)
    line.set_label(f"reward to reach: {comparison.target:.1f}")
    handles = ax.get_legend_handles_labels()[0]
    if several:
        handles.append(patches.Patch(color="0.82", label="band: lowest to highest seed"))
    # Beneath the panel: inside, curves of unknown shape would cross it.
    columns = 2
    # Long names, or two columns of names: they would be too wide.
    if len(comparison.sides) > 3 or any(side.label for side in comparison.sides):
        columns = 1
        figure.set_size_inches(7.0, 4.2 + 0.12 * len(handles))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9
    )
    ax.set_xlabel("Time since the start of the run (s)")
    ax.set_ylabel(f"Evaluation return\n(running mean of {comparison.window})")
    ax.set_xlim(left=0)
    ax.set_title(f"{comparison.task} ({comparison.algorithm})", fontsize=11)
    return plotting.save_figure(figure, path)


def main(arguments: Sequence[str]) -> None:
    """Prints the tables; writes files where --out says."""
    parser = argparse.ArgumentParser(
        f"python -m actorQ.scripts.{_NAME}", description=__doc__.split("\n")[0]
    )
    # "extend" takes `--fp32 A B` and `--fp32=A --fp32=B` alike.
    for option, bits in (("--fp32", "32"), ("--quantized", "16, 8 or 4")):
        parser.add_argument(
            option, nargs="+", action="extend", required=True, metavar="RUN",
            help=f"run folders with --quantize {bits}, one for each seed",
        )
    parser.add_argument("--out", metavar="FOLDER", help="folder for the files (made if missing)")
    parser.add_argument(
        "--target",
        type=float,
        metavar="RETURN",
        help="return to reach (default: the highest that all precisions reach)",
    )
    parser.add_argument(
        "--window",
        type=int,
        default=curves.DEFAULT_WINDOW,
        help="evaluations in the running mean (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    comparison = compare(options.fp32, options.quantized, options.target, options.window)
    text = markdown(comparison)
    sys.stdout.write(text)
    if options.out:
        output.write_report(
            options.out, "speedup", text, csv_rows(comparison), "convergence.png",
            lambda path: draw(comparison, path),
        )


def _common(what: str, values: Sequence[str], runs: Sequence[curves.Run]) -> str:
    for value, run in zip(values, runs, strict=True):
        if value != values[0]:
            raise errors.UserError(
                f"The runs differ in their {what}: {values[0]} in {runs[0].folder}, {value} in "
                f"{run.folder}. A table compares runs of one task and one algorithm."
            )
    return values[0]


def _reach(
    seconds: np.ndarray, values: np.ndarray, evaluation_s: np.ndarray, target: float
) -> times.Reach:
    reached = values >= target
    index = int(np.argmax(reached)) if reached.any() else -1
    return times.Reach(float(seconds[index]), float(evaluation_s[index]), bool(reached.any()))


def _published_seconds(published: paper.Result | None, precision: int) -> object:
    seconds = {32: published.fp32_s, 8: published.int8_s} if published else {}
    return seconds.get(precision, "")


def _warnings(runs: Sequence[curves.Run], sides: Sequence[Side]) -> list[str]:
    lines = []
    differing = curves.differing_settings(runs)
    if differing:
        lines.append(f"the runs differ in more than precision and seed: {'; '.join(differing)}")
    for side in sides:
        ends = [curve.seconds[-1] for curve in side.seed_curves]
        if min(ends) < 0.9 * max(ends):
            lines.append(
                f"the {side.name} runs end between {min(ends):.1f} s and {max(ends):.1f} s; after "
                "its end a run counts with its last value"
            )
    return lines


def _notes(comparison: Comparison) -> list[str]:
    origin = "given" if comparison.target_given else "the highest that all mean curves reach"
    notes = [f"**Warning**: {warning}." for warning in comparison.warnings]
    for side in comparison.sides:
        if not side.reach.reached:
            notes.append(
                f"The mean curve of {side.name} did not reach the reward in "
                f"{side.reach.seconds:.1f} s: a speed-up that rests on it is a bound, or n/a."
            )
        for run, reach in zip(side.runs, side.seed_reaches, strict=True):
            if not reach.reached:
                notes.append(
                    f"{side.name} seed {run.config.seed} ({run.folder}) did not reach the reward "
                    f"in {reach.seconds:.1f} s."
                )
    notes.append(
        f"Reward: {origin}. Mean curve: running mean of {comparison.window} evaluations of each "
        "seed (at its start of those there are), averaged over the seeds; its time is the "
        "first at which it reaches the reward. Evaluation is part of the time: while the learner "
        "evaluates, actors go on."
    )
    notes.append(
        f"Algorithm {comparison.algorithm}; steps/s: between first and last row of the learner's "
        "log, all actors together, mean over the seeds."
    )
    return notes


if __name__ == "__main__":
    output.run_script(_NAME, main)
