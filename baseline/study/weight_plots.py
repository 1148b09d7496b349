"""Draws how weights are distributed, before and after quantization, and side by side.

`visualize` and `findings` use it. Imports no framework but matplotlib.
"""

from collections.abc import Sequence
import math
from typing import Any
from typing import NamedTuple

from matplotlib import ticker
import numpy as np

from actorQ.core import plotting
from baseline.quantization import weight_statistics

BINS = 90  # The number of bins is approximate.
# More values than this are drawn in bins, since their lines would run into each other.
MOST_LINES = 64
MOST_LAYERS = 16  # Layers in one figure.
BEFORE_COLOUR = "0.72"
AFTER_COLOUR = plotting.WINE
WIDTH_COLOUR = plotting.INDIGO
_COLUMNS = 4  # Models side by side.


class Change(NamedTuple):
    """Numbers before and after quantization.

    Attributes:
      label: label for people.
      before: float vector [N].
      after: float vector [N].
    """

    label: str
    before: np.ndarray
    after: np.ndarray


class Layer(NamedTuple):
    """A layer's part of a figure; None stands for missing weights or biases."""

    weights: Change | None
    biases: Change | None


class Model(NamedTuple):
    """A model among others: its name, a remark, and its weights as a vector."""

    name: str
    remark: str
    weights: np.ndarray


def draw_distribution(path: str, title: str, changes: Sequence[Change]) -> str:
    """Draws all weights and all biases, one below the other; returns `path`."""
    figure, axes = plotting.new_grid(len(changes), 1, (7.0, 2.7 * len(changes) + 0.9))
    for ax, change in zip(axes, changes, strict=True):
        _draw_change(ax, change)
        ax.set_title(f"{change.label}: {_caption(change)}", fontsize=plotting.TEXT, loc="left")
        ax.set_ylabel("Count (log scale)")
    axes[-1].set_xlabel("Value")
    figure.suptitle(title, fontsize=plotting.TITLE)
    plotting.legend_below(figure, 3)
    return plotting.save_figure(figure, path)


def draw_layers(path: str, title: str, layers: Sequence[Layer]) -> str:
    """Draws a row for each layer, weights to the left and biases to the right; returns `path`.

    Only the first `MOST_LAYERS` are drawn, which the title then says.
    """
    shown = layers[:MOST_LAYERS]
    if len(shown) < len(layers):
        title += f"\n(the first {len(shown)} of {len(layers)} layers)"
    figure, axes = plotting.new_grid(len(shown), 2, (9.0, 1.9 * len(shown) + 1.0))
    for index, layer in enumerate(shown):
        row = axes[2 * index : 2 * index + 2]
        for ax, change in zip(row, (layer.weights, layer.biases), strict=True):
            if change is None:
                ax.set_axis_off()
                continue
            _draw_change(ax, change)
            ax.tick_params(labelsize=plotting.SMALL)
            ax.xaxis.get_offset_text().set_size(plotting.SMALL)
            caption = f"{change.label[-60:]}\n{_caption(change)}"
            ax.set_title(caption, fontsize=plotting.SMALL, loc="left")
        row[0].set_ylabel("Count", fontsize=plotting.TEXT)
    for ax in axes[-2:]:
        ax.set_xlabel("Value", fontsize=plotting.TEXT)
    figure.suptitle(title, fontsize=plotting.TITLE)
    plotting.legend_below(figure, 3)
    return plotting.save_figure(figure, path)


