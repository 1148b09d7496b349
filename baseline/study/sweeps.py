"""Joins rows of results to sweeps: the rewards of one agent at every precision.

A file may hold several evaluations of one agent, with other seeds or numbers of episodes. A sweep
takes one of them, since only rows of equal starts can be compared.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import statistics
from typing import NamedTuple
from typing import TypeVar

from baseline.quantization import names
from baseline.study import intervals
from baseline.study import rows as rows_lib
from baseline.study.rows import Row
from baseline.tasks import environments

# Verdicts on a figure beside the paper's.
REACHED, MISSED, OPEN = "reached", "not reached", "cannot be said"
# Loss of reward that counts as none: E, as a fraction.
TOLERATED_LOSS = 0.02


@dataclasses.dataclass(frozen=True)
class OfPair:
    """Results of one algorithm in one environment, named as in the file."""

    algo: str
    env: str

    @property
    def shown_env(self) -> str:
        """The environment that was played: today's name, where the agent's is of the past."""
        return shown_env(self.env)


OfPairT = TypeVar("OfPairT", bound=OfPair)


@dataclasses.dataclass(frozen=True)
class Sweep(OfPair):
    """One agent's rows of equal starts.

    Attributes:
      fp32: the row at full precision.
      quantized: the other rows by scheme and precision, the widest first.
    """

    fp32: Row
    quantized: Mapping[str, Mapping[str, Row]]


def shown_env(env: str) -> str:
    """Returns the environment that is played for a name: its successor's, with options."""
    options = environments.successor_kwargs(env)
    marks = [name if value is True else f"{name}={value}" for name, value in options.items()]
    name = environments.successor(env)
    return f"{name} ({', '.join(marks)})" if marks else name


def of_pair(results: Sequence[OfPairT], pair: tuple[str, str] | None) -> list[OfPairT]:
    """Returns the results of a pair, by either name of its environment; None: all results."""
    if pair is None:
        return list(results)
    algo, env = pair
    return [one for one in results if one.algo == algo and env in (one.env, one.shown_env)]


def sweeps(
    rows: Sequence[Row],
    schemes: Sequence[str] = names.SCHEMES,
    granularity: str = "paper",
    rounding: str = "nearest",
    wanted: Sequence[str] = (),
) -> list[Sweep]:
    """Returns a sweep for each pair of algorithm and environment, sorted.

    Several evaluations of a pair are ranked by the number of their wanted precisions, then by
    their episodes, then the last counts. A pair without a row of fp32 has no sweep.

    Schemes keep their order. `wanted` names the precisions that matter, e.g. ("fp16", "8"); none:
    all count.
    """
    chosen: dict[tuple[str, str], tuple[tuple[int, int], Sweep]] = {}
    for fp32 in rows_lib.find(rows, bits=names.FP32):
        evaluation = {
            name: getattr(fp32, name) for name in ("algo", "env", "seeds", "episodes")
        }
        quantized = {
            scheme: _by_bits(
                rows_lib.find(
                    rows, scheme=scheme, granularity=granularity, rounding=rounding, **evaluation
                )
            )
            for scheme in schemes
        }
        count = sum(
            not wanted or bits in wanted for found in quantized.values() for bits in found
        )
        pair, preference = (fp32.algo, fp32.env), (count, fp32.episodes)
        if pair not in chosen or preference >= chosen[pair][0]:
            by_scheme = {scheme: found for scheme, found in quantized.items() if found}
            chosen[pair] = preference, Sweep(*pair, fp32, by_scheme)
    return [chosen[pair][1] for pair in sorted(chosen)]


def _by_bits(rows: Sequence[Row]) -> dict[str, Row]:
    found = {row.bits: row for row in rows if row.bits != names.FP32}
    return {bits: found[bits] for bits in sorted(found, key=rows_lib.width_order)}


def best_width(rows: Mapping[str, Row]) -> Row | None:
    """Returns the row of the highest mean return among integer widths; of equals the narrowest."""
    widths = [row for bits, row in rows.items() if bits.isdecimal()]
    return max(widths, key=lambda row: (row.mean, -int(row.bits)), default=None)


def fewest_bits(rows: Mapping[str, Row]) -> Row | None:
    """Returns the sweet spot: the narrowest width that is not shown to cost reward.

    At this width, and at all wider ones that were measured, the interval of E reaches down to
    `TOLERATED_LOSS`. The wider ones count, because a policy that has lost everything can have an
    interval that reaches anywhere.
    """
    fewest = narrowest({bits: row.error_low for bits, row in rows.items()})
    return None if fewest is None else rows[fewest]


def narrowest(losses: Mapping[str, float | None]) -> str | None:
    """Returns the narrowest width that, as all wider ones, loses `TOLERATED_LOSS` at most.

    Only widths count, not fp16 or bf16. An unknown loss (None) counts as too large.
    """
    fewest = None
    for bits in sorted((bits for bits in losses if bits.isdecimal()), key=int, reverse=True):
        loss = losses[bits]
        if loss is None or loss > TOLERATED_LOSS:
            break
        fewest = bits
    return fewest


class MeanError(NamedTuple):
    """The mean of E over several agents at one precision.

    Attributes:
      fixed: the mean with its interval over episodes; None: no agent has one.
      drawn: the same with the agents drawn as well.
      median: median of the same agents' E, which tells whether one of them makes the mean; 0
        without any agent.
      agents: number of agents in the mean.
      left_out: 'environment (reason)' of each agent that is not in the mean.
    """

    fixed: intervals.Interval | None
    drawn: intervals.Interval | None
    median: float
    agents: int
    left_out: list[str]


def mean_error(sweeps: Sequence[Sweep], scheme: str, bits: str) -> MeanError:
    """Returns the mean of E at one precision.

    An agent without an interval of E is left out: where fp32's own mean may be zero, E can be
    anything, and would be the mean.
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


def verdict(mean: intervals.Interval, published: float) -> tuple[str, str]:
    """Returns whether a mean error reaches the paper's, and the reason.

    1. At or below the paper's: `REACHED`.
    2. Above it, but the interval includes the paper's: `OPEN`.
    3. Above it with all of the interval: `MISSED`.

    Args:
      mean: The mean error, fractions.
      published: The paper's mean error, percent.
    """
    if mean.error is None or mean.low is None or mean.high is None:
        return OPEN, "there is no interval"
    if 100 * mean.high <= published:
        return REACHED, "all of the interval is at or below it"
    if 100 * mean.error <= published:
        return REACHED, "the mean is at or below it, the interval reaches above it"
    if 100 * mean.low <= published:
        return OPEN, "the mean is above it, the interval includes it"
    return MISSED, "all of the interval is above it"
