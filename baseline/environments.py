"""Gymnasium environments by the names that the zoo's agents were saved with.

Renamed environments become their successors. Only wrappers of libraries that we know are put
around an environment, since a configuration file may name any.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import importlib
import os
import re
from typing import Any
import warnings

from absl import logging
import gymnasium as gym
import numpy as np

from actorQ import errors
from actorQ.environments import core
from actorQ.environments import mujoco_gl

_RENAMED = {
    "LunarLander-v2": ("LunarLander-v3", {}),
    "LunarLanderContinuous-v2": ("LunarLander-v3", {"continuous": True}),
    "LunarLanderContinuous-v3": ("LunarLander-v3", {"continuous": True}),
    "Pendulum-v0": ("Pendulum-v1", {}),
    "BipedalWalker-v2": ("BipedalWalker-v3", {}),
    "BipedalWalkerHardcore-v2": ("BipedalWalkerHardcore-v3", {}),
}
# -v4 has the dynamics and observations closest to -v2 and -v3; -v5 changed rewards as well.
_MUJOCO = re.compile(
    r"^(Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup|Swimmer|Walker2d|Reacher|Pusher|"
    r"InvertedPendulum|InvertedDoublePendulum)-v[123]$"
)
_TRUSTED_WRAPPERS = (
    "gymnasium.wrappers.",
    "stable_baselines3.common.",
    "sb3_contrib.common.wrappers.",
    "rl_zoo3.wrappers.",
)
_told: set[str] = set()


def successor(env_id: str) -> str:
    """Returns the name under which an environment exists today (often the same)."""
    if env_id in _RENAMED:
        return _RENAMED[env_id][0]
    return _MUJOCO.sub(r"\1-v4", env_id)


def successor_kwargs(env_id: str) -> dict[str, Any]:
    """Returns the arguments with which the successor is what `env_id` was."""
    return dict(_RENAMED[env_id][1]) if env_id in _RENAMED else {}


def is_atari(env_id: str) -> bool:
    """Returns whether this is an Atari game of the zoo's kind, such as PongNoFrameskip-v4."""
    return "NoFrameskip" in env_id or env_id.startswith("ALE/")


def register() -> None:
    """Makes the names of Atari and PyBullet environments known, where they are installed."""
    for module in ("ale_py", "pybullet_envs_gymnasium"):
        try:
            with core.muted_output():
                importlib.import_module(module)
        except ImportError:  # `make` says so, should such an environment be asked for.
            continue


def make(
    env_id: str,
    wrappers: Any = None,
    frame_stack: int = 1,
    env_kwargs: Mapping[str, Any] | None = None,
    render_mode: str | None = None,
) -> gym.Env:
    """Makes an environment as the zoo does: a monitor inside, the configured wrappers around it.

    Args:
      env_id: name, maybe of the past.
      wrappers: the value of `env_wrapper` in a zoo configuration: a path, a list of paths, or of
        one-entry mappings from a path to keyword arguments.
      frame_stack: images to stack along the channel axis, which comes first then.
      env_kwargs: for the environment itself.
      render_mode: None, "rgb_array" or "human".

    Raises:
      errors.UserError: there is no such environment, or what it needs is missing.
    """
    # Not at the top: SB3 loads torch, which `python -m ... --help` can do without.
    from stable_baselines3.common import monitor

    plain = _make_plain(env_id, env_kwargs, render_mode)
    env = monitor.Monitor(_QuietReset(plain) if "Bullet" in env_id else plain)
    for path, kwargs in _wrapper_list(wrappers):
        if path.endswith(".TimeFeatureWrapper"):
            kwargs = {"test_mode": True, **kwargs}
        env = _wrapper_class(path)(env, **kwargs)
    return StackFrames(env, frame_stack) if frame_stack > 1 else env


