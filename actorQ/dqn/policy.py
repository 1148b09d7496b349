"""DQN on the actor's side: epsilon-greedy over Q-values. Imports no TensorFlow."""

import numpy as np

from actorQ import config as config_lib


class EpsilonGreedy:
    """Takes a random action with probability epsilon, else the best one."""

    def __init__(self, scale: float, rng: np.random.Generator):
        """Takes epsilon."""
        self.scale = scale
        self._rng = rng

    def __call__(self, output: np.ndarray) -> int:
        """Returns the action for Q-values, float32 [num_actions]."""
        if self._rng.random() < self.scale:
            return int(self._rng.integers(output.shape[0]))
        return int(output.argmax())


def exploration_scale(config: config_lib.RunConfig, actor_id: int) -> float:
    """Returns epsilon_i = epsilon_max i/N.

    An even ladder that ends at `--epsilon_max` and leaves no actor without exploration (a greedy
    actor can repeat one episode for ever where the environment is deterministic).
    """
    return config.epsilon_max * actor_id / config.n_actors


def make_exploration(
    config: config_lib.RunConfig, actor_id: int, rng: np.random.Generator
) -> EpsilonGreedy:
    """Builds the exploration of one actor."""
    return EpsilonGreedy(exploration_scale(config, actor_id), rng)


def greedy(output: np.ndarray) -> int:
    """Returns the action without exploration."""
    return int(output.argmax())


def reward_limit(config: config_lib.RunConfig) -> float:
    """Returns the largest magnitude of a single reward in replay."""
    return config.max_abs_reward
