"""Turns an actor's single steps into n-step transitions. Imports no framework."""

import collections
from typing import Any

import numpy as np

from actorQ.wire import replay


class NStepAccumulator:
    """Turns single steps into n-step transitions.

    Nothing is emitted until n steps are there. At an episode's end the remaining windows of n-1,
    ..., 1 steps are emitted too, so every environment step gives exactly one transition. Acme's
    NStepTransitionAdder writes the same transitions bit for bit, as float32 sums in the same order.
    At an episode's start it also writes windows of its first 1, ..., n-1 steps.
    """

    def __init__(self, n_step: int, discount: float):
        """Takes n and the discount per step; `first` comes next."""
        self._n_step = n_step
        self._discount = np.float32(discount)
        self._steps: collections.deque[tuple[Any, Any, np.float32, np.float32]] = (
            collections.deque()
        )
        self._last_observation: Any = None

    def first(self, observation: Any) -> None:
        """Starts an episode, and drops the steps left from the one before."""
        self._steps.clear()
        self._last_observation = observation

    def step(
        self, action: Any, reward: float, discount: float, observation: Any, last: bool
    ) -> list[replay.Transition]:
        """Adds one environment step.

        Args:
          action: Action taken at the observation before.
          reward: Reward of this step.
          discount: The environment's discount: 0 at a terminal state, 1 elsewhere, also at a time
            limit.
          observation: Observation after the step.
          last: Whether the episode ends here.

        Returns:
          The transitions that this step completes: at most one, or all that remain if `last`.
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
        """Returns the transition of the present window, and drops the window's first step."""
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
