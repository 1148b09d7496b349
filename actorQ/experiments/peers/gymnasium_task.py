"""Our environments in Gymnasium's interface, for agents that take nothing else.

This is the counterpart of `environments.gymnasium_adapter`. Shimmy's wrapper cannot be used: it
asks for the physics and the control time step of dm_control's own environments. An agent for
comparison must act in the very environments that ours act in.
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
          environment: Environment with vectors as observations.
          reward_limit: Largest magnitude of a reward; larger ones are clipped.
        """
        self._environment = environment
        self._reward_limit = reward_limit
        spec = environment.spec
        self.observation_space = spaces.Box(-np.inf, np.inf, spec.observation_shape, np.float32)
        self.action_space: spaces.Space
        if spec.num_actions is not None:
            self.action_space = spaces.Discrete(spec.num_actions)
        else:
            assert spec.action_size is not None
            self.action_space = spaces.Box(-1.0, 1.0, (spec.action_size,), np.float32)

    @property
    def is_discrete(self) -> bool:
        """Says whether an action is an index."""
        return self._environment.spec.discrete

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode.

        Args:
          seed: Seed of Gymnasium's own generator. The environment was seeded when it was made.
          options: Not used.
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
