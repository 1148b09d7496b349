"""Draws reward against bits: one panel for an agent, or a grid of them.

Imports no framework but matplotlib.
"""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any

from matplotlib import figure as mpl_figure
from matplotlib import ticker

from actorQ.core import plotting
from baseline.study import sweep_legend
from baseline.study import sweep_panel
from baseline.study.sweep_panel import Panel
from baseline.study.sweep_panel import Point
from baseline.study.sweep_panel import Series

_BAND = 0.18  # Opacity.
_COLUMNS = 3  # Of a grid.
_LEAST_HEIGHT = 0.25  # Of a panel, as a share of fp32's return.
# What stands to the left of the widths, apart from them, from right to left: no step of a width
# leads to it.
_ASIDE = ("fp16", "bf16", sweep_panel.INT8, sweep_panel.FP32)
_FEW_WIDTHS = 8  # Of which a small panel has room for every tick.


def draw_panel(ax: Any, panel: Panel, small: bool = False) -> None:
    """Draws a panel.

    Args:
      ax: of matplotlib.
      panel: what to draw.
      small: one of many: thinner, with fewer ticks and without the seeds' dots.
    """
    found = {point.bits for series in panel.series for point in series.points}
    places = _places(found | ({sweep_panel.FP32} if panel.fp32_place else set()))
    step = _step(places)
    _draw_fp32(ax, panel, places, small)
    for index, series in enumerate(panel.series):
        before = [point.bits for other in panel.series[:index] for point in other.points]
        # What has no line that could lie behind another's steps aside for what has its place.
        own = {
            bits: place - (0.0 if bits.isdecimal() else 0.225 * step * before.count(bits))
            for bits, place in places.items()
        }
        _draw_series(ax, series, own, small)
        _draw_marks(ax, series, index, own, small)
    widths = [place for bits, place in places.items() if bits.isdecimal()]
    if 0 < len(widths) < len(places):
        ax.axvline(max(widths) + step, color="0.8", linewidth=0.8)
    # From wide to narrow, as the paper draws it.
    ax.set_xlim(max(places.values()) + 0.6 * step, min(places.values()) - 0.6 * step)
    _set_ticks(ax, places, small)
    ax.yaxis.set_major_locator(ticker.MaxNLocator(4 if small else 6))
    ax.ticklabel_format(axis="y", style="plain", useOffset=False)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    plotting.keep_flat(ax, max(_LEAST_HEIGHT * abs(panel.fp32.mean), 1e-6))
    ax.set_title(panel.title, fontsize=9 if small else 11)


def draw(path: str, panel: Panel, words: sweep_panel.Words) -> str:
    """Draws one agent's sweep; returns `path`.

    Args:
      path: of the PNG.
      panel: what to draw.
      words: of the legend.
    """
    figure, (ax,) = plotting.new_figure(height=4.8)
    draw_panel(ax, panel)
    ax.set_xlabel("Bits")
    ax.set_ylabel("Mean return")
    entries = sweep_legend.of_panel(panel.series, words)
    sweep_legend.place(figure, entries, words.note, columns=2)
    return plotting.save_figure(figure, path)