def draw_models(path: str, title: str, models: Sequence[Model]) -> str:
    """Draws models' weights side by side on one scale of values; returns `path`."""
    columns = min(_COLUMNS, len(models))
    rows = math.ceil(len(models) / columns)
    size = (max(2.9 * columns, 5.0), 2.2 * rows + 1.0)
    figure, axes = plotting.new_grid(rows, columns, size, sharex=True, sharey=True)
    low = min(float(model.weights.min()) for model in models)
    high = max(float(model.weights.max()) for model in models)
    for index, (ax, model) in enumerate(zip(axes, models, strict=False)):
        # Shares make small and large networks comparable.
        counts, edges = np.histogram(model.weights, BINS, (low, high) if low < high else None)
        shares = counts / model.weights.size
        ax.stairs(shares, edges, fill=True, color=BEFORE_COLOUR, label="weights")
        _draw_width(ax, model.weights)
        ax.set_yscale("log")
        ax.set_title(f"{model.name}\n{model.remark}", fontsize=plotting.TEXT)
        ax.tick_params(labelsize=plotting.SMALL, labelbottom=index + columns >= len(models))
    for ax in axes[len(models) :]:
        ax.set_axis_off()
    figure.suptitle(title, fontsize=plotting.TITLE)
    for ax in axes[max(0, len(models) - columns) : len(models)]:
        ax.set_xlabel("Weight", fontsize=plotting.TEXT)
    figure.supylabel("Share (log scale)", fontsize=plotting.TEXT)
    plotting.legend_below(figure, 2)
    return plotting.save_figure(figure, path)


def _draw_change(ax: Any, change: Change) -> None:
    values, numbers = np.unique(change.after, return_counts=True)
    edges = _edges(change, values)
    counts = np.histogram(change.before, edges)[0]
    ax.stairs(counts, edges, fill=True, color=BEFORE_COLOUR, label="before (in bins)")
    label = f"after (a line for each value; more than {MOST_LINES} in bins)"
    if values.size <= MOST_LINES:
        # The lines start below the axis, since a logarithm has no zero.
        ax.vlines(
            values, 0.1, numbers, color=AFTER_COLOUR, label=label,
            linewidth=float(np.clip(50 / values.size, 1.0, 2.2)),
        )
        highest = max(counts.max(), numbers.max())
    else:
        after = np.histogram(change.after, edges)[0]
        ax.stairs(after, edges, color=AFTER_COLOUR, linewidth=0.9, label=label)
        highest = max(counts.max(), after.max())
    _draw_width(ax, change.before)
    ax.set_yscale("log")
    ax.set_ylim(0.6, max(20.0, 2.0 * highest))
    ax.yaxis.set_minor_formatter(ticker.NullFormatter())
    ax.xaxis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    ax.ticklabel_format(axis="x", scilimits=(-3, 4), useOffset=False)


def _edges(change: Change, values: np.ndarray) -> np.ndarray:
    """Returns edges of bins.

    If the values after quantization are a grid, each bin has equally many of them. Otherwise some
    bins would have one value more than others, and stand out for no reason.
    """
    low = float(min(change.before.min(), values[0]))
    high = float(max(change.before.max(), values[-1]))
    # Nearly equal numbers must not look as if they were far apart.
    least = 0.05 * max(abs(low), abs(high)) or 1.0
    if high - low < least:
        middle = (low + high) / 2
        return np.linspace(middle - least, middle + least, BINS + 1)
    if values.size > MOST_LINES:
        step = float(np.diff(values).min())
        places = (values - values[0]) / step
        if np.all(np.abs(places - np.rint(places)) < 0.05):
            width = step * math.ceil((high - low) / step / BINS)
            first = values[0] - step / 2
            first -= width * max(0, math.ceil((first - low) / width))
            return np.arange(first, high + width, width)
    return np.linspace(low, high, BINS + 1)


def _draw_width(ax: Any, numbers: np.ndarray) -> None:
    label = f"width: central {100 * weight_statistics.WIDTH_SHARE:g} %"
    for edge in weight_statistics.central(numbers):
        ax.axvline(edge, color=WIDTH_COLOUR, linestyle=":", linewidth=1.5, label=label)


def _caption(change: Change) -> str:
    before = weight_statistics.statistics(change.before)
    after = weight_statistics.statistics(change.after)
    sqnr = weight_statistics.quantization_error(change.before, change.after).sqnr_db
    return (
        f"range {before.range:.3g}, width {before.width:.3g}, {before.distinct:,} → "
        f"{after.distinct:,} values, SQNR {decibels(sqnr)}"
    )


def decibels(ratio: float) -> str:
    """Returns a ratio in dB for people."""
    return f"{ratio:.1f} dB" if math.isfinite(ratio) else "∞"
