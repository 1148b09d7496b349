"""Estimates the reward that quantization costs, with 95 % intervals by the paired bootstrap.

    E = (fp32 - q) / |fp32|        of the mean returns; above zero means that reward was lost.

Element i of both sides began from the same environment seed. Pairs are resampled, so that luck
that both share cancels. The intervals are percentile intervals: returns are often two-valued or
all equal, where corrected ones (BCa) are not defined. Imports numpy only.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000
CONFIDENCE = 0.95
# Share of the largest |return|: a mean below it is rounding, not reward.
_NOTHING = 1e-9
# Largest size of a block of resamples: 32 MB of indices.
_BLOCK = 4_000_000


Returns = Sequence[float] | np.ndarray  # Shape [N].


class Interval(NamedTuple):
    """A relative error with its bootstrap interval.

    Attributes:
      error: E of the means; None where the fp32 mean is zero.
      low: lower end of the interval; None where there is none.
      high: upper end of the interval.
      reason: reason for a None; else empty.
    """

    error: float | None
    low: float | None
    high: float | None
    reason: str = ""

    def text(self) -> str:
        """Returns 'E % [low, high]' for people, without the parts that are None."""
        if self.error is None:
            return "n/a"
        text = f"{fixed(100 * self.error, 2)} %"
        if self.low is None or self.high is None:
            return text
        return f"{text} [{fixed(100 * self.low, 2)}, {fixed(100 * self.high, 2)}]"


def fixed(value: float, digits: int) -> str:
    """Returns a number with so many decimals, and zero without a sign."""
    text = f"{value:.{digits}f}"
    return text if float(text) else text.removeprefix("-")


def relative_error(fp32: Returns, quantized: Returns) -> float | None:
    """Returns E of the mean returns, or None where the fp32 mean is zero.

    Args:
      fp32: returns, shape [N].
      quantized: returns, any number.
    """
    returns = np.asarray(fp32, np.float64)
    mean = returns.mean()
    if abs(mean) <= _NOTHING * np.abs(returns).max():
        return None
    return float((mean - np.mean(quantized)) / abs(mean))


def paired(
    fp32: Returns,
    quantized: Returns,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Returns E of one agent and its interval over episodes.

    There is none where the interval of the fp32 mean includes zero: the quotient is then unbounded,
    and its percentiles would mean nothing.

    Args:
      fp32: returns, shape [N].
      quantized: returns from the same N starts, in the same order.
      resamples: number of draws of N pairs with replacement.
      seed: seed of the draws.

    Raises:
      ValueError: the two are not pairs, or there are none.
    """
    pairs = _pairs(fp32, quantized)
    error = relative_error(*pairs)
    if error is None:
        return Interval(None, None, None, "the fp32 mean is zero")
    if pairs.shape[1] < 2:
        return Interval(error, None, None, "one episode has no spread")
    fp32_means, quantized_means = _resampled_means(pairs, resamples, (seed,))
    low, high = _percentiles(fp32_means)
    if low <= 0 <= high:
        reason = "the interval of the fp32 mean includes zero"
        return Interval(error, None, None, reason)
    return Interval(error, *_percentiles(_errors(fp32_means, quantized_means)))


def mean_over_agents(
    agents: Sequence[tuple[Returns, Returns]], resample_agents: bool = False
) -> Interval:
    """Returns the mean of several agents' E, as the paper's tables have it, and its interval.

    By default only the episodes are drawn: what would the mean of these agents be in another
    evaluation? With `resample_agents` the agents are drawn as well: what would it be for other
    agents of their kind? That interval is wider, and with a handful of agents still too narrow.

    Args:
      agents: (fp32, quantized) returns of each agent, as in `paired`, which has an interval of all
        of them; at least one.
      resample_agents: whether to draw the agents, too.

    Raises:
      ValueError: an agent's returns are not pairs.
    """
    sides = [_pairs(*agent) for agent in agents]
    found = [one for side in sides if (one := relative_error(*side)) is not None]
    error = float(np.mean(found))
    # Every agent has a stream of its own, so that agents of as many episodes share no luck.
    draws = np.stack(
        [
            _errors(*_resampled_means(side, RESAMPLES, (0, index)))
            for index, side in enumerate(sides)
        ]
    )  # [agents, resamples]
    if resample_agents:
        rng = np.random.default_rng([0, len(sides)])
        chosen = rng.integers(len(sides), size=draws.shape)
        draws = np.take_along_axis(draws, chosen, axis=0)
    return Interval(error, *_percentiles(draws.mean(axis=0)))


