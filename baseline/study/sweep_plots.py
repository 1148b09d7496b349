"""Plots reward against bits: a figure for each agent, and a grid for each algorithm.

The module knows nothing of rows, so that it draws sweeps of every kind. It imports no framework
but matplotlib.
"""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import math
import os
import re
from typing import Any
from typing import NamedTuple

from matplotlib import ticker

from actorQ.core import output
from actorQ.core import plotting
from baseline.quantization import names

FOLDER = "plots"  # A folder beside the results.
INT8 = "8*"  # Agents quantized after training, where the widths belong to another method.
_FP32_COLOUR = plotting.PRECISION_COLOURS[names.FP32]
_BAND = 0.18  # Opacity.
_COLUMNS = 3  # Panels side by side in a grid.
_LEAST_HEIGHT = 0.25  # Least height of a panel, as a share of fp32's return.
# These stand to the left of the widths, in this order from right to left. No line joins them.
_ASIDE = ("fp16", "bf16", INT8, names.FP32)
_FEW_WIDTHS = 8  # A small panel has room for the ticks of so many bits.
_NAMED_WIDTHS = ("2", "8", "16", "24", "32")  # Widths with a name in a small panel of more.
# Bits that the name of a precision takes beside more widths than a few.
_ROOM_FOR_NAME, _SMALL_ROOM_FOR_NAME = 3.0, 6.5


class Point(NamedTuple):
    """The reward at one precision.

    Attributes:
      bits: a width, or one of the precisions beside the widths: "fp16", "bf16", `INT8`, "fp32".
      mean: mean return over all episodes.
      low: lower end of the band, see `Words`; None where there is none.
      high: upper end of the band.
      seed_means: mean return of each seed.
    """

    bits: str
    mean: float
    low: float | None
    high: float | None
    seed_means: tuple[float, ...] = ()


class Series(NamedTuple):
    """A curve of a panel.

    Attributes:
      label: text in the legend.
      colour: colour of matplotlib.
      points: the widths, and any precisions to their left.
      best: the width to mark as the one with the best mean; None: no mark.
      fewest: the width to mark as the sweet spot; None: no mark.
      light: whether the curve is there for comparison only, and drawn lightly.
    """

    label: str
    colour: str
    points: Sequence[Point]
    best: str | None = None
    fewest: str | None = None
    light: bool = False


class Panel(NamedTuple):
    """The plot of one agent.

    Attributes:
      env: environment, as in the results' file.
      shown_env: today's name of the environment, the panel's title in a grid.
      title: title of a plot of its own.
      fp32: reward at full precision, drawn as a line from side to side.
      series: the curves; at least one has a point.
      fp32_place: whether fp32 has a place on the axis as well.
    """

    algo: str
    env: str
    shown_env: str
    title: str
    fp32: Point
    series: Sequence[Series]
    fp32_place: bool = False


class Words(NamedTuple):
    """Texts of a legend.

    Attributes:
      band: meaning of the bands.
      dots: meaning of the dots.
      note: text above the legend; may be empty.
    """

    band: str = "95 % interval of the mean"
    dots: str = "each seed"
    note: str = ""


def draw(
    folder: str,
    panels: Sequence[Panel],
    words: Words,
    grid_title: str | None,
    settings: Sequence[str] = (),
) -> list[str]:
    """Draws a plot for each agent and, if wanted, a grid for each algorithm.

    Without a title there are no grids. `settings`, which differ from the default, are part of the
    files' names.

    Returns:
      The paths, those of grids last.

    Raises:
      errors.UserError: a file cannot be written.
    """
    output.make_folder(folder)
    paths = []
    for panel in panels:
        path = os.path.join(folder, _file_name(panel.algo, panel.env, settings))
        paths.append(draw_figure(path, None, [panel], words))
    for algo in dict.fromkeys(one.algo for one in panels) if grid_title is not None else ():
        members = [one for one in panels if one.algo == algo]
        path = os.path.join(folder, _file_name("overview", algo, settings))
        paths.append(draw_figure(path, f"{algo}: {grid_title}", members, words))
    return paths


