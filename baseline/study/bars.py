"""Speed-ups as bars, each with the paper's figure as a mark.

Imports no framework but matplotlib.
"""

from collections.abc import Mapping
from typing import NamedTuple

from actorQ.core import plotting


class Bar(NamedTuple):
    """A row of the figure."""

    speedup: float  # Our figure.
    paper: float | None  # The paper's, None where it has none.
    precision: str  # Name of the precision whose gain it is, e.g. "int8".


def draw(rows: Mapping[str, Bar], label: str, path: str) -> str:
    """Draws a bar for each row, from above in their order, and a line where nothing is gained.

    Returns `path`.

    Raises:
      errors.UserError: it cannot be written.
    """
    figure, (axis,) = plotting.new_figure(1, 1.5 + 0.36 * len(rows))
    places = range(len(rows))
    for precision in dict.fromkeys(bar.precision for bar in rows.values()):
        mine = [place for place, bar in zip(places, rows.values(), strict=True)
                if bar.precision == precision]
        # Widths of integers that ActorQ does not have look like int8.
        colour = plotting.PRECISION_COLOURS.get(precision, plotting.PRECISION_COLOURS["int8"])
        axis.barh(
            mine, [list(rows.values())[place].speedup for place in mine], color=colour,
            label=f"ours, {precision}",
        )
    marks = [(bar.paper, place) for place, bar in enumerate(rows.values()) if bar.paper]
    if marks:
        axis.plot(
            *zip(*marks, strict=True), "D", color="black", markeredgecolor="white", markersize=8,
            label="paper",
        )
    axis.axvline(1, color="0.5", linewidth=1, linestyle="--")
    # The figures stand beside the names, since they would meet the marks at the bars' ends.
    names = [f"{name}   {bar.speedup:.2f}" for name, bar in rows.items()]
    axis.set_yticks(places, names, fontsize=plotting.TEXT)
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.grid(axis="x", color="0.9", linewidth=0.8)
    axis.margins(x=0.12)
    axis.set_xlim(left=0)
    axis.set_xlabel(label)
    plotting.legend_below(figure, 3)
    return plotting.save_figure(figure, path)
