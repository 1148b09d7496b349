"""DQN on the actor's side: epsilon-greedy over Q-values. Imports no TensorFlow."""

import math

import numpy as np

from actorQ.core import config as config_lib
from actorQ.core import settings

_ATARI = "atari"
_ATARI_LIMIT = 1.0  # Games are compared with clipped rewards (Mnih et al. 2015).


class EpsilonGreedy:
    """Takes a random action with probability epsilon, else the best one.

    A random action may last n steps, with n drawn from a zeta distribution, P(n) ~ n^-exponent: one
    step mostly, many sometimes. Many steps in one direction get a car up a hill that single random
    steps never climb. Source: Dabney, Ostrovski and Barreto 2021, "Temporally-Extended
    epsilon-Greedy Exploration", algorithm 1.
    """

    def __init__(self, scale: float, rng: np.random.Generator, exponent: float = 0.0):
        """Takes the parameters.

        Args:
          scale: Probability of a random action, epsilon.
          rng: Source of randomness.
          exponent: A number above 1, or 0 for random actions of one step.
        """
        self.scale = scale
        self._rng = rng
        self._exponent = exponent
        self._action, self._repeats = 0, 0

    def begin(self) -> None:
        """Ends the repetition of an action when an episode begins."""
        self._repeats = 0

    def __call__(self, output: np.ndarray) -> int:
        """Returns the action for Q-values, float32 [num_actions]."""
        if self._repeats:
            self._repeats -= 1
            return self._action
        if self._rng.random() < self.scale:
            self._action = int(self._rng.integers(output.shape[0]))
            if self._exponent:
                self._repeats = int(self._rng.zipf(self._exponent)) - 1
            return self._action
        return int(output.argmax())


def exploration_scale(config: config_lib.RunConfig, actor_id: int) -> float:
    """Returns epsilon_i = epsilon_max i/N, which rises evenly to `--epsilon_max` over the actors.

    No actor is left without exploration: in a deterministic environment, a greedy one can repeat
    one episode for ever.
    """
    return config.epsilon_max * actor_id / config.n_actors


def make_exploration(
    config: config_lib.RunConfig, actor_id: int, rng: np.random.Generator
) -> EpsilonGreedy:
    """Builds the exploration of one actor."""
    return EpsilonGreedy(exploration_scale(config, actor_id), rng, config.epsilon_zeta)


def greedy(output: np.ndarray) -> int:
    """Returns the action without exploration."""
    return int(output.argmax())


def reward_limit(config: config_lib.RunConfig) -> float:
    """Returns the largest magnitude of a single reward in replay.

    It follows from the flags alone, so that all processes agree without a word. With
    --max_abs_reward=auto, actors do not clip and the learner finds the scale of returns. Atari
    games keep their usual limit.
    """
    if config.max_abs_reward != settings.AUTO:
        return float(config.max_abs_reward)
    return _ATARI_LIMIT if config.suite == _ATARI else math.inf
