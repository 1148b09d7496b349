"""D4PG on the actor's side: Gaussian noise on a deterministic policy. Imports no TensorFlow."""

import math

import numpy as np

from actorQ.core import config as config_lib


class GaussianExploration:
    """Adds Gaussian noise to actions in [-1, 1] and clips them again."""

    def __init__(self, scale: float, rng: np.random.Generator):
        """Takes the noise's standard deviation, in units of the scaled action, and its source."""
        self.scale = scale
        self._rng = rng

    def begin(self) -> None:
        """Does nothing when an episode begins: the noise has no memory."""

    def __call__(self, output: np.ndarray) -> np.ndarray:
        """Returns the action, float32 [A], for the policy's output, float32 [A]."""
        if self.scale == 0.0:
            return output
        # These operations work in place. np.clip alone takes longer than all of them.
        action = self._rng.standard_normal(output.shape, np.float32)
        action *= np.float32(self.scale)
        action += output
        np.maximum(action, -1.0, out=action)
        return np.minimum(action, 1.0, out=action)


def exploration_scale(config: config_lib.RunConfig, actor_id: int) -> float:
    """Returns sigma_i = sigma (i-1)/(N-1), which rises evenly from 0 to `--sigma` over the actors.

    A single actor gets `--sigma` itself. The original gives it 0, so that it never explores.
    """
    if config.n_actors == 1:
        return config.sigma
    return config.sigma * (actor_id - 1) / (config.n_actors - 1)


def make_exploration(
    config: config_lib.RunConfig, actor_id: int, rng: np.random.Generator
) -> GaussianExploration:
    """Builds the exploration of one actor."""
    return GaussianExploration(exploration_scale(config, actor_id), rng)


def greedy(output: np.ndarray) -> np.ndarray:
    """Returns the action without exploration."""
    return output


def reward_limit(config: config_lib.RunConfig) -> float:
    """Returns the largest magnitude of a single reward in replay, as D4PG clips no rewards."""
    del config
    return math.inf
