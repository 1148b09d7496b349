"""Plays evaluation episodes with a policy's best actions. Imports no framework."""

from collections.abc import Callable
from typing import Any

import numpy as np

from actorQ.core import health
from actorQ.environments import base
from actorQ.environments import evaluation


class GreedyPlayer:
    """Plays without exploration, and counts actions at their bounds."""

    def __init__(
        self,
        environment: base.Environment,
        compute: Callable[[np.ndarray], np.ndarray],
        greedy: Callable[[np.ndarray], Any],
    ):
        """Takes the parts.

        Args:
          environment: The environment to play in.
          compute: Maps observations [1, ...] to the policy's output, float32 [1, num_outputs].
          greedy: Turns a policy's output [num_outputs] into an action.
        """
        self._environment = environment
        self._compute = compute
        self._greedy = greedy
        self._continuous = not environment.spec.discrete
        self._numbers = self._at_bounds = 0  # Of the actions of the episode so far.

    def play(self, stop: Callable[[], bool] = lambda: False) -> evaluation.Episode | None:
        """Plays one episode; returns None if `stop` returned true during the episode."""
        self._numbers = self._at_bounds = 0
        episode = evaluation.play(self._environment, self.act, stop=stop)
        if episode is not None and self._numbers:
            return episode._replace(actions_at_bounds=self._at_bounds / self._numbers)
        return episode

    def act(self, observation: np.ndarray) -> Any:
        """Returns the policy's action for one observation."""
        output = self._compute(observation[None])[0]
        if self._continuous:
            self._numbers += output.size
            self._at_bounds += int(np.count_nonzero(np.abs(output) > health.BOUND))
        return self._greedy(output)
