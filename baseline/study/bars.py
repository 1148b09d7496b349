"""Speed-ups as bars, each with the paper's figure as a mark.

Imports no framework but matplotlib.
"""

from collections.abc import Mapping

from actorQ.core import plotting


def draw(rows: Mapping[str, tuple[float, float | None]], label: str, path: str) -> str:
    """Draws a bar for each row, from above in their order, and a line where nothing is gained.

    A row has our figure and the paper's, None where the paper has none. Returns `path`.

    Raises:
      errors.UserError: it cannot be written.
    """
    figure, (axis,) = plotting.new_figure(1, 1.4 + 0.36 * len(rows))
    places = range(len(rows))
    axis.barh(places, [ours for ours, _ in rows.values()], color="#0072B2", label="ours")
    marks = [(theirs, place) for place, (_, theirs) in enumerate(rows.values()) if theirs]
    if marks:
        axis.plot(*zip(*marks, strict=True), "D", color="#D55E00", label="paper")
    axis.axvline(1, color="0.5", linewidth=1, linestyle="--")
    # The figures stand beside the names, since they would meet the marks at the bars' ends.
    names = [f"{name}   {ours:.2f}" for name, (ours, _) in rows.items()]
    axis.set_yticks(places, names, fontsize=9)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.set_xlim(left=0)
    axis.set_xlabel(label)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return plotting.save_figure(figure, path)
