"""Compares the time to a common reward of runs that differ in the actors' precision.

    python -m actorQ.scripts.speedup_table --fp32 logs/fp32_* --quantized logs/int8_* --out results

A table as in QuaRL's paper goes to stdout. With --out it also goes to speedup.md and speedup.csv,
and the learning curves to convergence.png. A reward counts as reached when a run holds it, as in
experiments (`run_logs.times`).
"""

import argparse
from collections.abc import Sequence
import dataclasses
import sys

import numpy as np

from actorQ.core import errors
from actorQ.core import output
from actorQ.core import plotting
from actorQ.core import precisions
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import reaching_figures
from actorQ.experiments.reports import time_to_reward
from actorQ.experiments.run_logs import curves
from actorQ.experiments.run_logs import paper
from actorQ.experiments.run_logs import times

_NAME = "speedup_table"


@dataclasses.dataclass(frozen=True)
class PrecisionRuns:
    """The runs of one precision, and when each of them held the reward."""

    precision: int
    runs: list[curves.Run]
    seed_curves: list[curves.Curve]  # In the order of `runs`.
    seed_reaches: list[times.Reach]  # In the order of `runs`.

    @property
    def name(self) -> str:
        """'fp32', 'fp16', 'int8', 'int4' or 'int3'."""
        return precisions.NAMES[self.precision]

    @property
    def reach(self) -> times.Reach:
        """Median over the runs."""
        return reaching.median_reach(self.seed_reaches)

    @property
    def best_mean_return(self) -> float:
        """Highest point of the mean curve."""
        return float(curves.mean_curve(self.seed_curves).mean.max())

    @property
    def steps_per_s(self) -> tuple[float, float]:
        """Steps/s of all actors together and of the learner, means over the runs."""
        rates = [curves.throughput(run.folder) for run in self.runs]
        actor, learner = np.mean(rates, axis=0).tolist()
        return actor, learner

    @property
    def seeds_reached(self) -> int:
        """Counts the runs that held the reward."""
        return sum(reach.reached for reach in self.seed_reaches)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Everything that tables and figure show."""

    task: str  # Task of all runs, as 'suite,task'.
    algorithm: str  # Algorithm of all runs.
    target: float  # Reward to hold.
    target_given: bool  # Whether the user chose it.
    smoothing: int  # Evaluations in the running mean.
    window: int  # Evaluations in a row that hold the reward.
    sides: list[PrecisionRuns]  # By precision: fp32 first, then fewer and fewer bits.
    warnings: list[str]  # What makes the runs hard to compare.

    def speedup(self, side: PrecisionRuns) -> times.Speedup:
        """Returns how much sooner than fp32 a precision holds the reward."""
        return times.speedup_between(self.sides[0].reach, side.reach)

    @property
    def published(self) -> paper.Published | None:
        """The paper's row, where it has this task and we have int8."""
        if any(side.precision == 8 for side in self.sides):
            return paper.SPEEDUPS.get(self.task)
        return None


