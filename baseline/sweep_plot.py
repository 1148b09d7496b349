"""Draws reward against bits: one panel for an agent, or a grid of them.

Knows nothing of files and rows, so that other sweeps (of quantization-aware training, say) can be
drawn as further series. Imports no framework but matplotlib.
"""

from collections.abc import Sequence
import math
from typing import Any
from typing import NamedTuple

from matplotlib import figure as mpl_figure
from matplotlib import lines
from matplotlib import patches
from matplotlib import ticker

from actorQ.scripts import curves

FP32_COLOUR = "0.35"
_BAND = 0.18  # Opacity.
_COLUMNS = 3  # Of a grid.
_LEAST_HEIGHT = 0.25  # Of a panel, as a share of fp32's return.
# Halves stand to the left of the widths, apart from them: no step of a width leads to them.
_GUTTER = 2.0


class Point(NamedTuple):
    """What was earned at one precision.

    Attributes:
      bits: "fp32", "fp16", "bf16", or a width.
      mean: return over all episodes.
      low: lower end of the mean's 95 % interval; None where there is none.
      high: upper end.
      seed_means: return of each seed.
    """

    bits: str
    mean: float
    low: float | None
    high: float | None
    seed_means: tuple[float, ...] = ()


class Series(NamedTuple):
    """A curve of a panel.

    Attributes:
      label: for the legend.
      colour: of matplotlib.
      points: the widths, and maybe halves.
      best: width with the best mean, to be marked; None: none.
      fewest: the sweet spot, to be marked; None: none.
    """

    label: str
    colour: str
    points: Sequence[Point]
    best: str | None = None
    fewest: str | None = None


class Panel(NamedTuple):
    """What one agent's panel shows.

    Attributes:
      title: above it.
      fp32: at full precision.
      series: the curves; at least one with a point.
    """

    title: str
    fp32: Point
    series: Sequence[Series]


def draw_panel(ax: Any, panel: Panel, small: bool = False) -> None:
    """Draws a panel.

    Args:
      ax: of matplotlib.
      panel: what to draw.
      small: one of many: thinner, with fewer ticks and without the seeds' dots.
    """
    points = [point for series in panel.series for point in series.points]
    widths = sorted({int(point.bits) for point in points if point.bits.isdecimal()})
    halves = sorted({point.bits for point in points if not point.bits.isdecimal()}, reverse=True)
    left = max(widths, default=32) + _GUTTER
    places = {str(width): float(width) for width in widths}
    places |= {bits: left + _GUTTER * (0.5 + index) for index, bits in enumerate(halves)}

    _draw_fp32(ax, panel.fp32, small)
    for index, series in enumerate(panel.series):
        _draw_series(ax, series, index, places, small)
    if halves and widths:
        ax.axvline(left, color="0.8", linewidth=0.8)
    # From wide to narrow, as the paper draws it.
    ax.set_xlim(max(places.values()) + 1.2, min(places.values()) - 1.2)
    _set_ticks(ax, places, small)
    ax.yaxis.set_major_locator(ticker.MaxNLocator(4 if small else 6))
    ax.ticklabel_format(axis="y", style="plain", useOffset=False)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    _keep_flat(ax, panel.fp32.mean)
    ax.set_title(panel.title, fontsize=9 if small else 11)


def draw(path: str, panel: Panel, note: str = "") -> str:
    """Draws one agent's sweep; returns `path`.

    Args:
      path: of the PNG.
      panel: what to draw.
      note: above the legend, e.g. what a sweet spot is.
    """
    figure, (ax,) = curves.new_figure(height=4.8)
    draw_panel(ax, panel)
    ax.set_xlabel("Bits")
    ax.set_ylabel("Mean return")
    _place_legend(figure, _legend(panel.series, seeds=True), note, columns=2)
    return curves.save_figure(figure, path)


