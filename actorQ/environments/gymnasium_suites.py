"""Serves gymnasium's tasks: suites `gym`, `mujoco` and `pybullet`, and any task of a user's own.

`gym,ID` takes every id that gymnasium knows and `gym,package.module:ID` imports the module that
registers ID first. gymnasium's own wrappers (order check, passive checker, time limit) are left
out, because `base.Environment` does the necessary part of their work.
"""

import contextlib
import dataclasses
import importlib
import inspect
import os
from typing import Any

from actorQ.environments import base
from actorQ.environments import gymnasium_adapter
from actorQ.environments import mujoco_gl
from actorQ.environments import native_output
from actorQ.environments import task_errors

# These modules of gymnasium and its extensions hold tasks that belong to other suites. phys2d and
# tabular hold re-implementations in JAX of tasks that `gym` lists already.
_MUJOCO_MODULES = "gymnasium.envs.mujoco"
_PYBULLET_MODULES = "pybullet_envs_gymnasium"
_ATARI_MODULES = "ale_py"
_UNLISTED_MODULES = (
    _MUJOCO_MODULES,
    _PYBULLET_MODULES,
    _ATARI_MODULES,
    "gymnasium.envs.phys2d",
    "gymnasium.envs.tabular",
)
# Agent steps per episode of old ids whose successor has another limit.
_OWN_LIMITS = {"CartPole-v0": 200}

# Ids whose classes refuse to run with MuJoCo 3.
_REFUSING_IDS = ("Pusher-v4",)


def make(suite: str, task: str, seed: int, options: base.Options) -> base.Environment:
    """Builds a task by its gymnasium id, for `gym` also `module:id`; see `suites.make`.

    The next version replaces one that gymnasium no longer has or cannot run, and a note says so.
    """
    gymnasium = import_gymnasium()
    module, colon, task_id = task.rpartition(":")
    if colon:
        try:
            importlib.import_module(module)
        # The user's module may raise anything, and that is the reason to report.
        except Exception as error:
            raise task_errors.TaskError(
                f"task {task!r} cannot be used, since importing {module} failed: "
                f"{task_errors.one_line(error)}{task_errors.place(error)}"
            ) from error
    _import_suite(suite)
    spec, own_limit, note = _find_spec(suite, task_id)
    if not colon and _entry_module(spec).startswith(_ATARI_MODULES):
        # Some other import has registered it. The suite atari has the usual preprocessing.
        raise task_errors.unknown_task(suite, task_id, _ids(suite))
    name = f"{suite},{task}"
    raw = build(gymnasium, spec, name, **options.kwargs)
    environment = gymnasium_adapter.GymnasiumEnvironment(raw, name, seed, options, own_limit)
    environment.notes += [note] if note else []
    return environment


def list_tasks(suite: str) -> list[str]:
    """Lists ids such as `CartPole-v1`, without those of other suites; see `suites.list_tasks`."""
    import_gymnasium()
    _import_suite(suite)
    return _ids(suite)


def import_gymnasium() -> Any:
    """Imports gymnasium, and stops pygame from printing a greeting and from opening a display.

    Raises:
      TaskError: Gymnasium is not installed.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    with task_errors.importing("gymnasium", "'gymnasium[box2d,mujoco]'"):
        return importlib.import_module("gymnasium")


def build(gymnasium: Any, spec: Any, name: str, **kwargs: Any) -> Any:
    """Builds a registered task without gymnasium's checking and time limit wrappers.

    Args:
      gymnasium: The module.
      spec: The task's `EnvSpec`.
      name: Name for messages.
      **kwargs: For the task's constructor.

    Returns:
      The `gymnasium.Env`.

    Raises:
      TaskError: The constructor failed.
    """
    bare = dataclasses.replace(spec, order_enforce=False, disable_env_checker=True)
    uses_mujoco = _entry_module(spec).startswith(_MUJOCO_MODULES)
    with mujoco_gl.deferred() if uses_mujoco else contextlib.nullcontext():
        with task_errors.building(name):
            if _draws_pictures(spec):
                kwargs.setdefault("render_mode", "rgb_array")
            return gymnasium.make(bare, max_episode_steps=-1, **kwargs)


def _draws_pictures(spec: Any) -> bool:
    """Returns whether a task's class renders arrays and takes a `render_mode`."""
    registration = importlib.import_module("gymnasium.envs.registration")
    creator = spec.entry_point
    if not callable(creator):
        creator = registration.load_env_creator(creator)
    parameters = inspect.signature(creator).parameters
    metadata = getattr(creator, "metadata", None)
    if isinstance(metadata, property):  # A `gymnasium.Wrapper` takes its metadata from inside.
        return "render_mode" in parameters
    modes = (metadata or {}).get("render_modes") or ()
    takes_mode = "render_mode" in parameters or any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    return "rgb_array" in modes and takes_mode


