"""Blocks of results/qat.md: agents trained with fake quantization, beside PTQ of the same seeds."""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import statistics
from typing import NamedTuple

from baseline.study import intervals
from baseline.study import qat_comparison
from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from baseline.study import sweeps as sweeps_lib
from docs.generators import tables

_FOLDER = tables.BASELINE_RESULTS / "qat"
# Losses up to here count as kept, in percent; DDPG's pair keeps its reward by the second one only.
TOLERATED = 100 * sweeps_lib.TOLERATED_LOSS
WIDE = 8.0
_MOST_TIME = 1.3  # Our aim for a training's time, in that of a plain one.
_KINDS = {"watching": "before the delay", "frozen": "after it", "moving": "`--ranges moving`"}


class Cell(NamedTuple):
    """One pair of algorithm and environment at one width, mean over three trainings.

    Attributes:
      algo: algorithm.
      env: environment.
      bits: width.
      qat: mean return of agents trained with quantization.
      ptq: mean return of the same seeds' fp32 agents, quantized after training.
      fp32: mean return of these agents in fp32.
      difference: qat - ptq, and the ends of its interval.
      error_qat: share of fp32's return that QAT loses, in percent.
      error_ptq: the same for PTQ.
      better: the method that the interval shows to be better, as in `qat_comparison`.
    """

    algo: str
    env: str
    bits: int
    qat: float
    ptq: float
    fp32: float
    difference: tuple[float, float, float]
    error_qat: float
    error_ptq: float
    better: str


class Counts(NamedTuple):
    """The number of cells, and of those in which QAT is at least PTQ, better, or worse."""

    cells: int
    at_least: int
    qat_better: int
    ptq_better: int


@functools.cache
def cells() -> tuple[Cell, ...]:
    """Returns all cells of table.csv, pair by pair, the widest first."""
    return tuple(
        Cell(
            algo=row["algo"],
            env=row["env"],
            bits=int(row["bits"]),
            qat=float(row["qat_mean"]),
            ptq=float(row["ptq_mean"]),
            fp32=float(row["fp32_mean"]),
            difference=(
                float(row["difference"]), float(row["difference_low"]),
                float(row["difference_high"]),
            ),
            error_qat=float(row["error_qat"]),
            error_ptq=float(row["error_ptq"]),
            better=row["better"],
        )
        for row in tables.csv_rows(_FOLDER / "table.csv")
    )


def counts() -> Counts:
    """Returns how often QAT is at least as good as PTQ, and shown to be better or worse."""
    return Counts(
        len(cells()),
        sum(cell.difference[0] >= 0 for cell in cells()),
        sum(cell.better == qat_comparison.QAT for cell in cells()),
        sum(cell.better == qat_comparison.PTQ for cell in cells()),
    )


def pairs() -> list[tuple[str, str]]:
    """Returns the pairs of algorithm and environment."""
    return list(dict.fromkeys((cell.algo, cell.env) for cell in cells()))


def of_pair(pair: tuple[str, str]) -> list[Cell]:
    """Returns the cells of a pair, the widest first."""
    return [cell for cell in cells() if (cell.algo, cell.env) == pair]


def keeps(bits: int, tolerance: float = TOLERATED) -> list[tuple[str, str]]:
    """Returns the pairs whose QAT loses at most so many percent at all widths down to `bits`."""
    return [
        pair for pair in pairs()
        if all(cell.error_qat <= tolerance for cell in of_pair(pair) if cell.bits >= bits)
    ]


def named(pair: tuple[str, str]) -> str:
    """Returns a pair as text, for example "A2C on CartPole-v1"."""
    return f"{pair[0].upper()} on {pair[1]}"


def answer() -> str:
    """Returns the answer of the page."""
    found = counts()
    kept = len(keeps(5, WIDE))
    return (
        f"**Answer.** QAT's mean is at least PTQ's in {found.at_least} of {found.cells} cells, "
        f"shown to be better in {found.qat_better} and worse in {found.ptq_better}.\n"
        f"Down to 5 bits {kept} of {len(pairs())} pairs keep their reward within {WIDE:g} %, "
        f"and {len(keeps(5))} of them within {TOLERATED:g} %."
    )


def returns() -> str:
    """Returns mean returns of QAT and PTQ at every width."""
    rows = []
    for pair in pairs():
        found = of_pair(pair)
        digits = 0 if found[0].fp32 >= 100 else 1
        qat = [_marked(cell.qat, cell.better == qat_comparison.QAT, digits) for cell in found]
        ptq = [_marked(cell.ptq, cell.better == qat_comparison.PTQ, digits) for cell in found]
        fp32 = intervals.fixed(found[0].fp32, digits)
        rows += [[named(pair), "QAT", fp32, *qat], ["", "PTQ", "", *ptq]]
    head = ["Mean return, three trainings", "", "fp32"]
    head += [str(cell.bits) for cell in of_pair(pairs()[0])]
    return tables.table(head, rows, text_columns=2)