def draw_grid(path: str, title: str, panels: Sequence[Panel], words: sweep_panel.Words) -> str:
    """Draws several agents' sweeps in one figure, with one legend; returns `path`.

    Args:
      path: of the PNG.
      title: of the figure.
      panels: at least one.
      words: of the legend.
    """
    columns = min(_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = mpl_figure.Figure(
        figsize=(max(3.4 * columns, 5.5), 2.3 * rows + 1.0), layout="constrained"
    )
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for index, (ax, panel) in enumerate(zip(axes, panels, strict=False)):
        draw_panel(ax, panel, small=True)
        if index % columns == 0:
            ax.set_ylabel("Mean return", fontsize=8)
        if index + columns >= len(panels):
            ax.set_xlabel("Bits", fontsize=8)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    figure.suptitle(title, fontsize=12)
    entries = sweep_legend.of_grid(panels, words)
    sweep_legend.place(figure, entries, words.note, columns=min(3, columns + 1))
    return plotting.save_figure(figure, path)


def _places(found: Collection[str]) -> dict[str, float]:
    """Returns where precisions stand on the axis: widths at their number, others left of them."""
    places = {str(width): float(width) for width in sorted(int(b) for b in found if b.isdecimal())}
    left, step = max(places.values(), default=32.0), _step(places)
    aside = [bits for bits in _ASIDE if bits in found]
    return places | {bits: left + step * (1.5 + index) for index, bits in enumerate(aside)}


def _step(places: Mapping[str, float]) -> float:
    """Returns the distance of two precisions that are no widths, in bits."""
    widths = [place for bits, place in places.items() if bits.isdecimal()]
    return 1.0 if widths and max(widths) - min(widths) < _FEW_WIDTHS else 2.0


def _draw_fp32(ax: Any, panel: Panel, places: Mapping[str, float], small: bool) -> None:
    fp32, colour = panel.fp32, sweep_panel.FP32_COLOUR
    if fp32.low is not None and fp32.high is not None:
        ax.axhspan(fp32.low, fp32.high, color=colour, alpha=0.12, linewidth=0)
    ax.axhline(fp32.mean, color=colour, linestyle="--", linewidth=0.9 if small else 1.2)
    if panel.fp32_place:
        _draw_point(ax, fp32, colour, places[sweep_panel.FP32], small)


def _draw_series(ax: Any, series: Series, places: Mapping[str, float], small: bool) -> None:
    line = sorted((p for p in series.points if p.bits.isdecimal()), key=lambda p: -int(p.bits))
    spread = [point for point in line if point.low is not None]
    ax.fill_between(
        [places[point.bits] for point in spread],
        [point.low for point in spread],
        [point.high for point in spread],
        color=series.colour, alpha=_BAND / 2 if series.light else _BAND, linewidth=0,
    )
    ax.plot(
        [places[point.bits] for point in line], [point.mean for point in line],
        **sweep_panel.line_style(series, small),
    )
    for point in series.points:
        _draw_point(ax, point, series.colour, places[point.bits], small)


def _draw_point(ax: Any, point: Point, colour: str, place: float, small: bool) -> None:
    """Draws what a line lacks: the seeds' dots, and all of a point that is on no line."""
    if not small and len(point.seed_means) > 1:
        ax.plot(
            [place] * len(point.seed_means), point.seed_means, ".", color=colour, alpha=0.55,
            markersize=5, markeredgewidth=0, zorder=1.9,
        )
    if not point.bits.isdecimal():
        ax.plot(place, point.mean, "D", color=colour, markersize=2.6 if small else 4.5)
        if point.low is not None:
            ax.vlines(place, point.low, point.high, color=colour, alpha=0.6, linewidth=1.2)


def _draw_marks(
    ax: Any, series: Series, index: int, places: Mapping[str, float], small: bool
) -> None:
    for point in series.points:
        if point.bits == series.best:
            # The later star is the smaller, so that both are seen in one place.
            size = (9 if small else 15) - (3 if small else 5) * index
            ax.plot(
                places[point.bits], point.mean, "*", color=series.colour, markeredgecolor="black",
                markeredgewidth=0.6, markersize=max(size, 3), zorder=4,
            )
    if series.fewest is not None:
        # Dashes of the second series fill the gaps of the first, should they meet.
        dashes = (1.8 * index, (1.8, 1.8))
        ax.axvline(places[series.fewest], color=series.colour, linestyle=dashes, linewidth=1.4)


def _set_ticks(ax: Any, places: Mapping[str, float], small: bool) -> None:
    widths = [bits for bits in places if bits.isdecimal()]
    crowded = small and len(widths) > _FEW_WIDTHS
    kept = [
        bits for bits in widths if not crowded or int(bits) in (2, 4, 8, 16, 24, 32)
    ] or widths
    aside = [bits for bits in places if not bits.isdecimal()]
    ax.set_xticks([places[bits] for bits in (*kept, *aside)])
    ax.set_xticklabels([*kept, *aside], fontsize=7 if small else 9)
    for label, bits in zip(ax.get_xticklabels(), (*kept, *aside), strict=True):
        if crowded and not bits.isdecimal():
            label.set_rotation(90)
    ax.tick_params(axis="y", labelsize=7 if small else 9)
