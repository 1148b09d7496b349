"""Gymnasium environments by the names that the zoo's agents were saved with.

Renamed environments become their successors. Only wrappers of libraries that we know are put
around an environment, since a configuration file may name any.
"""

from collections.abc import Mapping
import contextlib
import importlib
import os
import re
import reprlib
from typing import Any
import warnings

from absl import logging
import gymnasium as gym
import numpy as np

from actorQ.core import errors
from actorQ.environments import mujoco_gl
from actorQ.environments import native_output
from baseline.tasks import navigation

_RENAMED = {
    "LunarLander-v2": ("LunarLander-v3", {}),
    "LunarLanderContinuous-v2": ("LunarLander-v3", {"continuous": True}),
    "LunarLanderContinuous-v3": ("LunarLander-v3", {"continuous": True}),
    "Pendulum-v0": ("Pendulum-v1", {}),
    "BipedalWalker-v2": ("BipedalWalker-v3", {}),
    "BipedalWalkerHardcore-v2": ("BipedalWalkerHardcore-v3", {}),
    # -v4 refuses MuJoCo 3. In -v5 the object is heavier, and rewards are of the state after a step.
    "Pusher-v2": ("Pusher-v5", {}),
    "Pusher-v4": ("Pusher-v5", {}),
}
# -v4 has the dynamics and observations closest to -v2 and -v3; -v5 changed rewards as well.
_MUJOCO = re.compile(
    r"^(Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup|Swimmer|Walker2d|Reacher|"
    r"InvertedPendulum|InvertedDoublePendulum)-v[123]$"
)
_WITH_FORCES = re.compile(r"^(Ant|Humanoid|HumanoidStandup)-v[23]$")
_NUM_FORCES = 84  # 6 on each of 14 bodies.
_TRUSTED_WRAPPERS = (
    "gymnasium.wrappers.",
    "stable_baselines3.common.",
    "sb3_contrib.common.wrappers.",
    "rl_zoo3.wrappers.",
)
_UNWANTED = ("RecordVideo", "Monitor", "HumanRendering")
_SECOND_NOTES = "RecordEpisodeStatistics"
_FORGETFUL = "NormalizeObservation"  # NormalizeReward is of use in training alone.
# A colon would have Gymnasium import the module before it.
_NAME = re.compile(r"(?:[\w.-]+/)?[\w.-]+", re.ASCII)
OWN_MODULES = "QUARL_ENVIRONMENTS"  # Variable: modules that register environments.
_LONGEST_NAME = 100
_MOST_FRAMES = 100
_PACKAGES = {"ale_py": "ale-py", "pybullet_envs_gymnasium": "pybullet_envs_gymnasium"}
_told: set[str] = set()


def check_name(env_id: str) -> None:
    """Checks that a name is of Gymnasium's kind and nothing that means more, such as a path.

    Raises:
      errors.UserError: it is not.
    """
    if len(env_id) > _LONGEST_NAME or not _NAME.fullmatch(env_id) or ".." in env_id:
        shown = env_id if len(env_id) <= _LONGEST_NAME else f"{env_id[:_LONGEST_NAME]}..."
        raise errors.UserError(
            f"{shown!r} cannot be the name of an environment: names look like CartPole-v1 or "
            "PongNoFrameskip-v4."
        )


def successor(env_id: str) -> str:
    """Returns the name under which an environment exists today (often the same)."""
    if env_id in _RENAMED:
        return _RENAMED[env_id][0]
    return _MUJOCO.sub(r"\1-v4", env_id)


def successor_kwargs(env_id: str) -> dict[str, Any]:
    """Returns the arguments with which the successor is what `env_id` was."""
    return dict(_RENAMED[env_id][1]) if env_id in _RENAMED else {}


