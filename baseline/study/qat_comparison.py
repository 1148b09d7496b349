"""Compares QAT with PTQ and with full precision, width by width: numbers, no text.

Everything is of means over training seeds. What is compared is paired: of the training seeds that
both sides have, and of equal episode starts. Imports numpy only.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import NamedTuple

import numpy as np

from baseline.study import intervals
from baseline.study import qat_study
from baseline.study import rows as rows_lib
from baseline.study import selection
from baseline.study.qat_rows import TrainedRow

QAT, PTQ, NEITHER, ONE_TRAINING = "QAT", "PTQ", "no difference shown", "one training"


class Cell(NamedTuple):
    """What the trainings of one method earned at one width.

    Attributes:
      mean: return over all episodes.
      std: sample standard deviation of the trainings' means; None of a single training.
      seed_means: return of each training.
      seeds: of these trainings, in the same order.
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
      qat: None: not measured.
      ptq: None: not measured.
      seeds: of the trainings that both have.
      difference: QAT's mean return less PTQ's over these, with its interval; None without any.
      qat_error: E = (fp32 - QAT) / |fp32| over the trainings that QAT and the controls share; None
        where that is none, or where fp32's mean may be zero.
      ptq_error: the same of PTQ.
      num_bytes: of the packed parameters.
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
        """Which one the interval shows to be better; None: there is nothing to compare.

        One training says something of two agents, and nothing of two methods.
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
    """The widths together.

    Attributes:
      qat_fewest: the narrowest width at which, as at all wider ones that were measured, E is at
        most `selection.TOLERATED_LOSS`; None: not even the widest.
      ptq_fewest: the same of PTQ.
      compared: number of widths that QAT and PTQ share.
      at_least: at how many of them QAT's mean is not below PTQ's.
      qat_better: at how many of them QAT is shown to be better.
      ptq_better: at how many PTQ is.
    """

    qat_fewest: str | None
    ptq_fewest: str | None
    compared: int
    at_least: int
    qat_better: int
    ptq_better: int


def cell(rows: Mapping[int, TrainedRow]) -> Cell | None:
    """Returns what trainings earned, None without any.

    Args:
      rows: of one method and width, by seed of the training.
    """
    if not rows:
        return None
    means = tuple(float(np.mean(row.returns)) for row in rows.values())
    std = float(np.std(means, ddof=1)) if len(means) > 1 else None
    return Cell(float(np.mean(means)), std, means, tuple(rows))


def may_be_zero(study: qat_study.Study) -> bool:
    """Returns whether the 95 % interval of fp32's mean includes zero: then E means nothing."""
    fp32 = intervals.mean_over_trainings(_returns(study.control, study.control))
    if fp32.low is None or fp32.high is None:
        return intervals.relative_error(study.any_control.returns, [0.0]) is None
    return fp32.low <= 0 <= fp32.high


def compare(study: qat_study.Study, sweep: qat_study.Sweep) -> list[Comparison]:
    """Returns QAT against PTQ at every width that either has, the widest first.

    Args:
      study: with the controls and PTQ.
      sweep: of QAT, of that study.
    """
    ptq = study.ptq.rows if study.ptq else {}
    without_share = may_be_zero(study)
    found = []
    for bits in sorted({*sweep.rows, *ptq}, key=rows_lib.width_order):
        sides = sweep.rows.get(bits, {}), ptq.get(bits, {})
        shared = tuple(seed for seed in sides[0] if seed in sides[1])
        difference = None
        if shared:
            returns = [_returns(side, shared) for side in sides]
            difference = intervals.mean_over_trainings(returns[0] - returns[1])
        lost = [None if without_share else _error(study.control, side) for side in sides]
        sizes = [row.bytes for side in sides for row in side.values()]
        found.append(
            Comparison(bits, cell(sides[0]), cell(sides[1]), shared, difference, *lost, sizes[0])
        )
    return found


def summary(comparisons: Sequence[Comparison]) -> Summary:
    """Returns what the widths say together; see `Summary`."""
    qat = {one.bits: one.qat_error for one in comparisons if one.qat}
    ptq = {one.bits: one.ptq_error for one in comparisons if one.ptq}
    differences = [one.difference.error for one in comparisons if one.difference]
    return Summary(
        selection.narrowest(qat),
        selection.narrowest(ptq),
        len(differences),
        sum(difference >= 0 for difference in differences),
        sum(one.better == QAT for one in comparisons),
        sum(one.better == PTQ for one in comparisons),
    )


def _returns(rows: Mapping[int, TrainedRow], seeds: Sequence[int]) -> np.ndarray:
    """Returns [trainings, episodes]."""
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
