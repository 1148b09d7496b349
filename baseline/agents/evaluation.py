"""Plays many episodes at once: one forward pass serves all environments.

Episode i of seed s always begins from the same environment seed, whatever plays it: the returns
of a full-precision and a quantized policy come in pairs.
"""

from collections.abc import Callable
from collections.abc import Mapping
import contextlib
from typing import Any
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from actorQ.core import errors
from actorQ.core import seeding

# Environments at once. 100 episodes over three seeds need 34; each environment costs memory.
MAX_ENVIRONMENTS = 34
# Limit of an episode, unless its environment sets a longer one. Atari's have 108,000 frames.
MAX_STEPS = 250_000

Act = Callable[[np.ndarray], np.ndarray]


class Episode(NamedTuple):
    """The result of an episode.

    Attributes:
      episode_return: The monitor's return: unclipped, over all lives.
      length: Agent steps.
      success: Whether the agent reached its goal; None where the environment does not say.
    """

    episode_return: float
    length: int
    success: bool | None = None


def evaluate(
    make_env: Callable[[], gym.Env],
    act: Act,
    episodes: int,
    seed: int,
    num_envs: int = MAX_ENVIRONMENTS,
) -> list[Episode]:
    """Plays episodes and returns them in the order of their numbers.

    Args:
      make_env: Makes one environment with SB3's monitor inside.
      act: Takes observations [B, ...]; returns actions [B, ...]. B shrinks towards the end.
      episodes: Number of episodes, >= 1.
      seed: Seed of the series of starts.
      num_envs: Environments at once, >= 1.

    Raises:
      errors.UserError: A return is no finite number, or an episode does not end.
    """
    with contextlib.ExitStack() as stack:
        environments = []
        for _ in range(min(num_envs, episodes)):
            environments.append(stack.enter_context(contextlib.closing(make_env())))
        return _play(environments, act, episodes, seed)


def _play(environments: list[gym.Env], act: Act, episodes: int, seed: int) -> list[Episode]:
    played: dict[int, Episode] = {}
    number_in = list(range(len(environments)))  # The episode of each environment.
    observations = [
        environment.reset(seed=episode_seed(seed, number))[0]
        for number, environment in zip(number_in, environments, strict=True)
    ]
    lengths = [0] * len(environments)
    most_steps = longest(environments[0])
    # Episodes are dealt out beforehand: the order in which environments finish changes nothing.
    stride = len(environments)
    while environments:
        actions = act(np.stack(observations))
        finished = []
        for slot, environment in enumerate(environments):
            observation, _, terminated, truncated, info = environment.step(actions[slot])
            lengths[slot] += 1
            if terminated or truncated:
                number, following = number_in[slot], number_in[slot] + stride
                if following >= episodes and "episode" in info:  # No episode follows.
                    episode_return: float | None = float(info["episode"]["r"])
                else:
                    observation, episode_return = begin_next(
                        environment, info, episode_seed(seed, following)
                    )
                    observations[slot] = observation
                if episode_return is None:
                    continue
                if not np.isfinite(episode_return):
                    raise errors.UserError(
                        f"Episode {number} came to a return of {episode_return}: the environment "
                        "gives rewards that are no finite numbers."
                    )
                success = info.get("is_success")
                played[number] = Episode(
                    episode_return, lengths[slot], None if success is None else bool(success)
                )
                number_in[slot], lengths[slot] = following, 0
                if following >= episodes:
                    finished.append(slot)
                    continue
            elif lengths[slot] >= most_steps:
                raise endless(f"Episode {number_in[slot]}", most_steps)
            observations[slot] = observation
        for slot in reversed(finished):
            for column in (observations, lengths, number_in):
                del column[slot]
            environments = environments[:slot] + environments[slot + 1 :]
    return [played[number] for number in range(episodes)]


def longest(environment: gym.Env) -> int:
    """Returns the number of steps after which an episode counts as endless."""
    spec = environment.spec
    return max(MAX_STEPS, spec and spec.max_episode_steps or 0)


def endless(episode: str, steps: int) -> errors.UserError:
    """Returns the error for an episode that has not ended within so many steps."""
    return errors.UserError(
        f"{episode} has not ended within {steps:,} steps: "
        "gymnasium.register(..., max_episode_steps=...) gives an environment a time limit."
    )


def begin_next(
    environment: gym.Env, info: Mapping[str, Any], seed: int
) -> tuple[np.ndarray, float | None]:
    """Resets an environment that said that it is over.

    Args:
      environment: An environment with SB3's monitor inside, or with one that notes alike.
      info: The info of its last step.
      seed: Seed of the next episode.

    Returns:
      The next observation, and the return of the episode that is over. The return is None where
      only a life was lost and the game goes on: `EpisodicLifeEnv` then passes no reset on.
    """
    if "episode" in info:
        return environment.reset(seed=seed)[0], float(info["episode"]["r"])
    # A wrapper around the monitor ended the episode, and the monitor does not know it.
    rewards = environment.get_wrapper_attr("rewards")
    observation, _ = environment.reset(seed=seed)
    goes_on = environment.get_wrapper_attr("rewards") is rewards
    return observation, None if goes_on else float(sum(rewards))


def episode_seed(seed: int, number: int) -> int:
    """Returns the environment seed of an episode."""
    return seeding.derive(seed, "baseline episode", number)
