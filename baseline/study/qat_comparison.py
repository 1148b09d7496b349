"""Compares QAT with PTQ and with full precision, width by width: numbers, no text.

A file may hold several kinds of trainings and evaluations of one pair of algorithm and environment.
A study takes one of each, since only rows of equal starts and equally long trainings can be
compared. Everything is a mean over training seeds. Comparisons are paired: they use the training
seeds that both sides have, and equal episode starts. Imports numpy only.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import NamedTuple

import numpy as np

from baseline.quantization import names
from baseline.study import intervals
from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from baseline.study import sweeps as sweeps_lib
from baseline.study.qat_rows import TrainedRow

QAT, PTQ, NEITHER, ONE_TRAINING = "QAT", "PTQ", "no difference shown", "one training"


class Kind(NamedTuple):
    """A way to quantize, whatever the width; see `qat_rows.TrainedRow`.

    Attributes:
      scheme: "weights" or "weights+activations".
      quant_delay: environment steps before quantization started; None: PTQ.
      ranges: see `qat_rows.TrainedRow`.
      input_bits: bits of observations in agents of 8 bits and less; None: not quantized.
      output: whether the policy's output is quantized, with the agent's own bits.
      granularity: which weights share a range.
      widths: bits that differ from the weights'.
    """

    scheme: str
    quant_delay: int | None
    ranges: str
    input_bits: int | None
    output: bool
    granularity: str = names.PAPER
    widths: str = ""

    @property
    def name(self) -> str:
        """Names what tells sweeps of one study apart, such as "frozen ranges"."""
        further = rows_lib.in_words(granularity=self.granularity)
        return f"{self.ranges} ranges{further}{f', {self.widths}' if self.widths else ''}"


@dataclasses.dataclass(frozen=True)
class TrainedSweep:
    """Rows of one kind by width, the widest first, and by seed of the training, sorted."""

    kind: Kind
    rows: Mapping[str, Mapping[int, TrainedRow]]

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(len(rows) for rows in self.rows.values())


@dataclasses.dataclass(frozen=True)
class Study(sweeps_lib.OfPair):
    """The trainings of one pair under one evaluation.

    Attributes:
      control: rows at full precision by seed of the training, sorted; not empty.
      qat: a sweep for each way to treat ranges, sorted by name; not empty.
      ptq: the controls' agents quantized after training; None: there is none.
      left_out: number of the pair's other rows, which have other kinds or evaluations.
    """

    control: Mapping[int, TrainedRow]
    qat: Sequence[TrainedSweep]
    ptq: TrainedSweep | None
    left_out: int

    @property
    def any_control(self) -> TrainedRow:
        """A control's row, for the columns in which all rows agree."""
        return next(iter(self.control.values()))

    @property
    def train_seeds(self) -> list[int]:
        """The seeds of all trainings, sorted."""
        seeds = set(self.control)
        for sweep in self.qat:
            seeds |= {seed for rows in sweep.rows.values() for seed in rows}
        return sorted(seeds)


def studies(rows: Sequence[TrainedRow]) -> list[Study]:
    """Returns a study for each pair of algorithm and environment that has one, sorted.

    A study needs QAT rows with a control: trained for as many steps with the same
    hyper-parameters, and evaluated with the same seeds and episodes. The group with most rows
    counts, then the last. Choices within the group:

    - QAT: the kind with most rows, then the last. The best kind of other ranges, granularity or
      widths joins it where it has as many rows.
    - PTQ: rows of the same scheme and granularity. Kinds whose observations and output are
      quantized as QAT's come first, then kinds with most rows, then the last.
    """
    chosen = []
    for algo, env in sorted({(row.algo, row.env) for row in rows}):
        of_pair = rows_lib.find(rows, algo=algo, env=env)
        best: Study | None = None
        for evaluation in _evaluations(of_pair):
            same = rows_lib.find(of_pair, **evaluation)
            control = _by_seed(rows_lib.find(same, method=qat_rows.CONTROL))
            qat = _qat_sweeps(rows_lib.find(same, method=qat_rows.QAT))
            if control and qat:
                ptq = _ptq_sweep(rows_lib.find(same, method=qat_rows.PTQ), qat[0].kind)
                taken = len(control) + sum(sweep.count for sweep in qat)
                left_out = len(of_pair) - taken - (ptq.count if ptq else 0)
                if best is None or left_out <= best.left_out:
                    best = Study(algo, env, control, qat, ptq, left_out)
        if best is not None:
            chosen.append(best)
    return chosen