def _import_suite(suite: str) -> None:
    """Imports the packages that register a suite's tasks."""
    if suite == "mujoco":
        with task_errors.importing("MuJoCo", "'gymnasium[mujoco]'"), mujoco_gl.deferred():
            pass  # This imports mujoco without OpenGL.
    elif suite == "pybullet":
        with task_errors.importing(
            "suite pybullet", "pybullet_envs_gymnasium"
        ), native_output.muted():
            importlib.import_module("pybullet")
            importlib.import_module(_PYBULLET_MODULES)


def _find_spec(suite: str, task_id: str) -> tuple[Any, int | None, str]:
    """Returns the registered task that an id stands for, with its limit of agent steps, if any.

    The third value is a sentence on an id that another one replaces, else "".
    """
    registration = importlib.import_module("gymnasium.envs.registration")
    error_module = importlib.import_module("gymnasium.error")
    try:
        namespace, name, version = registration.parse_env_id(task_id)
    except error_module.Error as error:
        raise task_errors.TaskError(
            f"{task_id!r} is no gymnasium id ({task_errors.one_line(error)})"
        ) from error
    versions = {
        spec.version: spec
        for spec in registration.registry.values()
        if spec.namespace == namespace
        and spec.name == name
        and _runs(spec)
        and _belongs(spec, suite)
    }
    if version in versions:
        spec = versions[version]
        return spec, spec.max_episode_steps, ""
    newer = [
        other for other in versions if other is not None and (version is None or other > version)
    ]
    if not newer:
        raise task_errors.unknown_task(
            suite,
            task_id,
            _ids(suite),
            "for a task of your own write gym,your_module:YourTask-v0" if suite == "gym" else "",
        )
    # The next version is nearest in behaviour. An id without a version means the newest.
    spec = versions[max(newer) if version is None else min(newer)]
    limit = _OWN_LIMITS.get(task_id, spec.max_episode_steps)
    return spec, limit, (
        f"{task_id} is not available in this gymnasium: {spec.id} replaces it (episodes of at most "
        f"{limit} steps)."
    )


def _ids(suite: str) -> list[str]:
    """Returns the sorted ids that a suite lists. Its packages must be imported already."""
    registry = importlib.import_module("gymnasium.envs.registration").registry
    return sorted(
        spec.id
        for spec in registry.values()
        if _runs(spec)
        and _belongs(spec, suite)
        and not (suite == "gym" and _entry_module(spec).startswith(_UNLISTED_MODULES))
    )


def _belongs(spec: Any, suite: str) -> bool:
    """Returns whether a suite serves a registered task."""
    home = {"mujoco": _MUJOCO_MODULES, "pybullet": _PYBULLET_MODULES, "gym": ""}[suite]
    return _entry_module(spec).startswith(home)


def _runs(spec: Any) -> bool:
    """Returns whether a task still runs; some ids only tell that a task has been removed."""
    if spec.id in _REFUSING_IDS:
        return False
    return not getattr(spec.entry_point, "__name__", "").startswith("_raise_")


def _entry_module(spec: Any) -> str:
    """Returns the module that a registered task's class comes from."""
    entry = spec.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