def draw_grid(path: str, title: str, panels: Sequence[Panel], note: str = "") -> str:
    """Draws several agents' sweeps in one figure, with one legend; returns `path`.

    Args:
      path: of the PNG.
      title: of the figure.
      panels: at least one.
      note: above the legend.
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
    unique = {s.label: s for panel in panels for s in panel.series}
    handles = _legend([s._replace(best=None, fewest=None) for s in unique.values()], seeds=False)
    handles += _mark_handles("best width", "sweet spot", "0.2")
    _place_legend(figure, handles, note, columns=min(3, columns + 1))
    return curves.save_figure(figure, path)


def _draw_fp32(ax: Any, fp32: Point, small: bool) -> None:
    if fp32.low is not None and fp32.high is not None:
        ax.axhspan(fp32.low, fp32.high, color=FP32_COLOUR, alpha=0.12, linewidth=0)
    ax.axhline(fp32.mean, color=FP32_COLOUR, linestyle="--", linewidth=0.9 if small else 1.2)


def _draw_series(
    ax: Any, series: Series, index: int, places: dict[str, float], small: bool
) -> None:
    colour = series.colour
    line = sorted((p for p in series.points if p.bits.isdecimal()), key=lambda p: -int(p.bits))
    spread = [point for point in line if point.low is not None]
    ax.fill_between(
        [places[point.bits] for point in spread],
        [point.low for point in spread],
        [point.high for point in spread],
        color=colour, alpha=_BAND, linewidth=0,
    )
    ax.plot(
        [places[point.bits] for point in line], [point.mean for point in line], "o-",
        color=colour, linewidth=1.2 if small else 1.8, markersize=2.2 if small else 3.8,
    )
    for point in series.points:
        # Halves have no line that could lie behind another's: they step aside for each other.
        place = places[point.bits] - (0 if point.bits.isdecimal() else 0.45 * index)
        if not small and len(point.seed_means) > 1:
            ax.plot(
                [place] * len(point.seed_means), point.seed_means, ".", color=colour, alpha=0.45,
                markersize=4, markeredgewidth=0, zorder=1.9,
            )
        if not point.bits.isdecimal():
            ax.plot(place, point.mean, "D", color=colour, markersize=2.6 if small else 4.5)
            if point.low is not None:
                ax.vlines(place, point.low, point.high, color=colour, alpha=0.6, linewidth=1.2)
        if point.bits == series.best:
            # The later star is the smaller, so that both are seen in one place.
            size = (9 if small else 15) - (3 if small else 5) * index
            ax.plot(
                place, point.mean, "*", color=colour, markeredgecolor="black",
                markeredgewidth=0.6, markersize=max(size, 3), zorder=4,
            )
    if series.fewest is not None:
        # Dashes of the second series fill the gaps of the first, should they meet.
        dashes = (1.8 * index, (1.8, 1.8))
        ax.axvline(places[series.fewest], color=colour, linestyle=dashes, linewidth=1.4)


def _set_ticks(ax: Any, places: dict[str, float], small: bool) -> None:
    widths = [bits for bits in places if bits.isdecimal()]
    few = not small or len(widths) <= 6
    kept = [bits for bits in widths if few or int(bits) in (2, 4, 8, 16, 24, 32)] or widths
    halves = [bits for bits in places if not bits.isdecimal()]
    ax.set_xticks([places[bits] for bits in (*kept, *halves)])
    ax.set_xticklabels([*kept, *halves], fontsize=7 if small else 9)
    for label, bits in zip(ax.get_xticklabels(), (*kept, *halves), strict=True):
        if small and not bits.isdecimal():
            label.set_rotation(90)
    ax.tick_params(axis="y", labelsize=7 if small else 9)


def _keep_flat(ax: Any, fp32_mean: float) -> None:
    """Gives the axis a least height: else luck, or rounding, would fill a panel as a loss does."""
    low, high = ax.get_ylim()
    least = max(_LEAST_HEIGHT * abs(fp32_mean), 1e-6)
    if high - low < least:
        middle = (low + high) / 2
        ax.set_ylim(middle - least / 2, middle + least / 2)


def _place_legend(
    figure: mpl_figure.Figure, handles: Sequence[Any], note: str, columns: int
) -> None:
    """Puts the legend beneath the panels: inside, curves of unknown shape would cross it."""
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9,
        title=note or None, title_fontsize=8,
    )


def _legend(series: Sequence[Series], seeds: bool) -> list[Any]:
    handles: list[Any] = [
        lines.Line2D([], [], color=FP32_COLOUR, linestyle="--", linewidth=1.2, label="fp32")
    ]
    for one in series:
        handles.append(
            lines.Line2D(
                [], [], color=one.colour, marker="o", markersize=3.8, linewidth=1.8,
                label=one.label,
            )
        )
    handles.append(patches.Patch(color="0.8", label="band: 95 % interval of the mean"))
    if seeds and any(len(p.seed_means) > 1 for one in series for p in one.points):
        handles.append(
            lines.Line2D([], [], color="0.5", marker=".", linestyle="", label="dots: each seed")
        )
    for one in series:
        several = f" ({one.label})" if len(series) > 1 else ""
        handles += _mark_handles(
            one.best and f"best: {one.best} bits{several}",
            one.fewest and f"sweet spot: {one.fewest} bits{several}",
            one.colour,
        )
    return handles


def _mark_handles(best: str | None, fewest: str | None, colour: str) -> list[Any]:
    handles = []
    if best:
        handles.append(
            lines.Line2D(
                [], [], color=colour, marker="*", linestyle="", markersize=11,
                markeredgecolor="black", markeredgewidth=0.6, label=best,
            )
        )
    if fewest:
        handles.append(
            lines.Line2D(
                [], [], color=colour, linestyle=(0, (1.8, 1.8)), linewidth=1.4, label=fewest
            )
        )
    return handles
