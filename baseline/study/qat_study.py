"""Puts rows of trainings together to studies: QAT and PTQ against their controls, by width.

A file may hold several kinds of trainings and evaluations of one pair of algorithm and environment.
A study takes one of each, since only rows of equal starts and equally long trainings can be
compared. Imports no framework.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import NamedTuple

from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from baseline.study import selection
from baseline.study.qat_rows import TrainedRow


class Kind(NamedTuple):
    """How agents were quantized, but for the width; see `qat_rows.TrainedRow`.

    Attributes:
      scheme: "weights" or "weights+activations".
      quant_delay: environment steps before quantization started; None: PTQ.
      ranges: "frozen", "moving", or of PTQ `qat_rows.calibrated`.
      input_bits: of observations, of agents of 8 bits and less; None: not quantized.
      output: whether the policy's output is quantized (with the agent's own bits).
    """

    scheme: str
    quant_delay: int | None
    ranges: str
    input_bits: int | None
    output: bool


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Rows of one kind.

    Attributes:
      kind: of the rows.
      rows: by width, the widest first; there by seed of the training, sorted.
    """

    kind: Kind
    rows: Mapping[str, Mapping[int, TrainedRow]]

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(len(rows) for rows in self.rows.values())


@dataclasses.dataclass(frozen=True)
class Study:
    """What was trained of one pair, under one evaluation.

    Attributes:
      control: rows at full precision by seed of the training, sorted; not empty.
      qat: a sweep for each way to treat ranges, frozen before moving; not empty.
      ptq: the controls' agents quantized after training; None: there is none.
      left_out: number of the pair's other rows, of other kinds or evaluations.
    """

    control: Mapping[int, TrainedRow]
    qat: Sequence[Sweep]
    ptq: Sweep | None
    left_out: int

    @property
    def any_control(self) -> TrainedRow:
        """A control's row, for what all rows have in common."""
        return next(iter(self.control.values()))

    @property
    def algo(self) -> str:
        """The algorithm."""
        return self.any_control.algo

    @property
    def env(self) -> str:
        """The environment, as in the file."""
        return self.any_control.env

    @property
    def shown_env(self) -> str:
        """The environment that was played."""
        return selection.shown_env(self.env)

    @property
    def train_seeds(self) -> list[int]:
        """Of all trainings, sorted."""
        seeds = set(self.control)
        for sweep in self.qat:
            seeds |= {seed for rows in sweep.rows.values() for seed in rows}
        return sorted(seeds)


def studies(
    rows: Sequence[TrainedRow], granularity: str = "paper", rounding: str = "nearest"
) -> list[Study]:
    """Returns a study for each pair of algorithm and environment that has one, sorted.

    There is one where QAT rows have a control: trained for as many steps with the same
    hyper-parameters, and evaluated with the same seeds and episodes. Of several such groups of a
    pair, the one of which most rows are taken, and of those the last. Within it:

    - QAT: the kind with most rows, of those the last; and the best kind of the other `ranges`
      as well, where it has as many rows.
    - PTQ: of the same scheme, and where there are such rows with observations and output
      quantized alike; of several kinds again the one with most rows, of those the last.

    Args:
      rows: as `rows.read` gives them.
      granularity: of the quantized rows.
      rounding: of the quantized rows.
    """
    chosen = []
    for algo, env in sorted({(row.algo, row.env) for row in rows}):
        of_pair = rows_lib.find(rows, algo=algo, env=env)
        candidates = []
        for evaluation in _evaluations(of_pair):
            same = rows_lib.find(of_pair, **evaluation)
            usable = [
                row for row in same
                if row.method == qat_rows.CONTROL
                or (row.granularity, row.rounding) == (granularity, rounding)
                and row.bits.isdecimal()
            ]
            control = _by_seed(rows_lib.find(usable, method=qat_rows.CONTROL))
            qat = _qat_sweeps(rows_lib.find(usable, method=qat_rows.QAT))
            if control and qat:
                ptq = _ptq_sweep(rows_lib.find(usable, method=qat_rows.PTQ), qat[0].kind)
                candidates.append(_study(control, qat, ptq, len(of_pair)))
        if candidates:
            # The fewer rows are left out, the more are in; `min` would keep the first of equals.
            least = min(study.left_out for study in candidates)
            chosen.append([study for study in candidates if study.left_out == least][-1])
    return chosen


def _study(
    control: Mapping[int, TrainedRow], qat: Sequence[Sweep], ptq: Sweep | None, num_rows: int
) -> Study:
    taken = len(control) + sum(sweep.count for sweep in qat) + (ptq.count if ptq else 0)
    return Study(control, qat, ptq, num_rows - taken)


def _evaluations(rows: Sequence[TrainedRow]) -> list[dict[str, str | int]]:
    """Returns what rows must share to be compared, in order of its last appearance."""
    names = ("seeds", "episodes", "train_steps", "hyperparams")
    found = dict.fromkeys(
        tuple(getattr(row, name) for name in names) for row in reversed(rows)
    )
    return [dict(zip(names, values, strict=True)) for values in reversed(found)]


def _qat_sweeps(rows: Sequence[TrainedRow]) -> list[Sweep]:
    """Returns the fullest sweep for each treatment of ranges, where none is fuller."""
    best: dict[str, Sweep] = {}
    for sweep in _sweeps(rows):
        ranges = sweep.kind.ranges
        if ranges not in best or sweep.count >= best[ranges].count:
            best[ranges] = sweep
    most = max((sweep.count for sweep in best.values()), default=0)
    return [best[ranges] for ranges in sorted(best) if best[ranges].count == most]


def _ptq_sweep(rows: Sequence[TrainedRow], qat: Kind) -> Sweep | None:
    found = [sweep for sweep in _sweeps(rows) if sweep.kind.scheme == qat.scheme]

    def preference(sweep: Sweep) -> tuple[bool, int]:
        ends = sweep.kind.input_bits, sweep.kind.output
        return ends == (qat.input_bits, qat.output), sweep.count

    best = max(map(preference, found), default=None)
    return [sweep for sweep in found if preference(sweep) == best][-1] if found else None


def _sweeps(rows: Sequence[TrainedRow]) -> list[Sweep]:
    """Returns the rows by kind, in order of the kinds' last appearance."""
    kinds = dict.fromkeys(_kind(row) for row in reversed(rows))
    found = []
    for kind in reversed(kinds):
        of_kind = [row for row in rows if _kind(row) == kind]
        widths = sorted({row.bits for row in of_kind}, key=rows_lib.width_order)
        by_width = {bits: _by_seed(_of_last_input(of_kind, bits)) for bits in widths}
        found.append(Sweep(kind, by_width))
    return found


def _kind(row: TrainedRow) -> Kind:
    # Wider agents, whose observations take their own width, are of one kind with the others.
    default = max(int(row.bits), qat_rows.INPUT_BITS)
    input_bits = qat_rows.INPUT_BITS if row.input_bits == default else row.input_bits
    return Kind(
        row.scheme, row.quant_delay, row.ranges, input_bits, output=row.output_bits is not None
    )


def _of_last_input(rows: Sequence[TrainedRow], bits: str) -> Sequence[TrainedRow]:
    """Returns rows of a width: where --input_bits was given, too, of what was asked for last."""
    of_width = rows_lib.find(rows, bits=bits)
    return rows_lib.find(of_width, input_bits=of_width[-1].input_bits)


def _by_seed(rows: Sequence[TrainedRow]) -> dict[int, TrainedRow]:
    found = {row.train_seed: row for row in rows}
    return {seed: found[seed] for seed in sorted(found)}