def _marked(value: float, bold: bool, digits: int) -> str:
    text = intervals.fixed(value, digits)
    return f"**{text}**" if bold else text


def shown() -> str:
    """Returns the cells in which one method is shown to be better."""
    rows = []
    for cell in cells():
        if cell.better in (qat_comparison.QAT, qat_comparison.PTQ):
            mean, low, high = (intervals.fixed(end, 1) for end in cell.difference)
            rows.append([
                named((cell.algo, cell.env)), str(cell.bits), f"{cell.qat:.1f}",
                f"{cell.ptq:.1f}", f"{mean} [{low}, {high}]", cell.better,
            ])
    head = ["Pair", "Bits", "QAT", "PTQ", "QAT - PTQ [95 % interval]", "Better"]
    return tables.table(head, rows)


def fewest() -> str:
    """Returns for each pair the fewest bits that keep its reward, and the settings of training."""
    rows = []
    settings = {
        (row["algo"], row["env"]): row for row in tables.csv_rows(_FOLDER / "table.csv")
    }
    for pair in pairs():
        sides = []
        for tolerance in (TOLERATED, WIDE):
            for column in ("error_qat", "error_ptq"):
                losses = {
                    str(cell.bits): getattr(cell, column) / tolerance * sweeps_lib.TOLERATED_LOSS
                    for cell in of_pair(pair)
                }
                sides.append(sweeps_lib.narrowest(losses) or "none")
        row = settings[pair]
        replaced = row["hyperparams"].replace(":", " ").replace("_", " ")
        steps = f"{tables.number(int(row['train_steps']))}{f', {replaced}' * bool(replaced)}"
        rows.append([named(pair), steps, *sides])
    head = ["Pair", "Training steps", f"QAT, {TOLERATED:g} %", f"PTQ, {TOLERATED:g} %",
            f"QAT, {WIDE:g} %", f"PTQ, {WIDE:g} %"]
    return tables.table(head, rows, text_columns=2)


@functools.cache
def _trained() -> tuple[qat_rows.TrainedRow, ...]:
    return tuple(rows_lib.read(str(_FOLDER / qat_rows.CSV_NAME), qat_rows.TrainedRow))


def _seeds(algo: str, env: str, method: str, bits: str) -> list[float]:
    """Returns the mean return of each training, by seed."""
    found = rows_lib.find(_trained(), algo=algo, env=env, method=method, bits=bits)
    return [row.mean for row in sorted(found, key=lambda row: row.train_seed)]


_TELLING = (
    ("a2c", "CartPole-v1", "2"), ("ppo", "CartPole-v1", "2"), ("dqn", "CartPole-v1", "8"),
    ("a2c", "MountainCarContinuous-v0", "8"), ("ddpg", "MountainCarContinuous-v0", "8"),
    ("ppo", "MountainCarContinuous-v0", "6"),
)


def by_seed() -> str:
    """Returns mean returns training by training where single agents decide."""
    rows = []
    for algo, env, bits in _TELLING:
        sides = [
            _listed(_seeds(algo, env, method, width))
            for method, width in ((qat_rows.CONTROL, "fp32"), (qat_rows.QAT, bits),
                                  (qat_rows.PTQ, bits))
        ]
        rows.append([named((algo, env)), bits, *sides])
    head = ["Pair", "Bits", "fp32, seeds 0, 1, 2", "QAT, seeds 0, 1, 2", "PTQ, seeds 0, 1, 2"]
    return tables.table(head, rows)


def _listed(values: Sequence[float]) -> str:
    return ", ".join(intervals.fixed(value, 0) for value in values)


def speed() -> str:
    """Returns what training with quantization costs, in the time of plain training."""
    measured = tables.read_json(_FOLDER / "qat_speed.json")
    rows = []
    for one in measured["measured"]:
        plain = one["seconds"]["plain"]
        rate = one["steps"] / statistics.median(plain)
        cells_of = []
        for kind in _KINDS:
            ratios = [a / b for a, b in zip(one["seconds"][kind], plain, strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
            missed = " **missed**" if middle > _MOST_TIME else ""
            cells_of.append(f"{middle:.2f} [{low:.2f}, {high:.2f}]{missed}")
        rows.append([named((one["algo"], one["env"])), tables.number(rate), *cells_of])
    head = ["Training with 8 bits", "plain, steps/s", *_KINDS.values()]
    return tables.table(head, rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "answer": answer, "returns": returns, "shown": shown, "fewest": fewest, "by_seed": by_seed,
    "speed": speed,
}
