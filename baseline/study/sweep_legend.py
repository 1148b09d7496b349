"""The legend of plots of reward against bits. Imports no framework but matplotlib."""

from collections.abc import Sequence
from typing import Any

from matplotlib import figure as mpl_figure
from matplotlib import lines
from matplotlib import patches

from baseline.study import sweep_panel


def place(figure: mpl_figure.Figure, entries: Sequence[Any], note: str, columns: int) -> None:
    """Puts the legend beneath the panels: inside, curves of unknown shape would cross it.

    Args:
      figure: with a constrained layout.
      entries: handles of matplotlib.
      note: above them; may be empty.
      columns: of the legend.
    """
    figure.legend(
        handles=entries, loc="outside lower center", ncols=columns, frameon=False, fontsize=9,
        title=note or None, title_fontsize=8,
    )


def of_panel(series: Sequence[sweep_panel.Series], words: sweep_panel.Words) -> list[Any]:
    """Returns the handles of one agent's plot, with its own marks."""
    entries = _curves(series, words, series)
    if any(len(point.seed_means) > 1 for one in series for point in one.points):
        entries.append(
            lines.Line2D(
                [], [], color="0.5", marker=".", linestyle="", label=f"dots: {words.dots}"
            )
        )
    for one in series:
        several = f" ({one.label})" if len(series) > 1 else ""
        entries += _marks(
            one.best and f"best: {one.best} bits{several}",
            one.fewest and f"sweet spot: {one.fewest} bits{several}",
            one.colour,
        )
    return entries


def of_grid(panels: Sequence[sweep_panel.Panel], words: sweep_panel.Words) -> list[Any]:
    """Returns the handles of many panels: each curve once, and each kind of mark."""
    series = [one for panel in panels for one in panel.series]
    unique = {one.label: one for one in series}
    marks = _marks(
        "best width" if any(one.best for one in series) else None,
        "sweet spot" if any(one.fewest for one in series) else None,
        "0.2",
    )
    return _curves(list(unique.values()), words, series) + marks


def _curves(
    series: Sequence[sweep_panel.Series],
    words: sweep_panel.Words,
    drawn: Sequence[sweep_panel.Series],
) -> list[Any]:
    """Returns a handle for each of `series`, and one for bands where any of `drawn` has one."""
    fp32 = lines.Line2D(
        [], [], color=sweep_panel.FP32_COLOUR, linestyle="--", linewidth=1.2, label="fp32"
    )
    shown = [
        lines.Line2D([], [], label=one.label, **sweep_panel.line_style(one)) for one in series
    ]
    entries = [fp32, *shown]
    if any(point.low is not None for one in drawn for point in one.points):
        entries.append(patches.Patch(color="0.8", label=f"band: {words.band}"))
    return entries


def _marks(best: str | None, fewest: str | None, colour: str) -> list[Any]:
    entries = []
    if best:
        entries.append(
            lines.Line2D(
                [], [], color=colour, marker="*", linestyle="", markersize=11,
                markeredgecolor="black", markeredgewidth=0.6, label=best,
            )
        )
    if fewest:
        entries.append(
            lines.Line2D(
                [], [], color=colour, linestyle=(0, (1.8, 1.8)), linewidth=1.4, label=fewest
            )
        )
    return entries
