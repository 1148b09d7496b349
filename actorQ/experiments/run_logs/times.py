"""Times to a reward, and ratios of them, of runs that may not have reached it.

A run has reached a reward when it holds it: the running mean of its evaluations is at the reward in
several evaluations in a row. Its time to reward is that of the first evaluation of this row.
"""

from collections.abc import Sequence
import dataclasses

from actorQ.core import output
from actorQ.environments import evaluation


@dataclasses.dataclass(frozen=True)
class Reach:
    """When a run reached a reward, or that it did not within its time."""

    seconds: float  # Time to reward. If the reward was not reached, a lower bound of it.
    evaluation_s: float  # Seconds of the learner's time that evaluation took until then.
    reached: bool  # Whether the reward was reached.

    def text(self) -> str:
        """Returns '40.0', or '> 812.0' if the return was not reached."""
        return "> " * (not self.reached) + output.number(self.seconds)


@dataclasses.dataclass(frozen=True)
class Speedup:
    """A ratio of times, or a bound on it."""

    value: float
    bound: str = ""  # ">" or "<" if one side did not reach the return, "?" if neither did.

    def text(self) -> str:
        """Returns '2.50', '> 1.90' or 'n/a'."""
        if self.bound == "?":
            return output.NOT_AVAILABLE
        return f"{self.bound} {output.number(self.value, 2)}".strip()


def held(
    seconds: Sequence[float],
    evaluation_s: Sequence[float],
    returns: Sequence[float],
    target: float,
    window: int,
    smoothing: int,
) -> Reach:
    """Returns when a run held a reward.

    A run that ended within a row of evaluations at the reward missed it up to the start of that
    row: from then on it may have been about to hold it.

    Args:
      seconds: Time of each evaluation; there is one at least.
      evaluation_s: Seconds of evaluation so far, at each evaluation.
      returns: Return of each evaluation episode.
      target: Reward that the running mean must reach.
      window: Evaluations in a row that must have such a mean.
      smoothing: Evaluations in the running mean.
    """
    since = evaluation.held_since(returns, target, window, smoothing)
    index = since
    if index is None:
        index = len(returns) - max(1, evaluation.last_streak(returns, target, smoothing))
    return Reach(float(seconds[index]), float(evaluation_s[index]), since is not None)


def best_held(returns: Sequence[float], window: int, smoothing: int) -> float:
    """Returns the highest reward that a run holds; it has `smoothing` + `window` - 1 evaluations.

    Args:
      returns: Return of each evaluation episode.
      window: Evaluations in a row that must have a running mean at the reward.
      smoothing: Evaluations in the running mean.
    """
    means = [
        sum(returns[end - smoothing : end]) / smoothing
        for end in range(smoothing, len(returns) + 1)
    ]
    return max(min(means[end - window : end]) for end in range(window, len(means) + 1))


def speedup_between(fp32: Reach, other: Reach) -> Speedup:
    """Returns how much sooner than fp32 another precision was there, or a bound on that."""
    bound = {
        (True, True): "",
        (False, True): ">",  # fp32 would take longer than we waited.
        (True, False): "<",
        (False, False): "?",
    }[fp32.reached, other.reached]
    ratio = fp32.seconds / other.seconds if other.seconds > 0 else float("nan")
    return Speedup(ratio, bound)
