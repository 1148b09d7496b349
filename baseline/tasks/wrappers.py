"""Wrappers of Gymnasium environments: our own, and which of other libraries are trusted.

A configuration file may name any class as a wrapper. Only wrappers of known libraries are loaded.
"""

from collections.abc import Mapping
import importlib
import math
import reprlib
from typing import Any
from typing import NamedTuple
from typing import SupportsFloat

import gymnasium as gym
import numpy as np

from actorQ.core import errors
from actorQ.environments import native_output

ACTION_MASKS = "action_masks"  # The method by which sb3-contrib asks for allowed actions.
_NUM_FORCES = 84  # 6 on each of 14 bodies.
_TRUSTED = (
    "gymnasium.wrappers.",
    "stable_baselines3.common.",
    "sb3_contrib.common.wrappers.",
    "rl_zoo3.wrappers.",
)
# Classes that are refused, with all their subclasses, and the reason for the user.
_REFUSED = {
    "RecordVideo": "which writes files or opens windows: not loaded.",
    "Monitor": "which writes files or opens windows: not loaded.",
    "HumanRendering": "which writes files or opens windows: not loaded.",
    "RecordEpisodeStatistics": (
        "which refuses episodes that the monitor inside has noted: leave it out."
    ),
    # NormalizeReward is allowed: it matters in training alone.
    "NormalizeObservation": (
        "whose statistics no file of an agent keeps. Instead, normalize:true normalizes "
        "observations."
    ),
}


class Configured(NamedTuple):
    """A wrapper that a configuration asks for.

    Attributes:
      path: Dotted name of the class.
      wrapper: The class.
      kwargs: Keyword arguments for it.
    """

    path: str
    wrapper: Any
    kwargs: dict[str, Any]


def load(configured: Any) -> list[Configured]:
    """Imports the wrappers that a configuration names.

    Args:
      configured: The value of `env_wrapper` in a zoo configuration. It is a path, or a list whose
        entries are paths or mappings of one path to keyword arguments.

    Raises:
      errors.UserError: A wrapper is not of a trusted library, or does not exist.
    """
    named = _names_and_arguments(configured) if configured else []
    return [Configured(path, _wrapper_class(path), kwargs) for path, kwargs in named]


def _names_and_arguments(configured: Any) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for entry in configured if isinstance(configured, list | tuple) else [configured]:
        path, kwargs = entry, None
        if isinstance(entry, Mapping) and len(entry) == 1:
            ((path, kwargs),) = entry.items()
        if not isinstance(path, str) or not isinstance(kwargs, Mapping | None):
            raise errors.UserError(f"Cannot read env_wrapper {reprlib.repr(entry):.200}.")
        found.append((path, {str(name): value for name, value in (kwargs or {}).items()}))
    return found


def _wrapper_class(path: str) -> Any:
    if not path.startswith(_TRUSTED):
        raise errors.UserError(
            f"env_wrapper names the wrapper {path}, which is not of a library that is trusted here "
            f"({', '.join(prefix.rstrip('.') for prefix in _TRUSTED)}): not loaded."
        )
    module, _, name = path.rpartition(".")
    try:
        wrapper = getattr(importlib.import_module(module), name)
    except Exception:  # Not only ImportError: some modules find that other packages are missing.
        raise errors.UserError(f"env_wrapper names the wrapper {path}: there is none.") from None
    if not (isinstance(wrapper, type) and issubclass(wrapper, gym.Wrapper)):
        raise errors.UserError(f"env_wrapper names {path}, which is not an environment wrapper.")
    for base in wrapper.__mro__:
        if base.__name__ in _REFUSED:
            raise errors.UserError(f"env_wrapper names {path}, {_REFUSED[base.__name__]}")
    return wrapper


