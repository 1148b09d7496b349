"""Our environments as Gymnasium knows them, for agents that take nothing else.

The counterpart of `environments.gymnasium_adapter`. Shimmy's wrapper cannot be used: it takes
dm_control's own environments only (it asks for their physics and control time step), and an agent
for comparison has to act in the very environments that ours act in.
"""

from typing import Any

import gymnasium
from gymnasium import spaces
import numpy as np

from actorQ.environments import base


class GymnasiumTask(gymnasium.Env):
    """One of our environments: flat float32 observations, actions in [-1, 1] or an index."""

    metadata = {"render_modes": []}

    def __init__(self, environment: base.Environment, reward_limit: float):
        """Takes the environment.

        Args:
          environment: with vectors as observations.
          reward_limit: largest magnitude of a reward; larger ones are clipped.
        """
        self._environment = environment
        self._reward_limit = reward_limit
        spec = environment.spec
        self.observation_space = spaces.Box(-np.inf, np.inf, spec.observation_shape, np.float32)
        if spec.discrete:
            self.action_space = spaces.Discrete(spec.num_actions)
        else:
            self.action_space = spaces.Box(-1.0, 1.0, (spec.action_size,), np.float32)

    @property
    def is_discrete(self) -> bool:
        """Whether an action is an index."""
        return self._environment.spec.discrete

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode.

        Args:
          seed: of Gymnasium's own generator; the environment has had its own when it was made.
          options: not used.
        """
        super().reset(seed=seed)
        return self._environment.reset().observation, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Acts once; an episode that ends with discount 0 is terminated, any other truncated."""
        timestep = self._environment.step(action)
        limit = self._reward_limit
        reward = max(-limit, min(limit, timestep.reward))
        last = timestep.last()
        terminated = last and timestep.discount == 0
        return timestep.observation, reward, terminated, last and not terminated, {}

    def close(self) -> None:
        """Frees the task's simulation."""
        self._environment.close()
