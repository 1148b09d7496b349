"""Turns an actor's single steps into n-step transitions. Imports no framework."""

import collections
from typing import Any

import numpy as np

from actorQ.wire import replay


class NStepAccumulator:
    """Turns single steps into n-step transitions.

    Nothing is emitted until n steps are there; at an episode's end the windows of n-1, ..., 1
    steps that remain are emitted too, so that every environment step gives exactly one
    transition. Acme's NStepTransitionAdder writes the same ones bit for bit (float32 sums in the
    same order), and at an episode's start those of its first 1, ..., n-1 steps as well.
    """

    def __init__(self, n_step: int, discount: float):
        self._n_step = n_step
        self._discount = np.float32(discount)
        self._steps: collections.deque = collections.deque()
        self._last_observation: Any = None

    def first(self, observation: Any) -> None:
        """Starts an episode, forgetting what was left of the one before."""
        self._steps.clear()
        self._last_observation = observation

    def step(
        self, action: Any, reward: float, discount: float, observation: Any, last: bool
    ) -> list[replay.Transition]:
        """Adds one environment step.

        Args:
          action: what was done at the observation before.
          reward: of this step.
          discount: the environment's: 0 at a terminal state, 1 elsewhere, time limits included.
          observation: that followed.
          last: whether the episode ends here.

        Returns:
          The transitions that this step completes: at most one, or all the rest when `last`.
        """
        self._steps.append(
            (self._last_observation, action, np.float32(reward), np.float32(discount))
        )
        self._last_observation = observation
        complete = []
        if len(self._steps) == self._n_step:
            complete.append(self._emit(observation))
        if last:
            while self._steps:
                complete.append(self._emit(observation))
        return complete

    def _emit(self, next_observation: Any) -> replay.Transition:
        """Sums the window that is there, and drops its first step."""
        steps = iter(self._steps)
        observation, action, n_step_return, total_discount = next(steps)
        for _, _, reward, discount in steps:
            total_discount = total_discount * self._discount
            n_step_return = n_step_return + reward * total_discount
            total_discount = total_discount * discount
        self._steps.popleft()
        return replay.Transition(
            observation, action, n_step_return, total_discount, next_observation
        )
