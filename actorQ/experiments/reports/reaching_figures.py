"""Figures of times to reward: learning curves, and bars as in the paper.

Imports no framework but matplotlib.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import NamedTuple

from matplotlib import axes
from matplotlib import patches
import numpy as np

from actorQ.core import plotting
from actorQ.experiments import results as results_lib
from actorQ.experiments import specification
from actorQ.experiments.reports import reaching
from actorQ.experiments.run_logs import curves
from actorQ.experiments.run_logs import paper
from actorQ.experiments.run_logs import times

_LINE_OF_TEXT = 0.065  # Height as a part of the panel of bars.
_SHORT_LABEL = len("fp32 actors")  # Longer ones are names of peers.


class Line(NamedTuple):
    """A line of the figure for one side: the mean of its seeds' curves, and their range."""

    label: str  # Name in the legend.
    colour: str  # Colour of the line.
    seed_curves: Sequence[curves.Curve]  # Curve of each seed.
    reach: times.Reach  # When the median seed held the reward.


def draw_curves(task: str, rows: reaching.Rows, path: str) -> None:
    """Draws returns against time, one colour for each side; nothing where nothing was evaluated."""
    lines = []
    for side, row in rows.items():
        evaluated = [result for result in row.results if result.measured.rewards.seconds]
        if evaluated:
            label = row.name if side.is_peer else f"{side.short_name} actors"
            lines.append(
                Line(label, side.colour, [curve(result) for result in evaluated], row.median)
            )
    if lines:
        first = next(iter(rows.values()))
        title = f"{task} ({first.algorithm or first.side.kind})"
        window = first.results[0].measured.window
        draw_lines(title, reaching.target(rows), window, lines, path)


def draw_lines(
    title: str, target: float, window: int, lines: Sequence[Line], path: str
) -> str:
    """Draws return against time, one colour for each side; returns `path`.

    Args:
      title: Title of the figure.
      target: Reward to hold.
      window: Evaluations in the running mean.
      lines: Sides.
      path: File to write, a PNG.
    """
    figure, (ax,) = plotting.new_figure()
    for line in lines:
        mean, seeds = curves.mean_curve(line.seed_curves), len(line.seed_curves)
        count = f"mean of {seeds} seeds" if seeds > 1 else "1 seed"
        verb = "median to hold it" if line.reach.reached else "not held (median) in"
        ax.step(
            mean.seconds, mean.mean, where="post", color=line.colour, linewidth=1.8,
            label=f"{line.label}, {count}: {verb} {line.reach.seconds:.0f} s",
        )
        if seeds > 1:
            ax.fill_between(
                mean.seconds, mean.low, mean.high, step="post", color=line.colour, alpha=0.18,
                linewidth=0,
            )
        if line.reach.reached:
            ax.plot(line.reach.seconds, target, "o", color=line.colour, zorder=3)
    rule = ax.axhline(target, color="0.35", linestyle="--", linewidth=1)
    rule.set_label(f"reward to reach: {target:.1f}")
    handles = ax.get_legend_handles_labels()[0]
    if any(len(line.seed_curves) > 1 for line in lines):
        handles.append(patches.Patch(color="0.82", label="band: lowest to highest seed"))
    # The legend is beneath the panel, where no curve crosses it. Two columns of long labels would
    # be wider than the figure.
    columns = 2 if max(len(line.label) for line in lines) <= _SHORT_LABEL and len(lines) < 4 else 1
    if columns == 1:
        figure.set_size_inches(7.0, 4.2 + 0.12 * len(handles))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False,
        fontsize=plotting.SMALL,
    )
    ax.set_xlabel("Time since the start of the run (s)")
    ax.set_ylabel(f"Evaluation return\n(running mean of {window})")
    ax.set_xlim(left=0)
    ax.set_title(title, fontsize=plotting.TITLE)
    return plotting.save_figure(figure, path)


