"""Measures how far two forms of a policy take the same actions in the states that they visit."""

from collections.abc import Callable
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from baseline.agents import evaluation

LEAST_SHARE = 0.99  # Two forms of a policy have to act alike in this share of the states.
TOLERANCE = 0.02  # Continuous actions are alike if they differ by this share of their range.


class Agreement(NamedTuple):
    """A comparison of actions, state by state.

    Attributes:
      states: Number of states.
      alike: Share of the states in which the actions are the same (discrete), or each component
        is within `TOLERANCE` (continuous).
      largest: Largest deviation of a component as a share of its range; None for discrete actions.
      mean: Mean deviation; None for discrete actions.
      percentile_99: 99th percentile of the deviations; None for discrete actions.
    """

    states: int
    alike: float
    largest: float | None = None
    mean: float | None = None
    percentile_99: float | None = None

    @property
    def holds(self) -> bool:
        """Returns whether the forms act alike in enough of the states."""
        return self.alike >= LEAST_SHARE

    def __str__(self) -> str:
        text = f"{100 * self.alike:.2f} %"
        if self.largest is not None and self.mean is not None:
            text += f" (largest {100 * self.largest:.2f} %, mean {100 * self.mean:.3f} %)"
        return text


def compare(
    reference: np.ndarray,
    actions: np.ndarray,
    low: np.ndarray | None = None,
    high: np.ndarray | None = None,
) -> Agreement:
    """Compares two forms' actions for the same states.

    Args:
      reference: Actions of the first form, int [N] or [N, K], or float [N, A].
      actions: Actions of the second form, of the same shape.
      low: Smallest actions [A]; None for discrete ones.
      high: Largest actions [A]; None for discrete ones.

    Raises:
      ValueError: Shapes differ, or there are no states.
    """
    if reference.shape != actions.shape or not len(reference):
        raise ValueError(f"Cannot compare actions {reference.shape} with {actions.shape}.")
    if low is None or high is None:
        equal = (reference == actions).reshape(len(reference), -1).all(axis=1)
        return Agreement(len(reference), float(equal.mean()))
    width = np.where(high > low, high - low, 1.0)  # Equal bounds leave no range.
    shares = np.abs(reference.astype(np.float64) - actions) / width
    return Agreement(
        len(reference),
        float((shares <= TOLERANCE).all(axis=1).mean()),
        float(shares.max()),
        float(shares.mean()),
        float(np.percentile(shares, 99)),
    )


def visited_states(
    make_env: Callable[[], gym.Env], act: evaluation.Act, episodes: int, seed: int, limit: int
) -> np.ndarray:
    """Plays a policy and returns the observations alone; see `play`."""
    return play(make_env, act, episodes, seed, limit)[0]


def play(
    make_env: Callable[[], gym.Env], act: evaluation.Act, episodes: int, seed: int, limit: int
) -> tuple[np.ndarray, list[evaluation.Episode]]:
    """Plays a policy; returns observations [N, ...] that it meets, evenly thinned, and episodes.

    Args:
      make_env: Makes one environment with a monitor inside.
      act: Takes raw observations [B, ...]; returns actions.
      episodes: Episodes to play, >= 1.
      seed: Seed of the starts.
      limit: Largest number of observations to return, >= 1.
    """
    kept: list[np.ndarray] = []
    step, seen = 1, 0

    def act_and_keep(batch: np.ndarray) -> np.ndarray:
        nonlocal step, seen, kept
        for observation in batch:
            if seen % step == 0:
                kept.append(np.array(observation))
            seen += 1
            if len(kept) > limit:  # Thin on the way: images of whole episodes take gigabytes.
                kept, step = kept[::2], 2 * step
        return act(batch)

    played = evaluation.evaluate(make_env, act_and_keep, episodes, seed)
    return np.stack(kept), played