def training_name(env_id: str) -> str:
    """Returns the name by which an environment is trained on and saved: its successor's version.

    That is the successor itself, but where the name says more: LunarLanderContinuous-v2 becomes
    LunarLanderContinuous-v3.
    """
    today = successor(env_id)
    if successor_kwargs(env_id):
        base, version = re.sub(r"-v\d+$", "", env_id), today.rpartition("-")[2]
        return f"{base}-{version}"
    return today


def register() -> list[str]:
    """Makes names known: ours, Atari's, PyBullet's and the user's; returns the packages that lack.

    Raises:
      errors.UserError: a module that $QUARL_ENVIRONMENTS names cannot be imported.
    """
    navigation.register()
    # Not a flag: worker processes, and what reads an agent, must know of it as well.
    for module in filter(None, os.environ.get(OWN_MODULES, "").split(",")):
        try:
            importlib.import_module(module.strip())
        except Exception as error:  # Whatever it does when it is imported.
            raise errors.UserError(
                f"{OWN_MODULES} names {module.strip()}, which cannot be imported: "
                f"{errors.summary(error)}"
            ) from None
    lacking = []
    for module, package in _PACKAGES.items():
        try:
            with native_output.muted():
                importlib.import_module(module)
        except ImportError:
            lacking.append(package)
    return lacking


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
      frame_stack: observations to stack, >= 1, see `StackFrames`.
      env_kwargs: for the environment itself.
      render_mode: None, "rgb_array" or "human".

    Raises:
      errors.UserError: there is no such environment, what it needs is missing, or the
        configuration does not fit it.
    """
    # Not at the top: SB3 loads torch, which `python -m ... --help` can do without.
    from stable_baselines3.common import monitor
    from stable_baselines3.common import preprocessing

    check_name(env_id)
    if type(frame_stack) is not int or not 1 <= frame_stack <= _MOST_FRAMES:
        raise errors.UserError(
            f"config.yml has frame_stack {reprlib.repr(frame_stack):.200}: not 1 or a few more."
        )
    # What is wrong with the wrappers is found out before anything is opened.
    around = [(path, _wrapper_class(path), kwargs) for path, kwargs in _wrapper_list(wrappers)]
    plain = _make_plain(env_id, env_kwargs, render_mode)
    if _WITH_FORCES.match(env_id):
        plain = NoContactForces(plain)
    env = monitor.Monitor(_QuietReset(plain) if "Bullet" in env_id else plain)
    for path, wrapper, kwargs in around:
        try:
            env = wrapper(env, **kwargs)
        except Exception as error:  # Whatever it makes of a stranger's arguments.
            env.close()
            raise errors.UserError(
                f"The wrapper {path} that env_wrapper names does not fit {env_id}: "
                f"{errors.summary(error)}"
            ) from None
    space = env.observation_space
    channels_last = preprocessing.is_image_space(
        space
    ) and not preprocessing.is_image_space_channels_first(space)
    if frame_stack == 1 and not channels_last:
        return env
    try:
        return StackFrames(env, frame_stack)
    except errors.UserError:
        env.close()
        raise


def _make_plain(
    env_id: str, env_kwargs: Mapping[str, Any] | None, render_mode: str | None
) -> gym.Env:
    lacking = register()
    new_id = successor(env_id)
    if new_id != env_id and env_id not in _told:
        _told.add(env_id)
        logging.info("%s does not exist any more: using its successor %s.", env_id, new_id)
    if not isinstance(env_kwargs, Mapping | None):
        raise errors.UserError(
            f"env_kwargs are {reprlib.repr(env_kwargs):.200} instead of names with values."
        )
    kwargs = {**successor_kwargs(env_id), **(env_kwargs or {})}
    kwargs.pop("render_mode", None)  # How it is shown is not for a configuration to say.
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    quiet: contextlib.AbstractContextManager = contextlib.nullcontext()
    if ".mujoco." in str(getattr(gym.registry.get(new_id), "entry_point", "")):
        if render_mode == "rgb_array":
            mujoco_gl.choose_backend()  # Which MuJoCo asks for when it is imported.
        elif render_mode is None:
            quiet = mujoco_gl.deferred()  # Else remarks on models go to a file where we are.
    if render_mode == "rgb_array":
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # Or pygame looks for a display.
    try:
        # C code and Gymnasium note what is deprecated, once for every environment.
        with native_output.muted(), warnings.catch_warnings(), quiet:
            warnings.simplefilter("ignore")
            return gym.make(new_id, **kwargs)
    except (gym.error.NameNotFound, gym.error.NamespaceNotFound, gym.error.VersionNotFound):
        raise errors.UserError(
            f"There is no environment {new_id}{_suggestion(new_id)}. Gymnasium's names look like "
            "CartPole-v1, BreakoutNoFrameskip-v4, Walker2DBulletEnv-v0"
            + (f"; not installed: {', '.join(lacking)}." if lacking else ".")
        ) from None
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise errors.UserError(
            f"The environment {new_id} needs a package that is missing: {errors.summary(error)}"
        ) from None
    except Exception as error:  # Each has its own for what configurations ask of it.
        raise errors.UserError(
            f"Cannot make the environment {new_id}: {errors.summary(error)}"
        ) from None


def _suggestion(env_id: str) -> str:
    import difflib

    close = difflib.get_close_matches(env_id, list(gym.registry), n=1, cutoff=0.8)
    return f" (do you mean {close[0]}?)" if close else ""


def check_wrappers(wrappers: Any) -> None:
    """Checks that a configuration's wrappers are of trusted libraries; see `make`.

    Raises:
      errors.UserError: one is not, or there is none of its name.
    """
    for path, _ in _wrapper_list(wrappers):
        _wrapper_class(path)


def _wrapper_list(wrappers: Any) -> list[tuple[str, dict[str, Any]]]:
    if not wrappers:
        return []
    found = []
    for entry in wrappers if isinstance(wrappers, list | tuple) else [wrappers]:
        path, kwargs = entry, None
        if isinstance(entry, Mapping) and len(entry) == 1:
            ((path, kwargs),) = entry.items()
        if not isinstance(path, str) or not isinstance(kwargs, Mapping | None):
            raise errors.UserError(f"Cannot read env_wrapper {reprlib.repr(entry):.200}.")
        found.append((path, {str(name): value for name, value in (kwargs or {}).items()}))
    return found


def _wrapper_class(path: str) -> Any:
    if not path.startswith(_TRUSTED_WRAPPERS):
        raise errors.UserError(
            f"env_wrapper names the wrapper {path}, which is not of a library that is trusted here "
            f"({', '.join(prefix.rstrip('.') for prefix in _TRUSTED_WRAPPERS)}): not loaded."
        )
    module, _, name = path.rpartition(".")
    try:
        wrapper = getattr(importlib.import_module(module), name)
    except Exception:  # Not only ImportError: some modules find other packages lacking.
        raise errors.UserError(f"env_wrapper names the wrapper {path}: there is none.") from None
    if not (isinstance(wrapper, type) and issubclass(wrapper, gym.Wrapper)):
        raise errors.UserError(f"env_wrapper names {path}, which is not an environment wrapper.")
    if any(base.__name__ in _UNWANTED for base in wrapper.__mro__):
        raise errors.UserError(
            f"env_wrapper names {path}, which writes files or opens windows: not loaded."
        )
    if any(base.__name__ == _SECOND_NOTES for base in wrapper.__mro__):
        raise errors.UserError(
            f"env_wrapper names {path}, which refuses episodes that the monitor inside has noted: "
            "leave it out."
        )
    if any(base.__name__ == _FORGETFUL for base in wrapper.__mro__):
        raise errors.UserError(
            f"env_wrapper names {path}, whose statistics no file of an agent keeps: in its place, "
            "normalize:true normalizes observations."
        )
    return wrapper


def check_observations(space: gym.Space) -> None:
    """Checks that a policy that takes such observations can be quantized here.

    Raises:
      errors.UserError: they are no arrays.
    """
    if not isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary):
        raise errors.UserError(
            f"Observations of a {type(space).__name__} space, which Stable-Baselines3 encodes "
            "before its layers see them, have no quantized form here: arrays (Box, MultiBinary) "
            "have, which env_wrapper:gymnasium.wrappers.FlattenObservation makes of them."
        )


class _QuietReset(gym.Wrapper):
    """Keeps PyBullet's C code, which greets at every connection, off the terminal."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        with native_output.muted():
            return self.env.reset(**kwargs)


