"""Losses of the same gradient steps in two precisions: how far apart they are, and their plot.

The steps start from the same weights and learn from the same batches. Losses differ only by the
rounding of the lower precision and its consequences. Imports no framework but matplotlib.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import os
from typing import Any

from matplotlib import ticker
import numpy as np

from actorQ.core import output
from actorQ.core import plotting
from actorQ.experiments.run_logs import curves

WINDOW = 20  # Gradient steps in the running means.
HEADER = (
    "mean loss, fp32", "mean loss, half", "last running mean, fp32", "last running mean, half",
    "largest deviation of a step", "largest deviation of a running mean",
)
NOTE = f"deviations in the loss of fp32; running means: over {WINDOW} steps"
# Line, its width, and size of dots of full and of half precision: where they meet, both show.
_STYLES = (("-", 3.0, 6), ("--", 1.2, 3))
_FAR_APART = 3.0  # The largest loss over the smallest from which on an axis is logarithmic.
# Names of precisions in plots, by those of the learner's settings.
_NAMES = {"float32": "fp32", "bfloat16": "bf16"}

# Losses, float64 [gradient steps], by learner and then by precision, full precision first.
Losses = Mapping[str, Mapping[str, np.ndarray]]


def deviations(full: np.ndarray, half: np.ndarray, window: int = WINDOW) -> tuple[float, float]:
    """Returns the largest relative deviation of a step's loss, and of a running mean.

    Running means count from the first full window on.

    Args:
      full: Losses in fp32, [steps].
      half: Losses in half precision, [steps].
      window: Steps in a running mean.
    """
    start = min(window, len(full)) - 1

    def largest(of_full: np.ndarray, of_half: np.ndarray) -> float:
        return float(np.max(np.abs(of_half - of_full) / np.abs(of_full)))

    means = [curves.running_mean(losses, window)[start:] for losses in (full, half)]
    return largest(full, half), largest(*means)


def row(full: np.ndarray, half: np.ndarray) -> dict[str, float]:
    """Returns a table's figures of two curves by name; deviations are relative to fp32's loss."""
    each, means = deviations(full, half)
    return {
        "mean_fp32": float(np.mean(full)), "mean": float(np.mean(half)),
        "last_fp32": float(curves.running_mean(full, WINDOW)[-1]),
        "last": float(curves.running_mean(half, WINDOW)[-1]),
        "deviation": each, "deviation_of_means": means,
    }


def cells(numbers: Mapping[str, float]) -> list[str]:
    """Returns the figures of `row` as the cells below `HEADER`."""
    return [
        *(f"{numbers[name]:.3g}" for name in ("mean_fp32", "mean", "last_fp32", "last")),
        *(f"{100 * numbers[name]:.2f}%" for name in ("deviation", "deviation_of_means")),
    ]


def write(losses: Losses, titles: Mapping[str, str], out: str, name: str) -> None:
    """Writes every step's losses (NAME.csv) and a plot of them (NAME.png).

    Args:
      losses: Losses of each learner, see `Losses`.
      titles: Titles of the panels, by learner.
      out: Folder to write to; it exists.
      name: Name of the files, without ending.

    Raises:
      errors.UserError: The folder cannot be written.
    """
    output.write_csv(os.path.join(out, f"{name}.csv"), _columns(losses))
    draw(losses, titles, os.path.join(out, f"{name}.png"))


def _columns(losses: Losses) -> Sequence[Mapping[str, Any]]:
    named = {
        f"{name}_{precision}": values
        for name, found in losses.items() for precision, values in found.items()
    }
    steps = len(next(iter(named.values())))
    return [
        {"gradient_step": step + 1, **{name: float(named[name][step]) for name in named}}
        for step in range(steps)
    ]


def draw(losses: Losses, titles: Mapping[str, str], path: str) -> str:
    """Draws every step's loss, and running means, a panel for each entry; returns the path."""
    figure, panels = plotting.new_figure(len(losses), 2.5 * len(losses) + 0.8)
    for axes, (name, found) in zip(panels, losses.items(), strict=True):
        for index, (precision, values) in enumerate(found.items()):
            steps, label = np.arange(1, len(values) + 1), _NAMES.get(precision, precision)
            colour, (line, width, size) = plotting.PRECISION_COLOURS[label], _STYLES[index]
            axes.plot(steps, values, ".", color=colour, markersize=size, markeredgewidth=0)
            axes.plot(
                steps, curves.running_mean(values, WINDOW), line, color=colour, linewidth=width,
                label=label,
            )
        axes.set_title(titles[name], fontsize=plotting.TITLE)
        _scale(axes, np.concatenate(list(found.values())))
        axes.set_ylabel("Loss")
    panels[-1].set_xlabel("Gradient steps")
    plotting.legend_below(
        figure, len(_STYLES), f"dots: each step; lines: running means of {WINDOW} steps"
    )
    return plotting.save_figure(figure, path)


def _scale(axes: Any, values: np.ndarray) -> None:
    """Makes the axis of losses logarithmic if they differ much, with a few plain numbers."""
    low, high = float(values.min()), float(values.max())
    if low <= 0 or high < _FAR_APART * low:
        return
    axes.set_yscale("log")
    steps = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=steps))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