def mean(values: Returns) -> Interval:
    """Returns the mean of one side's returns [N] and its interval; `error` holds the mean."""
    return mean_over_trainings(np.asarray(values)[None])


def mean_over_trainings(
    values: Sequence[Sequence[float]] | np.ndarray, resamples: int = RESAMPLES
) -> Interval:
    """Returns the mean over several trainings' episodes and its interval; `error` holds the mean.

    Trainings are drawn, and then episodes within each drawn training. With a handful of trainings
    the interval is coarse: with three, it reaches about from the lowest to the highest. With one,
    it is the interval over its episodes.

    Args:
      values: returns of the trainings' episodes, or differences of paired ones; shape [K, N].
      resamples: number of draws.

    Raises:
      ValueError: the trainings have different numbers of episodes, or there are none.
    """
    returns = np.asarray(values, np.float64)
    if returns.ndim != 2 or not returns.size:
        raise ValueError(f"Values have the shape [trainings, episodes], not {returns.shape}.")
    if returns.size < 2:
        return Interval(float(returns.mean()), None, None, "one episode has no spread")
    trainings, episodes = returns.shape
    rng = np.random.default_rng(0)
    block = max(1, _BLOCK // returns.size)
    means = []
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        of_training = rng.integers(trainings, size=(size, trainings, 1))
        of_episode = rng.integers(episodes, size=(size, trainings, episodes))
        means.append(returns[of_training, of_episode].mean(axis=(1, 2)))
    return Interval(float(returns.mean()), *_percentiles(np.concatenate(means)))


def _pairs(fp32: Returns, quantized: Returns) -> np.ndarray:
    """Returns [2, N] float64."""
    if len(fp32) != len(quantized) or not len(fp32):
        raise ValueError(
            f"Episodes come in pairs, but there are {len(fp32)} of fp32 and {len(quantized)} "
            "quantized ones."
        )
    return np.stack([np.asarray(side, np.float64) for side in (fp32, quantized)])


def _resampled_means(samples: np.ndarray, resamples: int, seed: tuple[int, ...]) -> np.ndarray:
    """Draws columns of [K, N] with replacement; returns the means, [K, resamples]."""
    drawn = _times_drawn(samples.shape[1], resamples, seed)
    return samples @ drawn.T.astype(np.float64) / samples.shape[1]


@functools.lru_cache(maxsize=16)  # Every cell of a table draws alike.
def _times_drawn(count: int, resamples: int, seed: tuple[int, ...]) -> np.ndarray:
    """Returns how often each resample has each of `count` columns, int16 [resamples, count]."""
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // count)
    found = []
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        columns = rng.integers(count, size=(size, count)) + count * np.arange(size)[:, None]
        times = np.bincount(columns.ravel(), minlength=size * count)
        found.append(times.reshape(size, count).astype(np.int16))
    return np.concatenate(found)


def _errors(fp32_means: np.ndarray, quantized_means: np.ndarray) -> np.ndarray:
    """Returns E of every resample, which is huge where the fp32 mean is zero."""
    tiny = np.finfo(np.float64).tiny
    return (fp32_means - quantized_means) / np.maximum(np.abs(fp32_means), tiny)


def _percentiles(draws: np.ndarray) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)
