"""Draws the loss of reward against the width: panels for algorithms, lines for methods."""

from collections.abc import Sequence

from actorQ.core import plotting
from baseline.quantization import names
from baseline.quantization import recipes
from baseline.study import method_tables

_GAIN, _LOSS = -20.0, 100.0  # Percent; larger gains and losses are drawn there.
_LINEAR = 5.0  # Percent up to which the axis is linear.
_TICKS = (-20, -5, 0, 5, 10, 20, 50, 100)
_STYLES = {
    recipes.MINMAX: ("black", "-"), recipes.AUTO: (plotting.WINE, "-"),
    recipes.DISTILL: (plotting.GREEN, "-"), recipes.ACTION: (plotting.INDIGO, "-"),
    recipes.GPTQ: (plotting.OLIVE, "-"), recipes.MSE: (plotting.ORANGE, "-"),
    recipes.PERCENTILE: (plotting.SAND, "-"), recipes.BIAS_CORRECTION: ("0.6", "-"),
    recipes.ADAROUND: (plotting.OLIVE, ":"), recipes.SMOOTH: (plotting.SAND, ":"),
    recipes.AWQ: (plotting.ORANGE, ":"), recipes.HADAMARD: ("0.6", ":"),
}
_SEVERAL = (
    (plotting.OLIVE, "--"), (plotting.ORANGE, "--"), (plotting.INDIGO, "--"), ("0.6", "--"),
    (plotting.SAND, "--"), ("0.3", "-."),
)


def draw(path: str, found: Sequence[method_tables.Table]) -> str:
    """Draws a row of panels for each granularity; returns `path`. There is at least one table.

    A line has the means over all agents of an algorithm, not those over some of them.
    """
    algorithms = list(dict.fromkeys(table.algo for table in found))
    granularities = [
        one for one in names.GRANULARITIES if any(table.granularity == one for table in found)
    ]
    size = (max(3.2 * len(algorithms), 6.4), 2.9 * len(granularities) + 1.4)
    figure, axes = plotting.new_grid(len(granularities), len(algorithms), size, sharey=True)
    axes[0].set_yscale("symlog", linthresh=_LINEAR)
    axes[0].set_ylim(1.1 * _GAIN, 1.1 * _LOSS)
    axes[0].set_yticks(_TICKS, [f"{tick}" for tick in _TICKS])
    axes[0].minorticks_off()
    several = list(dict.fromkeys(
        name for table in found for name in map(_without_groups, table.methods)
        if name not in _STYLES
    ))
    extra = dict(zip(several, _SEVERAL * (1 + len(several)), strict=False))
    for number, ax in enumerate(axes):
        granularity = granularities[number // len(algorithms)]
        algo = algorithms[number % len(algorithms)]
        table = next(
            (one for one in found if (one.algo, one.granularity) == (algo, granularity)), None
        )
        ax.set_title(f"{algo.upper()}, granularity {granularity}", fontsize=plotting.TEXT)
        if table is None:
            ax.set_axis_off()
            continue
        ax.axhline(0, color="0.5", linewidth=0.8)
        means = {bits: method_tables.of_all_agents(table, bits) for bits in table.widths}
        for method in table.methods:
            colour, style = {**extra, **_STYLES}[_without_groups(method)]
            grouped = method != _without_groups(method)
            points = [
                (int(bits), 100 * (cells[method].mean.error or 0.0))
                for bits, cells in means.items() if method in cells
            ]
            if not points:
                continue
            ax.plot(
                [bits for bits, _ in points],
                [min(max(error, _GAIN), _LOSS) for _, error in points],
                color=colour, linestyle="-." if grouped else style, linewidth=1.4, label=method,
                marker="s" if grouped else ".", markersize=4 if grouped else None,
            )
        ax.set_xticks([int(bits) for bits in table.widths])
        ax.invert_xaxis()
        if number >= len(axes) - len(algorithms):
            ax.set_xlabel("Bits of a weight", fontsize=plotting.TEXT)
    figure.supylabel("Mean E (%), above zero is a loss", fontsize=plotting.TEXT)
    plotting.legend_below(
        figure, max(2, len(algorithms)),
        f"Losses above {_LOSS:g} %, and gains above {-_GAIN:g} %, are drawn there.",
    )
    return plotting.save_figure(figure, path)


def _without_groups(method: str) -> str:
    """Returns a method's name without its group size: both lines have one colour."""
    return method.partition(" ")[0]
