"""Makes Gymnasium environments by the names with which the zoo's agents were saved.

Renamed environments become their successors.
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

from actorQ.core import errors
from actorQ.environments import mujoco_gl
from actorQ.environments import native_output
from baseline.tasks import navigation
from baseline.tasks import wrappers as wrappers_lib

_RENAMED = {
    "LunarLander-v2": ("LunarLander-v3", {}),
    "LunarLanderContinuous-v2": ("LunarLander-v3", {"continuous": True}),
    "LunarLanderContinuous-v3": ("LunarLander-v3", {"continuous": True}),
    "Pendulum-v0": ("Pendulum-v1", {}),
    "BipedalWalker-v2": ("BipedalWalker-v3", {}),
    "BipedalWalkerHardcore-v2": ("BipedalWalkerHardcore-v3", {}),
    # -v4 refuses MuJoCo 3. -v5 has a heavier object, and rewards the state after a step.
    "Pusher-v2": ("Pusher-v5", {}),
    "Pusher-v4": ("Pusher-v5", {}),
}
# -v4 is closest to -v2 and -v3 in dynamics and observations. -v5 changed rewards as well.
_MUJOCO = re.compile(
    r"^(Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup|Swimmer|Walker2d|Reacher|"
    r"InvertedPendulum|InvertedDoublePendulum)-v[123]$"
)
_WITH_FORCES = re.compile(r"^(Ant|Humanoid|HumanoidStandup)-v[23]$")
# Names have no colon, because Gymnasium would import the module before it.
_NAME = re.compile(r"(?:[\w.-]+/)?[\w.-]+", re.ASCII)
_VERSIONED = re.compile(r"-v\d+$")
OWN_MODULES = "QUARL_ENVIRONMENTS"  # Variable with modules that register environments.
# Observations that policies can be quantized for, alone or in a Dict.
_OBSERVED = (
    gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary,
)
_LONGEST_NAME = 100
_MOST_FRAMES = 100
_PACKAGES = {"ale_py": "ale-py", "pybullet_envs_gymnasium": "pybullet_envs_gymnasium"}
_told: set[str] = set()


def check_name(env_id: str) -> None:
    """Checks that a name is one of Gymnasium's kind and not, for example, a path.

    Raises:
      errors.UserError: The name is of another kind.
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
    """Returns the name under which agents of an environment are trained and saved.

    This is the successor's name, except where the old name says more: LunarLanderContinuous-v2
    becomes LunarLanderContinuous-v3.
    """
    today = successor(env_id)
    if successor_kwargs(env_id):
        base, version = re.sub(r"-v\d+$", "", env_id), today.rpartition("-")[2]
        return f"{base}-{version}"
    return today


def own_modules() -> list[str]:
    """Returns the modules that $QUARL_ENVIRONMENTS names, whose code the user trusts."""
    modules = os.environ.get(OWN_MODULES, "").split(",")
    return [module.strip() for module in modules if module.strip()]


