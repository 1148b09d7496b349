"""Plays what runs learned in full precision and with their actors' bits, beside their meters.

    python -m actorQ.scripts.quantization_table logs/int4_* --least CartPole-v1=428 --out OUT

OUT gets runs.csv, table.md and figures.png. A run failed if its policy with the actors' bits earns
less than --least on average. For each figure of the broadcaster's meter, the table says how well it
separates failed runs from others of their task and precision: 0.5 is chance, and 0 or 1 separates
all (`run_logs.meter_summary`).
"""

import argparse
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import os
import statistics

import numpy as np

from actorQ.core import errors
from actorQ.core import output
from actorQ.core import plotting
from actorQ.core import precisions
from actorQ.experiments.run_logs import curves
from actorQ.experiments.run_logs import meter_summary

_NAME = "quantization_table"
_MODE = "native"  # It has every precision.


@dataclasses.dataclass(frozen=True)
class Row:
    """A run, what its policy earns, and what its meter showed.

    Attributes:
      run: Name of the folder.
      task: 'suite,task'.
      bits: Precision of the actors.
      learner_bits: --learner_fake_quantize.
      seed: Seed of the training.
      commit: Commit of the training.
      return_fp32: Mean return of the float32 weights.
      return_quantized: Mean return of the same weights with the actors' bits.
      failed: Whether the latter is below --least; None: there is none for the task.
      figures: The figures of `meter_summary`.
    """

    run: str
    task: str
    bits: int
    learner_bits: int
    seed: int
    commit: str
    return_fp32: float
    return_quantized: float
    failed: bool | None
    figures: Mapping[str, float]


def measure(run: curves.Run, episodes: int, least: Mapping[str, float]) -> Row:
    """Plays a run's last weights at both precisions, from the same starts.

    Raises:
      errors.UserError: The run has no policy, or its task is not there.
    """
    from actorQ.policy import loaded

    def earned(bits: int) -> float:
        policy = loaded.load_policy(run.folder, bits, inference_mode=_MODE)
        played = loaded.play_episodes(policy, episodes)
        return statistics.fmean(episode.episode_return for episode in played)

    full, quantized = earned(32), earned(run.precision)
    limit = least.get(run.task.partition(",")[2])
    return Row(
        os.path.basename(os.path.normpath(run.folder)), run.task, run.precision,
        run.config.learner_fake_quantize, run.config.seed,
        str(run.surroundings.get("git_commit") or ""), full, quantized,
        None if limit is None else quantized < limit, meter_summary.figures(run.folder),
    )


def returns_table(rows: Sequence[Row]) -> str:
    """Returns the mean returns by task, bits and the learner's quantizer, over seeds."""
    groups: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.task, row.bits, row.learner_bits), []).append(row)
    lines = []
    for (task, bits, learner_bits), members in sorted(groups.items()):
        told = [row.failed for row in members if row.failed is not None]
        lines.append([
            task, precisions.NAMES[bits], precisions.NAMES[learner_bits], str(len(members)),
            _mean([row.return_fp32 for row in members]),
            _mean([row.return_quantized for row in members]),
            f"{sum(told)} of {len(told)}" if told else "-",
        ])
    head = [
        "Task", "Actors", "Learner's policy", "Runs", "Return in fp32", "Return with the bits",
        "Failed",
    ]
    return output.markdown_table(head, lines)


def _mean(values: Sequence[float]) -> str:
    ends = f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{ends}"


def areas(rows: Sequence[Row]) -> dict[str, tuple[float, int, int]]:
    """Returns how well each figure separates, with the numbers of failed and of other runs.

    Only runs of one task and precision are compared. All fp32 runs have an error of 0, for example:
    beside int4 runs that figure would tell precisions apart, and not failures.
    """
    kinds = sorted({(row.task, row.bits) for row in rows})
    found = {}
    for name in meter_summary.FIGURES:

        def of(kind: tuple[str, int], failed: bool, name: str = name) -> list[float]:
            return [
                row.figures[name] for row in rows
                if (row.task, row.bits) == kind and row.failed is failed
            ]

        groups = [(of(kind, True), of(kind, False)) for kind in kinds]
        area = meter_summary.area(groups)
        if area is not None:
            compared = [group for group in groups if all(np.isfinite(side).any() for side in group)]
            counts = [sum(int(np.isfinite(g[side]).sum()) for g in compared) for side in (0, 1)]
            found[name] = (area, counts[0], counts[1])
    return found