def _make_plain(env_id: str, env_kwargs: Mapping[str, Any] | None, render_mode: str | None):
    register()
    new_id = successor(env_id)
    if new_id != env_id and env_id not in _told:
        _told.add(env_id)
        logging.info("%s does not exist any more: using its successor %s.", env_id, new_id)
    kwargs = {**successor_kwargs(env_id), **(env_kwargs or {})}
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    quiet: contextlib.AbstractContextManager = contextlib.nullcontext()
    if ".mujoco." in str(getattr(gym.registry.get(new_id), "entry_point", "")):
        quiet = mujoco_gl.deferred()  # Else remarks on models go to a file where we are.
        if render_mode == "rgb_array":
            mujoco_gl.choose_backend()
    if render_mode == "rgb_array":
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # Or pygame looks for a display.
    try:
        # C code and Gymnasium note what is deprecated, once for every environment.
        with core.muted_output(), warnings.catch_warnings(), quiet:
            warnings.simplefilter("ignore")
            return gym.make(new_id, **kwargs)
    except (gym.error.NameNotFound, gym.error.NamespaceNotFound, gym.error.VersionNotFound):
        raise errors.UserError(
            f"There is no environment {new_id}{_suggestion(new_id)}. Gymnasium's names look like "
            "CartPole-v1, BreakoutNoFrameskip-v4, Walker2DBulletEnv-v0."
        ) from None
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise errors.UserError(
            f"The environment {new_id} needs a package that is missing: {errors.summary(error)}"
        ) from None
    except gym.error.Error as error:
        raise errors.UserError(
            f"Cannot make the environment {new_id}: {errors.summary(error)}"
        ) from None


def _suggestion(env_id: str) -> str:
    import difflib

    close = difflib.get_close_matches(env_id, list(gym.registry), n=1, cutoff=0.8)
    return f" (do you mean {close[0]}?)" if close else ""


def _wrapper_list(wrappers: Any) -> list[tuple[str, dict[str, Any]]]:
    if not wrappers:
        return []
    found = []
    for entry in wrappers if isinstance(wrappers, Sequence) and not isinstance(
        wrappers, str
    ) else [wrappers]:
        if isinstance(entry, Mapping) and len(entry) == 1:
            (path, kwargs), = entry.items()
            found.append((str(path), dict(kwargs or {})))
        elif isinstance(entry, str):
            found.append((entry, {}))
        else:
            raise errors.UserError(f"Cannot read env_wrapper {entry!r} in config.yml.")
    return found


def _wrapper_class(path: str) -> Any:
    if not path.startswith(_TRUSTED_WRAPPERS):
        raise errors.UserError(
            f"config.yml names the wrapper {path}, which is not of a library that is trusted here "
            f"({', '.join(prefix.rstrip('.') for prefix in _TRUSTED_WRAPPERS)}): not loaded."
        )
    module, _, name = path.rpartition(".")
    try:
        wrapper = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise errors.UserError(f"config.yml names the wrapper {path}: there is none.") from None
    if not (isinstance(wrapper, type) and issubclass(wrapper, gym.Wrapper)):
        raise errors.UserError(f"config.yml names {path}, which is not an environment wrapper.")
    return wrapper


class _QuietReset(gym.Wrapper):
    """Keeps PyBullet's C code, which greets at every connection, off the terminal."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        with core.muted_output():
            return self.env.reset(**kwargs)


class StackFrames(gym.Wrapper):
    """Stacks the last images, oldest first, channels first; black before an episode's start.

    What SB3's VecFrameStack and VecTransposeImage give together. Observations: uint8 [N*C, H, W]
    for images [H, W, C].
    """

    def __init__(self, env: gym.Env, num_frames: int):
        super().__init__(env)
        height, width, channels = env.observation_space.shape
        self._channels = channels
        self._frames = np.zeros((num_frames * channels, height, width), np.uint8)
        self.observation_space = gym.spaces.Box(0, 255, self._frames.shape, np.uint8)

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode."""
        observation, info = self.env.reset(**kwargs)
        self._frames = np.zeros_like(self._frames)
        return self._push(observation), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._push(observation), reward, terminated, truncated, info

    def _push(self, image: np.ndarray) -> np.ndarray:
        self._frames = np.concatenate(
            [self._frames[self._channels :], image.transpose(2, 0, 1)], axis=0
        )
        return self._frames