def register() -> list[str]:
    """Registers our environments, Atari's, PyBullet's and the user's.

    Returns:
      Packages that are not installed.

    Raises:
      errors.UserError: A module that $QUARL_ENVIRONMENTS names cannot be imported.
    """
    navigation.register()
    # This is not a flag, because worker processes and readers of agents need it as well.
    for module in own_modules():
        try:
            importlib.import_module(module)
        except Exception as error:  # A user's module may raise anything.
            raise errors.UserError(
                f"{OWN_MODULES} names {module}, which cannot be imported: "
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


def may_exist(env_id: str) -> bool:
    """Returns whether a name is an environment's: it is registered, or has a version (-v1)."""
    if _VERSIONED.search(env_id):
        return True  # Its package may be missing: `make` tells which.
    register()
    return env_id in gym.registry


def make(
    env_id: str,
    wrappers: Any = None,
    frame_stack: int = 1,
    env_kwargs: Mapping[str, Any] | None = None,
    render_mode: str | None = None,
) -> gym.Env:
    """Makes an environment as the zoo does: a monitor inside, the configured wrappers around it.

    Args:
      env_id: Name, possibly an old one.
      wrappers: The value of `env_wrapper` in a zoo configuration; see `wrappers.load`.
      frame_stack: Observations to stack, >= 1; see `wrappers.StackFrames`.
      env_kwargs: Keyword arguments for the environment itself.
      render_mode: None, "rgb_array" or "human".

    Raises:
      errors.UserError: There is no such environment, a package is missing, or the configuration
        does not fit the environment.
    """
    # SB3 loads torch, which `python -m ... --help` must not wait for.
    from stable_baselines3.common import monitor
    from stable_baselines3.common import preprocessing

    check_name(env_id)
    if type(frame_stack) is not int or not 1 <= frame_stack <= _MOST_FRAMES:
        raise errors.UserError(
            f"config.yml has frame_stack {reprlib.repr(frame_stack):.200}: it must be 1 to "
            f"{_MOST_FRAMES}."
        )
    # Wrong wrappers must fail before anything is opened.
    around = wrappers_lib.load(wrappers)
    plain = _make_plain(env_id, env_kwargs, render_mode)
    if _WITH_FORCES.match(env_id):
        plain = wrappers_lib.NoContactForces(plain)
    env = monitor.Monitor(wrappers_lib.QuietReset(plain) if "Bullet" in env_id else plain)
    for path, wrapper, kwargs in around:
        try:
            env = wrapper(env, **kwargs)
        except Exception as error:  # A wrapper may raise anything for unknown arguments.
            env.close()
            raise errors.UserError(
                f"The wrapper {path} that env_wrapper names does not fit {env_id}: "
                f"{errors.summary(error)}"
            ) from None
    space = env.observation_space
    channels_last = (
        isinstance(space, gym.spaces.Box)
        and preprocessing.is_image_space(space)
        and not preprocessing.is_image_space_channels_first(space)
    )
    if frame_stack == 1 and not channels_last:
        return env
    try:
        return wrappers_lib.StackFrames(env, frame_stack)
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
    kwargs.pop("render_mode", None)  # A configuration must not open windows.
    if render_mode is not None:
        kwargs["render_mode"] = render_mode
    quiet: contextlib.AbstractContextManager = contextlib.nullcontext()
    if ".mujoco." in str(getattr(gym.registry.get(new_id), "entry_point", "")):
        if render_mode == "rgb_array":
            mujoco_gl.choose_backend()  # MuJoCo reads it when it is imported.
        elif render_mode is None:
            quiet = mujoco_gl.deferred()  # Remarks on models must not go to a file here.
    if render_mode == "rgb_array":
        # pygame must not look for a display.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    try:
        # C code and Gymnasium print deprecations, once for every environment.
        with native_output.muted(), warnings.catch_warnings(), quiet:
            warnings.simplefilter("ignore")
            return gym.make(new_id, **kwargs)
    except (gym.error.NameNotFound, gym.error.NamespaceNotFound, gym.error.VersionNotFound):
        raise errors.UserError(
            f"There is no environment {new_id}{_suggestion(new_id)}. Gymnasium's names look like "
            "CartPole-v1, BreakoutNoFrameskip-v4, Walker2DBulletEnv-v0"
            + (f"; not installed: {', '.join(lacking)}. " if lacking else ". ")
            + f"Your own is found where {OWN_MODULES} names the module that registers it."
        ) from None
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise errors.UserError(
            f"The environment {new_id} needs a package that is missing: {errors.summary(error)}"
        ) from None
    except Exception as error:  # Each environment has its own errors for wrong arguments.
        raise errors.UserError(
            f"Cannot make the environment {new_id}: {errors.summary(error)}"
        ) from None


def _suggestion(env_id: str) -> str:
    import difflib

    close = difflib.get_close_matches(env_id, list(gym.registry), n=1, cutoff=0.8)
    return f" (do you mean {close[0]}?)" if close else ""


def check_observations(space: gym.Space) -> None:
    """Checks that a policy with such observations can be quantized here.

    Raises:
      errors.UserError: The observations are of another kind.
    """
    inner = list(space.spaces.values()) if isinstance(space, gym.spaces.Dict) else [space]
    other = next((part for part in inner if not isinstance(part, _OBSERVED)), None)
    if other is None and not inner:
        other = space
    if other is not None:
        inside = "" if other is space else f" inside a {type(space).__name__} space"
        raise errors.UserError(
            f"Observations of a {type(other).__name__} space{inside} have no quantized form here. "
            "Those of Box, Discrete, MultiDiscrete and MultiBinary spaces have one, and a Dict of "
            "them. env_wrapper:gymnasium.wrappers.FlattenObservation makes one array of others."
        )
