"""Blocks of results/qat-few-bits: two estimators of quantization-aware training at 4 to 2 bits."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import statistics

from baseline.study import intervals
from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from docs.generators import tables
from docs.generators.policies import qat_results

_FOLDER = tables.BASELINE_RESULTS / "qat_few_bits"
_CONTROL, _PTQ = "fp32", "PTQ"
_ESTIMATORS = {qat_rows.FROZEN: "STE", qat_rows.LEARNED: "LSQ"}
_WIDTHS = ("4", "3", "2")
# Mean returns of equally long trainings by method and width, in the order of their seeds.
_OfPair = Mapping[str, Mapping[str, Sequence[float]]]


@functools.cache
def _pairs(csv_name: str = qat_rows.CSV_NAME) -> Mapping[str, _OfPair]:
    """Returns the trainings by the name of their pair, with the number of their steps."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    rows = rows_lib.read(str(_FOLDER / csv_name), qat_rows.TrainedRow)
    for row in sorted(rows, key=lambda row: row.train_seed):
        pair = f"{qat_results.named((row.algo, row.env))}, {tables.number(row.train_steps)} steps"
        method = found.setdefault(pair, {}).setdefault(_method(row), {})
        method.setdefault(row.bits, []).append(row.mean)
    return found


def _method(row: qat_rows.TrainedRow) -> str:
    if row.method == qat_rows.CONTROL:
        return _CONTROL
    if row.method == qat_rows.PTQ:
        return ", ".join([_PTQ, *row.ranges.split("-", 2)[2:]])  # See `qat_rows.calibrated`.
    ranges, _, percentile = row.ranges.partition("-")
    parts = [_ESTIMATORS[ranges], f"{percentile} %" * bool(percentile), row.widths]
    return ", ".join(part.replace(":", " ") for part in parts if part)


def _is_ptq(method: str) -> bool:
    return method.startswith(_PTQ)


def _fp32(of_pair: _OfPair) -> Sequence[float]:
    return of_pair[_CONTROL][_CONTROL]


def _kept(of_pair: _OfPair, method: str, bits: str) -> bool:
    """Tells whether a mean is at least fp32's, less the deviation of fp32's trainings."""
    fp32 = _fp32(of_pair)
    least = statistics.mean(fp32) - statistics.stdev(fp32)
    return statistics.mean(of_pair[method][bits]) >= least


def _answer() -> str:
    """Returns the best training of each pair and width, beside PTQ and fp32."""
    lines = []
    for name, of_pair in _pairs().items():
        for bits in _WIDTHS:
            means = {
                method: statistics.mean(found[bits])
                for method, found in of_pair.items() if bits in found
            }
            if means:
                ptq = max(means.pop(method) for method in list(means) if _is_ptq(method))
                best = max(means, key=lambda method: means[method])
                numbers = (means[best], ptq, statistics.mean(_fp32(of_pair)))
                lines.append([name, bits, best, *(f"{number:.1f}" for number in numbers)])
    head = ["Training", "Bits", "The best one", "Its return", "Best PTQ", _CONTROL]
    return "**Answer.** These trainings returned most:\n\n" + tables.table(head, lines, 3)


def _table(
    text: Callable[[Sequence[float]], str], pairs: Mapping[str, _OfPair] | None = None
) -> str:
    """Returns what `text` makes of the trainings' returns, in bold where the reward is kept."""
    lines = []
    for name, of_pair in (_pairs() if pairs is None else pairs).items():
        control = text(_fp32(of_pair))
        for method in sorted(set(of_pair) - {_CONTROL}, key=lambda one: (_is_ptq(one), one)):
            cells = []
            for bits in _WIDTHS:
                cell = text(of_pair[method][bits]) if bits in of_pair[method] else ""
                cells.append(f"**{cell}**" if cell and _kept(of_pair, method, bits) else cell)
            lines.append([name, method, control, *cells])
            name = control = ""
    return tables.table(["Return", "", _CONTROL, *_WIDTHS], lines, text_columns=2)


def _summary(means: Sequence[float]) -> str:
    numbers = statistics.mean(means), statistics.stdev(means)
    return " ± ".join(intervals.fixed(number, 1) for number in numbers)


def _by_seed() -> str:
    return _table(lambda means: ", ".join(intervals.fixed(mean, 0) for mean in means))


BLOCKS = {
    "answer": _answer, "returns": lambda: _table(_summary), "by_seed": _by_seed,
    "distilled": lambda: _table(_summary, _pairs("distilled.csv")),
}
