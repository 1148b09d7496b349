"""Figures: their looks, and how they are saved.

Imports no framework but matplotlib, without any part that needs a display.
"""

from typing import Any

from matplotlib import figure as mpl_figure

from actorQ.core import files
from actorQ.core import precisions

# Every plot takes its colours from here. A precision has the same colour in all plots, and nothing
# else has it. The colour-blind can tell these apart, too (Okabe and Ito's palette; int3 has a dark
# colour of Tol's, as the yellow that is left does not show on white).
PRECISION_COLOURS = {
    "fp32": "#0072B2", "fp16": "#009E73", "bf16": "#56B4E9", "int8": "#D55E00", "int4": "#CC79A7",
    "int3": "#661100",
}
PAPER_COLOUR = "0.6"  # Bars of the paper's figures; its marks are black.
# Colours of methods, phases, algorithms, processes and other projects (Tol's palettes, but ORANGE).
INDIGO, OLIVE, WINE, SAND = "#332288", "#999933", "#882255", "#DDCC77"
ORANGE, GREEN = "#E69F00", "#117733"
# Font sizes in points. Half as large as drawn, a figure is still legible.
TITLE, TEXT, SMALL = 12, 10, 9
TASK_STYLES = ("-", "--", ":", "-.")  # Line styles of the tasks in a figure, in a circle.
TASK_MARKERS = ("o", "s", "^", "D")  # Markers of tasks with too few points for a line.


def precision_colour(bits: int) -> str:
    """Returns the colour of a precision of `--quantize`."""
    return PRECISION_COLOURS[precisions.NAMES[bits]]


def new_figure(panels: int = 1, height: float = 4.2) -> tuple[mpl_figure.Figure, list[Any]]:
    """Returns a figure and its panels, one above the other on one time axis.

    Args:
      panels: Number of panels.
      height: Height of the figure, inches.
    """
    return new_grid(panels, 1, (7.0, height), sharex=True)


def new_grid(
    rows: int,
    columns: int,
    size: tuple[float, float],
    sharex: bool = False,
    sharey: bool = False,
) -> tuple[mpl_figure.Figure, list[Any]]:
    """Returns a figure and its panels, row after row.

    Args:
      rows: Rows of panels.
      columns: Columns of panels.
      size: Width and height of the figure, inches.
      sharex: Whether panels have one x axis.
      sharey: Whether panels have one y axis.
    """
    figure = mpl_figure.Figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey).flat)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="0.9", linewidth=0.8)
        ax.set_axisbelow(True)
    return figure, axes


def keep_flat(axis: Any, least: float) -> None:
    """Gives a y axis a least height, so that chance or rounding does not fill the panel.

    Args:
      axis: Panel with everything drawn.
      least: Least distance between the ends of its y axis.
    """
    low, high = axis.get_ylim()
    lacking = least - (high - low)
    if lacking > 0:
        axis.set_ylim(low - lacking / 2, high + lacking / 2)


def legend_below(figure: mpl_figure.Figure, columns: int, note: str = "") -> None:
    """Names everything that has a label, each label once, below the panels and under a note."""
    entries: dict[Any, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=columns,
        frameon=False, fontsize=TEXT, title=note or None, title_fontsize=SMALL,
    )


def save_figure(figure: mpl_figure.Figure, path: str) -> str:
    """Writes a figure and returns its path.

    Raises:
      errors.WriteError: The figure cannot be written.
    """
    with files.writing(path):
        figure.savefig(path, dpi=150)
    return path
