"""Finds the range of returns from the rewards of the first transitions.

Stored rewards are sums over windows of up to n steps, and the formulas take them as such. Let g be
the discount per step, and R the sum of a window of m steps.

- The episode goes on after most windows. Such a window earns R / (1 + g + ... + g^(m-1)) a step,
  its rate. Earned for ever, a rate is worth itself times the horizon.
- Nothing follows a window that ends in a terminal state. The return is R itself.
- Every return is a mean of such values, so that their extremes bound it.

A time limit is no terminal state. The targets reach beyond it, and the horizon is 1 / (1 - g),
however short episodes are. Where the discount reaches much further than an episode, values grow
that far only after many copies into the targets. The horizon is therefore at most twice that of an
episode of T steps, 2 (1 - g^T) / (1 - g). Without a discount this is 2 T.

The margins are guesses at how much a trained policy differs from the first, nearly random one:

- Gains grow with learning, and are taken three times as large as the largest so far.
- Losses shrink, but an untrained policy may not have met the worst: one and a half times.
- A sign that no reward has had so far is not expected.
- A task whose rewards have bounds by definition needs neither rewards nor margins.

Imports no framework.
"""

import math
from typing import NamedTuple

import numpy as np

from actorQ.core import config as config_lib
from actorQ.core import settings

_GAIN_MARGIN = 3.0
_LOSS_MARGIN = 1.5
_SCALE_MARGIN = 2.0  # DQN's scale can grow later, so it needs less.
_BEYOND_EPISODE = 2.0  # Longest horizon, in horizons of an episode.
_SMALLEST = 1e-30  # Smaller rewards count as zero, since atoms in float32 would fall together.
LARGEST = 1e37  # Larger bounds would leave float32.
_DIGITS = 2  # Significant digits of what is found.


class Windows(NamedTuple):
    """Extremes of the windows of some transitions; 0 where there is no window of a kind.

    Attributes:
      number: Windows in all.
      lowest_rate: Lowest reward per step of windows after which the episode goes on.
      highest_rate: Highest one.
      lowest_end: Lowest sum of windows that end in a terminal state.
      highest_end: Highest one.
      largest: Largest magnitude of a sum of any window.
    """

    number: int
    lowest_rate: float
    highest_rate: float
    lowest_end: float
    highest_end: float
    largest: float


class Task(NamedTuple):
    """Facts of a task that bound its returns.

    Attributes:
      episode_steps: Longest episode.
      reward_bounds: Lowest and highest reward by definition; None where there is no definition.
    """

    episode_steps: int
    reward_bounds: tuple[float, float] | None


class Span(NamedTuple):
    """Bounds of discounted returns, and a clause that says where they come from."""

    low: float
    high: float
    reason: str


def discounted_steps(discount: float, steps: int) -> float:
    """Returns 1 + g + ... + g^(steps-1)."""
    return (1.0 - discount**steps) / (1.0 - discount) if discount < 1.0 else float(steps)


def horizon(discount: float, episode_steps: int) -> float:
    """Returns the value of a reward of 1 in every step; see the module."""
    limit = _BEYOND_EPISODE * discounted_steps(discount, episode_steps)
    return min(limit, 1.0 / (1.0 - discount)) if discount < 1.0 else limit


def summarize(
    rewards: np.ndarray, discounts: np.ndarray, config: config_lib.RunConfig
) -> Windows:
    """Returns the extremes of transitions.

    Args:
      rewards: n-step sums, [N].
      discounts: Their discounts, g^(m-1) after m steps, and 0 after a terminal state, [N].
      config: The discount g and n.
    """
    rewards, discounts = np.asarray(rewards, np.float64), np.asarray(discounts, np.float64)
    longest = discounted_steps(config.discount, config.n_step)
    steps = np.full_like(rewards, longest)
    if config.discount < 1.0:
        steps = (1.0 - config.discount * discounts) / (1.0 - config.discount)
    # A task may have discounts of its own, of which only their product with g^(m-1) is known.
    goes_on = discounts > 0.0
    rates = (rewards / np.clip(steps, 1.0, longest))[goes_on]
    ends = rewards[~goes_on]
    lowest_rate, highest_rate = _extremes(rates)
    lowest_end, highest_end = _extremes(ends)
    largest = float(np.abs(rewards).max(initial=0.0))
    return Windows(len(rewards), lowest_rate, highest_rate, lowest_end, highest_end, largest)


def _extremes(values: np.ndarray) -> tuple[float, float]:
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)


def find_span(windows: Windows, config: config_lib.RunConfig, task: Task) -> Span:
    """Returns bounds of discounted returns, for those of --vmin and --vmax that are auto."""
    reach = horizon(config.discount, task.episode_steps)
    if task.reward_bounds is not None:
        lowest, highest = task.reward_bounds
        low, high = min(0.0, lowest) * reach, max(0.0, highest) * reach
        reason = f"the task's rewards lie in [{lowest:g}, {highest:g}] by definition"
    else:
        low = _LOSS_MARGIN * min(0.0, windows.lowest_rate * reach, windows.lowest_end)
        high = _GAIN_MARGIN * max(0.0, windows.highest_rate * reach, windows.highest_end)
        reason = (
            f"the first {windows.number} transitions earned {windows.lowest_rate:.3g} to "
            f"{windows.highest_rate:.3g} a step"
        )
        if high - low < _SMALLEST:
            low, high = -reach, reach
            reason = (
                f"all rewards of the first {windows.number} transitions were 0, and later ones are "
                "taken to lie in [-1, 1]"
            )
    low, high = _outward(low), _outward(high)
    if config.vmin != settings.AUTO:
        low = float(config.vmin)
    if config.vmax != settings.AUTO:
        high = float(config.vmax)
    if low >= high:  # The side that was given lies beyond everything that was found.
        reason += ", all beyond the bound that was given"
        if config.vmin == settings.AUTO:
            low = _outward(high - abs(high) - reach)
        else:
            high = _outward(low + abs(low) + reach)
    return Span(low, high, reason)


def find_scale(windows: Windows, config: config_lib.RunConfig) -> tuple[float, str]:
    """Returns the largest n-step sum to expect of DQN's rewards, and where it comes from."""
    if windows.largest < _SMALLEST:
        return discounted_steps(config.discount, config.n_step), (
            f"all rewards of the first {windows.number} transitions were 0, and later ones are "
            "taken to lie in [-1, 1]"
        )
    return wider_scale(windows.largest), (
        f"they were at most {windows.largest:.3g} in the first {windows.number} transitions"
    )


def wider_scale(largest: float) -> float:
    """Returns the scale for n-step sums of this magnitude, with a margin."""
    return _outward(_SCALE_MARGIN * largest)


def plain(value: float) -> float:
    """Returns the number that a float32 stands for, without the digits that rounding added."""
    return float(f"{value:.7g}")


def _outward(value: float) -> float:
    """Rounds away from zero to two digits, within float32."""
    if value == 0.0:
        return 0.0
    # The sums were rounded to float32: 100.00001 must become 100 and not 110.
    magnitude = float(f"{min(abs(value), LARGEST):.5g}")
    exponent = math.floor(math.log10(magnitude)) - _DIGITS + 1
    units = math.ceil(float(f"{magnitude / 10.0**exponent:.5g}"))
    return math.copysign(float(f"{units}e{exponent}"), value)