class NoContactForces(gym.Wrapper):
    """Gives the contact forces that observations end with as the zeros that -v2 and -v3 had.

    MuJoCo computes them since its version 2.0 only for who asks, which mujoco-py did not
    (https://github.com/openai/gym/issues/1541): the zoo's agents, which are younger, have seen
    nothing else. Of today's successors Ant-v4 leaves them out, and the others have true ones,
    whose cost HumanoidStandup takes off its rewards; here it costs nothing, as it did then.
    """

    def __init__(self, env: gym.Env):
        """Wraps an Ant, a Humanoid or a HumanoidStandup of version 4."""
        super().__init__(env)
        (size,) = env.observation_space.shape
        self._others = size if size < _NUM_FORCES else size - _NUM_FORCES
        self.observation_space = gym.spaces.Box(
            -np.inf, np.inf, (self._others + _NUM_FORCES,), env.observation_space.dtype
        )

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode; the last 84 of the observation [D] are zeros."""
        observation, info = self.env.reset(**kwargs)
        return self._without(observation), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one step, whose reward (HumanoidStandup's) takes nothing off for forces."""
        observation, reward, *ends, info = self.env.step(action)
        if "reward_impact" in info:  # Which is 0 or less.
            reward, info = reward - info["reward_impact"], {**info, "reward_impact": 0.0}
        return self._without(observation), reward, *ends, info

    def _without(self, observation: np.ndarray) -> np.ndarray:
        return np.concatenate([observation[: self._others], np.zeros(_NUM_FORCES)])