class QuietReset(gym.Wrapper):
    """Keeps PyBullet's C code, which prints at every connection, off the terminal."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""
        with native_output.muted():
            return self.env.reset(**kwargs)


class NoContactForces(gym.Wrapper):
    """Replaces the contact forces at the end of observations by zeros, as in -v2 and -v3.

    MuJoCo 2.0 and later compute these forces only on request, and mujoco-py never asked
    (https://github.com/openai/gym/issues/1541). The zoo's agents were trained later, so that they
    saw zeros only. The successors of today differ: Ant-v4 leaves the forces out, the others observe
    true ones, and HumanoidStandup subtracts a cost for them from its rewards. This wrapper adds
    that cost back.
    """

    def __init__(self, env: gym.Env):
        """Wraps an Ant, a Humanoid or a HumanoidStandup of version 4."""
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, gym.spaces.Box)
        (size,) = space.shape
        self._others = size if size < _NUM_FORCES else size - _NUM_FORCES
        self.observation_space = gym.spaces.Box(
            -np.inf, np.inf, (self._others + _NUM_FORCES,), space.dtype.type
        )

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode; the last 84 numbers of the observation [D] are zeros."""
        observation, info = self.env.reset(**kwargs)
        return self._without_forces(observation), info

    def step(self, action: Any) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes one step, whose reward contains no cost for forces."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if "reward_impact" in info:  # HumanoidStandup's cost, 0 or less.
            reward = float(reward) - info["reward_impact"]
            info = {**info, "reward_impact": 0.0}
        return self._without_forces(observation), reward, terminated, truncated, info

    def _without_forces(self, observation: np.ndarray) -> np.ndarray:
        return np.concatenate([observation[: self._others], np.zeros(_NUM_FORCES)])


class StackFrames(gym.Wrapper):
    """Stacks the last observations, the newest last; an episode starts with zeros before it.

    This equals SB3's VecFrameStack and VecTransposeImage together. Images uint8 [H, W, C] (or
    [C, H, W]) become [N*C, H, W]; vectors [D] become [N*D].
    """

    def __init__(self, env: gym.Env, num_frames: int):
        """Wraps an environment.

        Args:
          env: Environment whose observations are arrays.
          num_frames: Observations in a stack, N >= 1.

        Raises:
          errors.UserError: Its observations are something else.
        """
        from stable_baselines3.common import preprocessing
        from stable_baselines3.common import vec_env
        from stable_baselines3.common.vec_env import stacked_observations

        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Box) or not space.shape:
            raise errors.UserError(f"Observations of {space} cannot be stacked.")
        self._stack = stacked_observations.StackedObservations(1, num_frames, space)
        whole = self._stack.stacked_observation_space
        assert isinstance(whole, gym.spaces.Box)  # The observations' own kind.
        channels_first = preprocessing.is_image_space_channels_first
        self._transposes = preprocessing.is_image_space(space) and not channels_first(space)
        transpose = vec_env.VecTransposeImage.transpose_space
        self.observation_space = transpose(whole) if self._transposes else whole

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode."""
        observation, info = self.env.reset(**kwargs)
        return self._ordered(self._stack.reset(observation[None])), info

    def step(self, action: Any) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        stacked, _ = self._stack.update(observation[None], np.zeros(1, np.bool_), [{}])
        return self._ordered(stacked), reward, terminated, truncated, info

    def _ordered(self, stacked: np.ndarray) -> np.ndarray:
        """Returns a copy of the stack, since SB3 writes into its own."""
        return (stacked[0].transpose(2, 0, 1) if self._transposes else stacked[0]).copy()


class FlatObservations(gym.Wrapper):
    """Lays an observation out as one vector, float32 [D], as files for devices take it.

    The entries of a Dict come in the order of its space, images with their channels first, and a
    Discrete observation as its number. Policies encode the numbers themselves.
    """

    def __init__(self, env: gym.Env, num_masked: int = 0):
        """Wraps an environment.

        Args:
          env: An environment of Box, Discrete, MultiDiscrete or MultiBinary observations, or of a
            Dict of them.
          num_masked: Length of the mask of actions that follows, from the environment's
            `action_masks`; 0: there is none.
        """
        from stable_baselines3.common import preprocessing

        super().__init__(env)
        space = env.observation_space
        self._spaces: dict[str | None, gym.Space] = {None: space}
        if isinstance(space, gym.spaces.Dict):
            self._spaces = {key: part for key, part in space.spaces.items()}
        self._transposed = {
            key for key, part in self._spaces.items()
            if isinstance(part, gym.spaces.Box)
            and preprocessing.is_image_space(part)
            and not preprocessing.is_image_space_channels_first(part)
        }
        self._num_masked = num_masked
        # A Discrete observation has no axes, and is one number.
        size = num_masked + sum(math.prod(part.shape or ()) for part in self._spaces.values())
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode."""
        observation, info = self.env.reset(**kwargs)
        return self._flat(observation), info

    def step(self, action: Any) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._flat(observation), reward, terminated, truncated, info

    def _flat(self, observation: Any) -> np.ndarray:
        parts = []
        for key in self._spaces:
            part = np.asarray(observation if key is None else observation[key])
            if key in self._transposed:
                part = part.transpose(2, 0, 1)
            parts.append(part.ravel().astype(np.float32))
        if self._num_masked:
            mask = np.asarray(self.env.get_wrapper_attr(ACTION_MASKS)()).ravel()
            if len(mask) != self._num_masked:
                raise errors.UserError(
                    f"{ACTION_MASKS} of the environment gives {len(mask)} numbers instead of "
                    f"{self._num_masked}, one for each action."
                )
            parts.append(mask.astype(np.float32))
        return np.concatenate(parts)