def draw(rows: Sequence[Row], path: str) -> str:
    """Draws each figure of the meter against the return with the actors' bits."""
    names = [
        name for name in meter_summary.FIGURES
        if any(np.isfinite(row.figures[name]) for row in rows)
    ]
    figure, axes = plotting.new_grid(-(-len(names) // 2), 2, (8.4, 2.6 * -(-len(names) // 2) + 1))
    tasks = sorted({row.task for row in rows})
    palette = (plotting.INDIGO, plotting.ORANGE, plotting.OLIVE, plotting.WINE, plotting.SAND)
    for ax, name in zip(axes, names, strict=False):
        for task, colour in zip(tasks, palette * len(tasks), strict=False):
            for failed, marker in ((True, "x"), (False, "o"), (None, ".")):
                members = [row for row in rows if row.task == task and row.failed is failed]
                ax.plot(
                    [row.figures[name] for row in members],
                    [row.return_quantized for row in members], marker, color=colour,
                    label=f"{task}{', failed' if failed else ''}" if members else None,
                )
        ax.set_xlabel(meter_summary.FIGURES[name], fontsize=plotting.TEXT)
        ax.set_ylabel("Return", fontsize=plotting.TEXT)
        ax.locator_params(axis="x", nbins=4)
    for ax in axes[len(names):]:
        ax.set_axis_off()
    plotting.legend_below(figure, 2)
    return plotting.save_figure(figure, path)


def main(arguments: Sequence[str]) -> None:
    """Plays, prints the tables, and writes them with the figure."""
    parser = argparse.ArgumentParser(
        prog=f"python -m actorQ.scripts.{_NAME}", description=__doc__.split("\n")[0]
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="Folders of runs with a meter.")
    parser.add_argument("--episodes", type=int, default=20, help="Episodes of each policy, >= 1.")
    parser.add_argument(
        "--least", nargs="*", default=[], metavar="TASK=RETURN",
        help="Mean return below which a run of a task failed.",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="Folder for the results.")
    options = parser.parse_args(arguments)
    if options.episodes < 1:
        raise errors.UserError(f"--episodes={options.episodes} is not possible: it is >= 1.")
    least = dict(map(_limit, options.least))
    runs = curves.load_runs(options.runs)
    output.make_folder(options.out)
    rows = []
    for run in runs:
        row = measure(run, options.episodes, least)
        print(f"{row.run}: fp32 {row.return_fp32:.1f}, with its bits {row.return_quantized:.1f}")
        rows.append(row)
    output.write_csv(
        os.path.join(options.out, "runs.csv"),
        [
            {**{k: v for k, v in vars(row).items() if k != "figures"}, **row.figures}
            for row in rows
        ],
    )
    parts = ["# Quantized actors: what runs learned", returns_table(rows)]
    if found := areas(rows):
        lines = [
            [f"`{name}`", meter_summary.FIGURES[name], f"{area:.2f}", f"{failed}, {others}"]
            for name, (area, failed, others) in found.items()
        ]
        parts.append(output.markdown_table(
            ["Figure", "What it is", "Area", "Runs that failed, and others"], lines
        ))
    parts.append(
        f"A return is the mean over runs, of {options.episodes} episodes each. The brackets have "
        "the lowest and the highest run."
    )
    text = "\n\n".join(part.strip() for part in parts) + "\n"
    print(text)
    output.write_text(os.path.join(options.out, "table.md"), text)
    print(f"Figure: {draw(rows, os.path.join(options.out, 'figures.png'))}")


def _limit(text: str) -> tuple[str, float]:
    task, _, number = text.rpartition("=")
    try:
        return task.rpartition(",")[2], float(number)
    except ValueError:
        raise errors.UserError(
            f"--least={text} is not possible: write TASK=RETURN, as in cartpole_balance=850."
        ) from None


if __name__ == "__main__":
    output.run_script(_NAME, main)