def draw_bars(table: Mapping[str, reaching.Rows], path: str) -> None:
    """Draws speed-ups over fp32 as the paper does, tasks side by side, the paper's beside ours.

    Peers have no bars: they are no precision of ours. Nothing is drawn if nothing can be compared.
    """
    rows_of = {
        task: {side: row for side, row in rows.items() if not side.is_peer}
        for task, rows in table.items()
    }
    tasks = [task for task, rows in rows_of.items() if reaching.FP32 in rows and len(rows) > 1]
    if not tasks:
        return
    quantized = sorted(
        {side for task in tasks for side in rows_of[task]} - {reaching.FP32},
        key=lambda side: -side.precision,
    )
    figure, (ax,) = plotting.new_figure()
    figure.set_size_inches(max(7.0, 1.1 * len(tasks) * (len(quantized) + 1) / 2), 4.2)
    width = 0.84 / (len(quantized) + 1)
    texts = []
    for i, side in enumerate(quantized):
        speedups = [reaching.speedup(rows_of[task], side) for task in tasks]
        shown = [
            s.value if s is not None and s.bound != "?" and math.isfinite(s.value) else 0.0
            for s in speedups
        ]
        bars = ax.bar(
            np.arange(len(tasks)) + (i - len(quantized) / 2) * width, shown, 0.92 * width,
            color=side.colour, label=f"{side.short_name} actors",
        )
        for bar, speedup in zip(bars, speedups, strict=True):
            if speedup is not None and speedup.bound:
                bar.set_hatch("//")  # The ratio is a bound, or not known.
        for bar, task in zip(bars, tasks, strict=True):
            gain = reaching.learner_gain(rows_of[task], side)
            if gain is not None:
                left = bar.get_x()
                ax.hlines(gain, left, left + bar.get_width(), color="black", linewidth=1.5)
            text = reaching.speedup_text(rows_of[task], side).replace(" (", "\n(")
            texts.append((bar, gain, text))
    published = [paper.SPEEDUPS[t].speedup if t in paper.SPEEDUPS else 0.0 for t in tasks]
    bars = ax.bar(
        np.arange(len(tasks)) + len(quantized) / 2 * width, published, 0.92 * width,
        color=plotting.PAPER_COLOUR, label="paper, int8",
    )
    ax.bar_label(
        bars, [f"{value:.2f}" if value else "" for value in published], fontsize=plotting.SMALL,
        padding=2,
    )
    ax.axhline(1.0, color="0.35", linewidth=1, linestyle="--")
    ax.plot([], [], color="black", linewidth=1.5, label="learner steps/s: quantized / fp32")
    names = [specification.short_task(task).replace("_", "\n") for task in tasks]
    ax.set_xticks(np.arange(len(tasks)), names, fontsize=plotting.TEXT)
    ax.tick_params(axis="x", length=0)
    margin = 0.6 + max(0, 4 - len(tasks)) / 2  # One task's bars do not fill the panel.
    ax.set_xlim(-margin, len(tasks) - 1 + margin)
    ax.set_ylabel("Time to reward: fp32 / quantized")
    ax.margins(y=0.12)
    for bar, gain, text in texts:  # Now the panel's height is known.
        _write(ax, bar, gain, text)
    # An entry is some 3 cm wide, and a row wider than the figure would be cut off.
    columns = min(len(quantized) + 2, 3 if len(tasks) < 4 else 5)
    figure.legend(loc="outside lower center", ncols=columns, frameon=False)
    plotting.save_figure(figure, path)


def _write(ax: axes.Axes, bar: patches.Rectangle, gain: float | None, text: str) -> None:
    """Writes on top of a bar, or above the line at `gain` if that would cross the text.

    A text above a line far from its bar would seem to belong to the line.
    """
    top, lines = bar.get_height(), 1 + text.count("\n")
    if gain is not None and top <= gain < top + lines * _LINE_OF_TEXT * ax.get_ylim()[1]:
        top = gain
    ax.annotate(
        text, (bar.get_x() + bar.get_width() / 2, top), (0, 2), textcoords="offset points",
        ha="center", va="bottom", fontsize=plotting.SMALL,
    )


def curve(result: results_lib.Result) -> curves.Curve:
    """Returns the evaluations of a run."""
    rewards = result.measured.rewards
    returns = np.asarray(rewards.returns)
    return curves.Curve(
        np.asarray(rewards.seconds), returns,
        curves.running_mean(returns, result.measured.window), np.asarray(rewards.evaluation_s),
    )
