"""The mean of E over the agents of one algorithm, and whether it reaches the paper's figure."""

from collections.abc import Sequence
import statistics
from typing import NamedTuple

from baseline.study import intervals
from baseline.study import selection


class MeanError(NamedTuple):
    """The mean of E over the agents of a table at one precision.

    Attributes:
      fixed: with the interval over episodes; None: no agent has one.
      drawn: the same with the agents drawn as well.
      median: of the same agents' E, to tell whether one of them makes the mean; 0 without any.
      agents: how many are in it.
      left_out: 'environment (reason)' of those that are not.
    """

    fixed: intervals.Interval | None
    drawn: intervals.Interval | None
    median: float
    agents: int
    left_out: list[str]


def mean_error(sweeps: Sequence[selection.Sweep], scheme: str, bits: str) -> MeanError:
    """Returns the mean of E at one precision.

    An agent without an interval of E is left out: where fp32's own mean may be zero, E can be
    anything, and would be the mean.

    Args:
      sweeps: the agents.
      scheme: of the rows.
      bits: of the rows.
    """
    pairs, found, left_out = [], [], []
    for sweep in sweeps:
        row = sweep.quantized.get(scheme, {}).get(bits)
        if row is None:
            continue
        interval = intervals.paired(sweep.fp32.returns, row.returns)
        if interval.error is None or interval.reason:
            left_out.append(f"{sweep.shown_env} ({interval.reason})")
        else:
            pairs.append((sweep.fp32.returns, row.returns))
            found.append(interval.error)
    if not pairs:
        return MeanError(None, None, 0.0, 0, left_out)
    return MeanError(
        intervals.mean_over_agents(pairs),
        intervals.mean_over_agents(pairs, resample_agents=True),
        statistics.median(found),
        len(pairs),
        left_out,
    )


def verdict(mean: intervals.Interval, published: float) -> str:
    """Returns whether a mean error reaches the paper's.

    Args:
      mean: with its interval, as fractions.
      published: the paper's mean error in percent.
    """
    if mean.low is None or mean.high is None:
        return "not to be said without an interval"
    if 100 * mean.high <= published:
        return "reached: all of the interval is at or below it"
    if 100 * mean.low <= published:
        return "reached: the interval includes it"
    return "not reached: all of the interval is above it"