class StackFrames(gym.Wrapper):
    """Stacks the last observations, the newest last; zeros before an episode's start.

    What SB3's VecFrameStack and VecTransposeImage give together. Images uint8 [H, W, C] (or
    [C, H, W]) become [N*C, H, W]; vectors [D] become [N*D].
    """

    def __init__(self, env: gym.Env, num_frames: int):
        """Wraps an environment.

        Args:
          env: of arrays.
          num_frames: N, >= 1.

        Raises:
          errors.UserError: its observations are something else.
        """
        from stable_baselines3.common import preprocessing

        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Box) or not space.shape:
            raise errors.UserError(f"Observations of {space} cannot be stacked.")
        image = preprocessing.is_image_space(space)
        self._transposes = image and not preprocessing.is_image_space_channels_first(space)
        self._axis = 0 if image else -1
        low, high = (
            np.repeat(self._ordered(bound), num_frames, self._axis)
            for bound in (space.low, space.high)
        )
        self.observation_space = gym.spaces.Box(low, high, dtype=space.dtype)
        self._frames = np.zeros(low.shape, space.dtype)

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode."""
        observation, info = self.env.reset(**kwargs)
        self._frames = np.zeros_like(self._frames)
        return self._push(observation), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._push(observation), reward, terminated, truncated, info

    def _ordered(self, observation: np.ndarray) -> np.ndarray:
        return observation.transpose(2, 0, 1) if self._transposes else observation

    def _push(self, observation: np.ndarray) -> np.ndarray:
        newest = self._ordered(observation)
        size = newest.shape[self._axis]
        kept = self._frames[size:] if self._axis == 0 else self._frames[..., size:]
        self._frames = np.concatenate([kept, newest], axis=self._axis)
        return self._frames
