"""Blocks of results/ptq-methods.md: post-training methods beside each other."""

from collections.abc import Callable
import functools

from baseline.quantization import names
from baseline.quantization import recipes
from baseline.study import intervals
from baseline.study import method_rows
from baseline.study import method_tables
from baseline.study import rows as rows_lib
from docs.generators import prose
from docs.generators import tables
from docs.generators.policies import quantized_results
from docs.generators.training import reward_runs

_FOLDER = tables.BASELINE_RESULTS / "ptq_methods"
_SCALES = {"paper": "a scale for each tensor", "channel": "a scale for each output"}
_EACH = f"`{recipes.MINMAX}`"


@functools.cache
def found() -> tuple[method_tables.Table, ...]:
    """Returns the means by algorithm and granularity."""
    rows = rows_lib.read(str(_FOLDER / rows_lib.CSV_NAME), rows_lib.Row)
    of_methods = rows_lib.measured_rows(str(_FOLDER / method_rows.CSV_NAME), method_rows.MethodRow)
    return tuple(method_tables.tables(rows, list(of_methods.values())))


def loss(algo: str, method: str, bits: str) -> str:
    """Returns the mean E of a method with a scale for each tensor."""
    (table,) = (one for one in found() if (one.algo, one.granularity) == (algo, names.PAPER))
    return percent(table.cells[method, bits].mean)


def percent(mean: intervals.Interval) -> str:
    """Returns the mean E with one decimal, as in "-0.2 %"."""
    if mean.error is None:
        return "n/a"
    return f"{intervals.fixed(100 * mean.error, 1)} %"


def _holds(table: method_tables.Table, bits: str) -> bool:
    return any(
        one.bits == bits and 100 * (one.cell.mean.error or 0.0) <= one.limit
        for one in method_tables.limits(table)
    )


@prose.wrapped
def answer() -> str:
    """Returns the answer of the page."""
    sentences = ["A width's loss is the best method's mean over the agents of an algorithm."]
    for bits, limit in (("8", "the paper's figure"), ("4", "5 %"), ("3", "15 %")):
        within = {
            granularity: [
                table.algo.upper()
                for table in found()
                if table.granularity == granularity and _holds(table, bits)
            ]
            for granularity in (names.GRANULARITIES if bits != "8" else (names.PAPER,))
        }
        sentences += [
            f"With {bits} bits and {_SCALES[granularity]}, it is within {limit} for"
            f" {reward_runs.joined(algorithms) if algorithms else 'none of the algorithms'}."
            for granularity, algorithms in within.items()
        ]
    measured = {table.algo: table.agents for table in found()}
    told = [
        f"{algo.upper()} {measured.get(algo, 0)} of {quantized_results.agents_of(algo)}"
        for algo in quantized_results.ALGORITHMS
    ]
    sentences.append(f"These agents were measured: {', '.join(told)}.")
    return f"**Answer.** {' '.join(sentences)}"


def _table(granularity: str) -> str:
    of_granularity = [table for table in found() if table.granularity == granularity]
    widths = sorted(
        {bits for table in of_granularity for bits in table.widths}, key=rows_lib.width_order
    )
    lines = []
    for table in of_granularity:
        least = {bits: method_tables.best(table, bits) for bits in widths}
        of_minmax = [table.cells.get((recipes.MINMAX, bits)) for bits in widths]
        head = f"{table.algo.upper()} ({table.agents} agents)"
        lines += [
            [head, _EACH, *(percent(cell.mean) if cell else "–" for cell in of_minmax)],
            ["", "best", *(percent(one[1].mean) if one else "–" for one in least.values())],
            ["", "which", *(f"`{one[0]}`" if one else "–" for one in least.values())],
        ]
    return tables.table(["Algorithm", "Method", *(f"{b} bits" for b in widths)], lines, 2)


def limits() -> str:
    """Returns a table of the limits, and whether they hold."""
    lines = []
    for one in (limit for table in found() for limit in method_tables.limits(table)):
        lines.append([
            one.table.algo.upper(), _SCALES[one.table.granularity], one.bits, f"{one.limit:g} %",
            f"`{one.method}`", one.cell.mean.text(), one.verdict,
        ])
    head = ["Algorithm", "Scales", "Bits", "Limit", "Best method", "Its mean E", "Limit is"]
    return tables.table(head, lines, 2)


def advice() -> str:
    """Returns a table of what `distill` loses, beside `minmax` and `auto`.

    Means over some of an algorithm's agents are left out.
    """
    methods = recipes.MINMAX, recipes.AUTO, recipes.DISTILL
    lines = []
    for table in found():
        for bits in table.widths:
            cells = method_tables.of_all_agents(table, bits)
            if recipes.DISTILL in cells:
                means = (percent(cells[one].mean) if one in cells else "–" for one in methods)
                lines.append([table.algo.upper(), _SCALES[table.granularity], bits, *means])
    head = ["Algorithm", "Scales", "Bits", *(f"`{one}`" for one in methods)]
    return tables.table(head, lines, 2)


def methods() -> str:
    """Returns a list of the methods that were measured."""
    names_of = dict.fromkeys(method for table in found() for method in table.methods)
    return "\n".join(f"- `{method}`" for method in names_of)


BLOCKS: dict[str, Callable[[], str]] = {
    "answer": answer, "tensor": functools.partial(_table, names.PAPER),
    "channel": functools.partial(_table, "channel"), "limits": limits, "methods": methods,
    "advice": advice,
}