def _evaluations(rows: Sequence[TrainedRow]) -> list[dict[str, str | int]]:
    """Returns the columns that rows must share to be compared, by their last appearance."""
    names = ("seeds", "episodes", "train_steps", "hyperparams")
    found = dict.fromkeys(
        tuple(getattr(row, name) for name in names) for row in reversed(rows)
    )
    return [dict(zip(names, values, strict=True)) for values in reversed(found)]


def _qat_sweeps(rows: Sequence[TrainedRow]) -> list[TrainedSweep]:
    """Returns the fullest sweep for each treatment of ranges, where none is fuller."""
    best: dict[str, TrainedSweep] = {}
    for sweep in _sweeps(rows):
        name = sweep.kind.name
        if name not in best or sweep.count >= best[name].count:
            best[name] = sweep
    most = max((sweep.count for sweep in best.values()), default=0)
    return [best[name] for name in sorted(best) if best[name].count == most]


def _ptq_sweep(rows: Sequence[TrainedRow], qat: Kind) -> TrainedSweep | None:
    same = qat.scheme, qat.granularity
    found = [
        sweep for sweep in _sweeps(rows) if (sweep.kind.scheme, sweep.kind.granularity) == same
    ]

    def preference(sweep: TrainedSweep) -> tuple[bool, int]:
        ends = sweep.kind.input_bits, sweep.kind.output
        return ends == (qat.input_bits, qat.output), sweep.count

    best = max(map(preference, found), default=None)
    return [sweep for sweep in found if preference(sweep) == best][-1] if found else None


def _sweeps(rows: Sequence[TrainedRow]) -> list[TrainedSweep]:
    """Returns the rows by kind, in order of the kinds' last appearance."""
    kinds = dict.fromkeys(_kind(row) for row in reversed(rows))
    found = []
    for kind in reversed(kinds):
        of_kind = [row for row in rows if _kind(row) == kind]
        widths = sorted({row.bits for row in of_kind}, key=rows_lib.width_order)
        by_width = {bits: _by_seed(_of_last_input(of_kind, bits)) for bits in widths}
        found.append(TrainedSweep(kind, by_width))
    return found


def _kind(row: TrainedRow) -> Kind:
    # Observations of wider agents take their width by default, which makes no other kind.
    default = max(int(row.bits), qat_rows.INPUT_BITS)
    input_bits = qat_rows.INPUT_BITS if row.input_bits == default else row.input_bits
    return Kind(
        row.scheme, row.quant_delay, row.ranges, input_bits, row.output_bits is not None,
        row.granularity, row.widths,
    )


def _of_last_input(rows: Sequence[TrainedRow], bits: str) -> Sequence[TrainedRow]:
    """Returns the rows of a width that have the last one's --input_bits."""
    of_width = rows_lib.find(rows, bits=bits)
    return rows_lib.find(of_width, input_bits=of_width[-1].input_bits)


def _by_seed(rows: Sequence[TrainedRow]) -> dict[int, TrainedRow]:
    found = {row.train_seed: row for row in rows}
    return {seed: found[seed] for seed in sorted(found)}