def compare(
    fp32_folders: Sequence[str],
    quantized_folders: Sequence[str],
    target: float | None = None,
    smoothing: int = curves.DEFAULT_WINDOW,
) -> Comparison:
    """Reads the runs and finds the times to reward.

    Args:
      fp32_folders: Run folders with --quantize=32, one for each seed.
      quantized_folders: Run folders with --quantize 16, 8, 4 or 3, in any order.
      target: Reward to hold; None: the highest that the median run of every precision holds.
      smoothing: Evaluations in the running mean.

    Raises:
      errors.UserError: A log is missing, or the runs are not comparable.
    """
    if smoothing < 1:
        raise errors.UserError(f"--window={smoothing} is out of range: it must be at least 1.")
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
    for what in ("task", "algorithm"):
        folders = {getattr(run, what): run.folder for run in runs}
        if len(folders) > 1:
            there = ", ".join(f"{value} in {folder}" for value, folder in folders.items())
            raise errors.UserError(
                f"The runs differ in their {what}: {there}. A table compares runs of one task and "
                "one algorithm."
            )
    warnings = []
    if differing := curves.differing_settings(runs):
        warnings.append(
            f"the runs differ in more than precision and seed: {'; '.join(differing)}"
        )

    window = max(run.config.stop_window for run in runs)
    fewest = min(len(curves.load_curve(run.folder).returns) for run in runs)
    if fewest < window + smoothing - 1:
        window = min(window, fewest)
        smoothing = min(smoothing, fewest - window + 1)
        warnings.append(
            f"a run has only {fewest} evaluations: the reward counts as held in {window} in a row, "
            f"with a running mean of {smoothing}"
        )
    groups: dict[int, list[tuple[curves.Run, curves.Curve]]] = {}
    for run in sorted(runs, key=lambda run: -run.precision):
        curve = curves.load_curve(run.folder, smoothing)
        groups.setdefault(run.precision, []).append((run, curve))
    goal = target
    if goal is None:
        goal = min(
            sorted(times.best_held(curve.returns.tolist(), window, smoothing) for _, curve in group)
            [(len(group) - 1) // 2]
            for group in groups.values()
        )
    sides = []
    for precision, group in groups.items():
        seed_curves = [curve for _, curve in group]
        reaches = [
            times.held(
                curve.seconds.tolist(), curve.evaluation_s.tolist(), curve.returns.tolist(), goal,
                window, smoothing,
            )
            for curve in seed_curves
        ]
        sides.append(PrecisionRuns(precision, [run for run, _ in group], seed_curves, reaches))
        ends = [curve.seconds[-1] for curve in seed_curves]
        if min(ends) < 0.9 * max(ends):
            warnings.append(
                f"the {sides[-1].name} runs end between {min(ends):.1f} s and {max(ends):.1f} s; "
                "after its end a run counts in the mean curve with its last value"
            )
    return Comparison(
        runs[0].task, runs[0].algorithm, goal, target is not None, smoothing, window, sides,
        warnings,
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
    base, _ = sides[0].steps_per_s  # 0 in a run that ended before the first insert.
    for side in sides:
        first = side is sides[0]
        actor, learner = side.steps_per_s
        rows.append(
            [
                side.name,
                output.number(side.best_mean_return, 2),
                side.reach.text(),
                output.number(side.reach.evaluation_s),
                ", ".join(reach.text() for reach in side.seed_reaches),
                "1" if first else comparison.speedup(side).text(),
                output.number(actor),
                "1" if first else output.number(actor / base if base else np.nan, 2),
                output.number(learner),
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
    published_s = {32: published.fp32_s, 8: published.int8_s} if published else {}
    rows = []
    for side in comparison.sides:
        speedup = comparison.speedup(side)
        actor, learner = side.steps_per_s
        rows.append(
            {
                "task": comparison.task,
                "algorithm": comparison.algorithm,
                "precision": side.name,
                "seeds": len(side.runs),
                "seeds_reached": side.seeds_reached,
                "target_return": comparison.target,
                "best_mean_return": side.best_mean_return,
                "reached": int(side.reach.reached),
                "seconds": side.reach.seconds,
                "evaluation_seconds": side.reach.evaluation_s,
                "seed_seconds": ";".join(reach.text() for reach in side.seed_reaches),
                "speedup": float("nan") if speedup.bound == "?" else speedup.value,
                "speedup_bound": speedup.bound.strip("?"),
                "actor_steps_per_s": actor,
                "learner_steps_per_s": learner,
                "paper_return": published.reward if published else "",
                "paper_seconds": published_s.get(side.precision, ""),
                "paper_speedup": published.speedup if published and side.precision == 8 else "",
            }
        )
    return rows


def draw(comparison: Comparison, path: str) -> str:
    """Draws return against time, one colour for each precision; returns `path`."""
    lines = [
        reaching_figures.Line(
            f"{side.name} actors", plotting.precision_colour(side.precision), side.seed_curves,
            side.reach,
        )
        for side in comparison.sides
    ]
    title = f"{comparison.task} ({comparison.algorithm})"
    return reaching_figures.draw_lines(
        title, comparison.target, comparison.smoothing, lines, path
    )


def main(arguments: Sequence[str]) -> None:
    """Prints the tables; writes files where --out says."""
    parser = argparse.ArgumentParser(
        f"python -m actorQ.scripts.{_NAME}",
        description="Compares the time to a common reward of runs that differ in the actors' "
        "precision. A run has reached a reward when the running mean of its evaluations holds it "
        "in --stop_window evaluations in a row.",
    )
    # "extend" takes `--fp32 A B` and `--fp32=A --fp32=B` alike.
    for option, bits in (("--fp32", "32"), ("--quantized", "16, 8, 4 or 3")):
        parser.add_argument(
            option, nargs="+", action="extend", required=True, metavar="RUN",
            help=f"run folders with --quantize {bits}, one for each seed",
        )
    parser.add_argument("--out", metavar="FOLDER", help="folder for the files (made if missing)")
    parser.add_argument(
        "--target",
        type=float,
        metavar="RETURN",
        help="return to hold (default: the highest that all precisions hold)",
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


def _notes(comparison: Comparison) -> list[str]:
    origin = "given" if comparison.target_given else (
        "the highest that the median run of every precision holds"
    )
    return [
        *(f"**Warning**: {warning}." for warning in comparison.warnings),
        f"The reward is {origin}. A run holds it from the first of {comparison.window} evaluations "
        f"in a row on whose running mean of {comparison.smoothing} is at the reward. Times are "
        "medians over the seeds.",
        time_to_reward.BOUND,
        "Evaluation is part of the time: while the learner evaluates, actors go on.",
        f"The algorithm is {comparison.algorithm}. Steps/s are those between first and last row of "
        "the learner's log, of all actors together, mean over the seeds.",
    ]


if __name__ == "__main__":
    output.run_script(_NAME, main)