def _file_name(first: str, second: str, settings: Sequence[str]) -> str:
    """Returns the name of a plot's file; environments such as ALE/Pong-v5 lose their slash."""
    return "_".join((first, re.sub(r"[/,]", "_", second), *settings)) + ".png"


def draw_figure(path: str, title: str | None, panels: Sequence[Panel], words: Words) -> str:
    """Draws one agent's plot, or a grid of small ones under a title; returns `path`."""
    columns = min(_COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    size = (7.0, 4.8) if title is None else (max(3.4 * columns, 5.5), 2.3 * rows + 1.0)
    figure, axes = plotting.new_grid(rows, columns, size)
    for ax, panel in zip(axes, panels, strict=False):
        draw_panel(ax, panel, words, small=title is not None)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    for ax in axes[max(0, len(panels) - columns) : len(panels)]:
        ax.set_xlabel("Precision (bits)", fontsize=plotting.TEXT)
    figure.supylabel("Mean return", fontsize=plotting.TEXT)
    if title is not None:
        figure.suptitle(title, fontsize=plotting.TITLE)
    plotting.legend_below(figure, 2 if title is None else min(3, columns + 1), words.note)
    return plotting.save_figure(figure, path)


def draw_panel(ax: Any, panel: Panel, words: Words, small: bool = False) -> None:
    """Draws a panel; a small one is thinner, with fewer ticks, without the seeds' dots."""
    found = {point.bits for series in panel.series for point in series.points}
    places = _places(found | ({names.FP32} if panel.fp32_place else set()), small)
    step = _step(places, small)
    _draw_fp32(ax, panel, places, words, small)
    for index, series in enumerate(panel.series):
        before = [point.bits for other in panel.series[:index] for point in other.points]
        # A point on no line steps aside where an earlier series has a point in its place.
        own = {
            bits: place - (0.0 if bits.isdecimal() else 0.225 * step * before.count(bits))
            for bits, place in places.items()
        }
        _draw_series(ax, series, own, words, small)
        _draw_marks(ax, series, index, own, small, len(panel.series) > 1)
    widths = [place for bits, place in places.items() if bits.isdecimal()]
    if 0 < len(widths) < len(places):
        ax.axvline(max(widths) + step, color="0.8", linewidth=0.8)
    # The axis runs from wide to narrow, as in the paper.
    ax.set_xlim(max(places.values()) + 0.6 * step, min(places.values()) - 0.6 * step)
    _set_ticks(ax, places, small)
    ax.yaxis.set_major_locator(ticker.MaxNLocator(4 if small else 6))
    ax.ticklabel_format(axis="y", style="plain", useOffset=False)
    plotting.keep_flat(ax, max(_LEAST_HEIGHT * abs(panel.fp32.mean), 1e-6))
    title, size = (panel.shown_env, plotting.TEXT) if small else (panel.title, plotting.TITLE)
    ax.set_title(title, fontsize=size)


def _places(found: Collection[str], small: bool) -> dict[str, float]:
    """Returns where precisions stand on the axis: widths at their number, others left of them."""
    places = {str(width): float(width) for width in sorted(int(b) for b in found if b.isdecimal())}
    left, step = max(places.values(), default=32.0), _step(places, small)
    aside = [bits for bits in _ASIDE if bits in found]
    return places | {bits: left + step * (1.5 + index) for index, bits in enumerate(aside)}


def _step(places: Mapping[str, float], small: bool) -> float:
    """Returns the distance of two precisions that are no widths, in bits."""
    if _few_widths(places):
        return 1.0
    return _SMALL_ROOM_FOR_NAME if small else _ROOM_FOR_NAME


def _few_widths(places: Mapping[str, float]) -> bool:
    widths = [place for bits, place in places.items() if bits.isdecimal()]
    return bool(widths) and max(widths) - min(widths) < _FEW_WIDTHS


def _draw_fp32(
    ax: Any, panel: Panel, places: Mapping[str, float], words: Words, small: bool
) -> None:
    fp32 = panel.fp32
    if fp32.low is not None and fp32.high is not None:
        ax.axhspan(fp32.low, fp32.high, color=_FP32_COLOUR, alpha=0.12, linewidth=0)
    ax.axhline(
        fp32.mean, color=_FP32_COLOUR, linestyle="--", linewidth=0.9 if small else 1.2,
        label=names.FP32,
    )
    if panel.fp32_place:
        _draw_point(ax, fp32, _FP32_COLOUR, places[names.FP32], words, small)


def _draw_series(
    ax: Any, series: Series, places: Mapping[str, float], words: Words, small: bool
) -> None:
    line = sorted((p for p in series.points if p.bits.isdecimal()), key=lambda p: -int(p.bits))
    spread = [point for point in line if point.low is not None]
    ax.fill_between(
        [places[point.bits] for point in spread],
        [point.low for point in spread],
        [point.high for point in spread],
        color=series.colour, alpha=_BAND / 2 if series.light else _BAND, linewidth=0,
        label=f"band: {words.band}" if spread else None,
    )
    style: dict[str, Any] = {"linewidth": 1.8, "marker": "o", "markersize": 3.8}
    if series.light:  # Squares show around the points of another curve on top of them.
        style = {
            "linewidth": 1.2, "alpha": 0.8, "marker": "s", "markersize": 6.5,
            "markerfacecolor": "white", "zorder": 1.95,
        }
    if small:
        style |= {"linewidth": style["linewidth"] * 0.67, "markersize": style["markersize"] * 0.57}
    ax.plot(
        [places[point.bits] for point in line], [point.mean for point in line],
        color=series.colour, label=series.label, **style,
    )
    for point in series.points:
        colour = plotting.PRECISION_COLOURS.get(point.bits, series.colour)
        _draw_point(ax, point, colour, places[point.bits], words, small)


def _draw_point(
    ax: Any, point: Point, colour: str, place: float, words: Words, small: bool
) -> None:
    """Draws what a line lacks: the seeds' dots, and all of a point that is on no line."""
    if not small and len(point.seed_means) > 1:
        ax.plot(
            [place] * len(point.seed_means), point.seed_means, ".", color=colour, alpha=0.55,
            markersize=7, markeredgewidth=0, zorder=1.9, label=f"dots: {words.dots}",
        )
    if not point.bits.isdecimal():
        ax.plot(place, point.mean, "D", color=colour, markersize=3.5 if small else 5.5)
        if point.low is not None:
            ax.vlines(place, point.low, point.high, color=colour, alpha=0.6, linewidth=1.2)


def _draw_marks(
    ax: Any, series: Series, index: int, places: Mapping[str, float], small: bool, several: bool
) -> None:
    def label(name: str, bits: str) -> str:
        text = name if small else f"{name}: {bits} bits"
        return f"{text} ({series.label})" if several or small else text

    for point in series.points:
        if point.bits == series.best:
            # The later star is the smaller one, so that both show in one place.
            size = (9 if small else 15) - (3 if small else 5) * index
            ax.plot(
                places[point.bits], point.mean, "*", color=series.colour, markeredgecolor="black",
                markeredgewidth=0.6, markersize=max(size, 3), zorder=4,
                label=label("best", point.bits),
            )
    if series.fewest is not None:
        # Dashes of the second series fill the gaps of the first where both meet.
        ax.axvline(
            places[series.fewest], color=series.colour, linestyle=(1.8 * index, (1.8, 1.8)),
            linewidth=1.4, label=label("sweet spot", series.fewest),
        )


def _set_ticks(ax: Any, places: Mapping[str, float], small: bool) -> None:
    widths = [bits for bits in places if bits.isdecimal()]
    crowded = small and not _few_widths(places)
    kept = [bits for bits in widths if not crowded or bits in _NAMED_WIDTHS] or widths
    kept += [bits for bits in places if not bits.isdecimal()]
    ax.set_xticks([places[bits] for bits in kept], kept)
    ax.set_xticks([places[bits] for bits in widths], minor=True)
    ax.tick_params(labelsize=plotting.SMALL if small else plotting.TEXT)