class Cell(NamedTuple):
    """The rewards of one method's trainings at one width.

    Attributes:
      mean: mean return over all episodes.
      std: sample standard deviation of the trainings' means; None for a single training.
      seed_means: mean return of each training.
      seeds: seeds of these trainings, in the same order.
    """

    mean: float
    std: float | None
    seed_means: tuple[float, ...]
    seeds: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """QAT and PTQ at one width.

    Attributes:
      bits: the width.
      qat: QAT's rewards; None: not measured.
      ptq: PTQ's rewards; None: not measured.
      seeds: seeds of the trainings that both have.
      difference: QAT's mean return less PTQ's over these trainings, with its interval; None
        without any.
      qat_error: E = (fp32 - QAT) / |fp32| over the trainings that QAT and the controls share; None
        where they share none, or where fp32's mean may be zero.
      ptq_error: the same for PTQ.
      num_bytes: size of the packed parameters.
    """

    bits: str
    qat: Cell | None
    ptq: Cell | None
    seeds: tuple[int, ...]
    difference: intervals.Interval | None
    qat_error: float | None
    ptq_error: float | None
    num_bytes: int

    @property
    def better(self) -> str | None:
        """The method that the interval shows to be better; None: there is nothing to compare.

        A single training compares two agents, not two methods.
        """
        if self.difference is None:
            return None
        if len(self.seeds) < 2:
            return ONE_TRAINING
        low, high = self.difference.low, self.difference.high
        if low is None or high is None or low <= 0 <= high:
            return NEITHER
        return QAT if low > 0 else PTQ


class Summary(NamedTuple):
    """All widths of a comparison: see `sweeps.narrowest` for fewest bits, the others are counts."""

    qat_fewest: str | None
    ptq_fewest: str | None
    compared: int
    at_least: int
    qat_better: int
    ptq_better: int


def cell(rows: Mapping[int, TrainedRow]) -> Cell:
    """Returns the rewards of trainings.

    Args:
      rows: rows of one method and width, by seed of the training; at least one.
    """
    means = tuple(float(np.mean(row.returns)) for row in rows.values())
    std = float(np.std(means, ddof=1)) if len(means) > 1 else None
    return Cell(float(np.mean(means)), std, means, tuple(rows))


def may_be_zero(study: Study) -> bool:
    """Returns whether the 95 % interval of fp32's mean includes zero: then E means nothing."""
    fp32 = intervals.mean_over_trainings(_returns(study.control, study.control))
    if fp32.low is None or fp32.high is None:
        return intervals.relative_error(study.any_control.returns, [0.0]) is None
    return fp32.low <= 0 <= fp32.high


def compare(study: Study, sweep: TrainedSweep) -> list[Comparison]:
    """Returns QAT against PTQ at every width that either has, the widest first."""
    ptq = study.ptq.rows if study.ptq else {}
    without_share = may_be_zero(study)
    found = []
    for bits in sorted({*sweep.rows, *ptq}, key=rows_lib.width_order):
        qat_side, ptq_side = sweep.rows.get(bits, {}), ptq.get(bits, {})
        shared = tuple(seed for seed in qat_side if seed in ptq_side)
        difference = _returns(qat_side, shared) - _returns(ptq_side, shared)
        found.append(
            Comparison(
                bits,
                cell(qat_side) if qat_side else None,
                cell(ptq_side) if ptq_side else None,
                shared,
                intervals.mean_over_trainings(difference) if shared else None,
                None if without_share else _error(study.control, qat_side),
                None if without_share else _error(study.control, ptq_side),
                next(iter((qat_side or ptq_side).values())).bytes,
            )
        )
    return found


def summary(comparisons: Sequence[Comparison]) -> Summary:
    """Returns the counts over all widths; see `Summary`."""
    qat = {one.bits: one.qat_error for one in comparisons if one.qat}
    ptq = {one.bits: one.ptq_error for one in comparisons if one.ptq}
    differences = [one.difference.error or 0.0 for one in comparisons if one.difference]
    return Summary(
        sweeps_lib.narrowest(qat),
        sweeps_lib.narrowest(ptq),
        len(differences),
        sum(difference >= 0 for difference in differences),
        sum(one.better == QAT for one in comparisons),
        sum(one.better == PTQ for one in comparisons),
    )


def _returns(rows: Mapping[int, TrainedRow], seeds: Iterable[int]) -> np.ndarray:
    """Returns the returns of these trainings, [trainings, episodes]."""
    return np.array([rows[seed].returns for seed in seeds])


def _error(
    control: Mapping[int, TrainedRow], quantized: Mapping[int, TrainedRow]
) -> float | None:
    shared = [seed for seed in quantized if seed in control]
    if not shared:
        return None
    return intervals.relative_error(
        _returns(control, shared).ravel(), _returns(quantized, shared).ravel()
    )
