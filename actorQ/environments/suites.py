"""Builds the tasks that agents act in, from a task string such as `dm_control,cheetah_run`.

Actors, the evaluator and every tool that shows or tests a policy use it. A suite's own packages
are imported when one of its tasks is made, never before.
"""

import importlib

from actorQ.core import config as config_lib
from actorQ.environments import base
from actorQ.environments import task_errors

_GYMNASIUM = "actorQ.environments.gymnasium_suites"
# Suite name -> the module that serves it.
_MODULES = {
    "dm_control": "actorQ.environments.dm_control_suite",
    "gym": _GYMNASIUM,
    "mujoco": _GYMNASIUM,
    "pybullet": _GYMNASIUM,
    "atari": "actorQ.environments.atari",
}
SUITES = tuple(_MODULES)


def parse_taskstr(taskstr: str) -> tuple[str, str]:
    """Splits a task string into suite and task.

    Args:
        taskstr: `suite,task`; a bare task name belongs to suite `gym`.

    Returns:
        Suite (one of `SUITES`) and task name.

    Raises:
        TaskError: The suite is unknown or the task name is empty.
    """
    suite, comma, task = taskstr.partition(",")
    suite, task = (suite.strip(), task.strip()) if comma else ("gym", suite.strip())
    _check_suite(suite)
    if not task:
        raise task_errors.TaskError(
            f"the task string {taskstr!r} names no task; write suite,task, for "
            "example dm_control,cheetah_run"
        )
    return suite, task


def make(
    taskstr: str, seed: int, max_episode_steps: int = 1000, scale_observations: bool = False
) -> base.Environment:
    """Builds an environment.

    Args:
        taskstr: `suite,task`, see `parse_taskstr`.
        seed: Non-negative. Two environments with the same task and seed behave identically,
            through every episode.
        max_episode_steps: Agent steps after which an episode is cut (LAST with discount 1),
            where the task's own limit is not shorter.
        scale_observations: See `Environment.scale_observations`.

    Returns:
        The environment, not yet reset.

    Raises:
        TaskError: The task does not exist, its packages are missing, or its spaces are of a
            kind that no agent here supports, or without bounds to scale observations by.
    """
    suite, task = parse_taskstr(taskstr)
    if seed < 0:
        raise task_errors.TaskError(f"the seed of an environment is {seed}; it must be 0 or more")
    if max_episode_steps < 1:
        raise task_errors.TaskError(
            f"max_episode_steps is {max_episode_steps}; it must be 1 or more"
        )
    environment = importlib.import_module(_MODULES[suite]).make(
        suite, task, seed, max_episode_steps
    )
    if scale_observations:
        try:
            environment.scale_observations()
        except task_errors.TaskError:
            environment.close()
            raise
    return environment


def make_for(config: config_lib.RunConfig, seed: int) -> base.Environment:
    """Builds the environment that the processes of a run act and evaluate in; see `make`."""
    return make(config.taskstr, seed, config.max_episode_steps, bool(config.scale_observations))


def list_tasks(suite: str) -> list[str]:
    """Lists the task names of a suite.

    Args:
        suite: One of `SUITES`.

    Returns:
        Sorted names, each of which follows `suite,` in a task string.

    Raises:
        TaskError: The suite is unknown, or its packages are missing.
    """
    _check_suite(suite)
    return importlib.import_module(_MODULES[suite]).list_tasks(suite)


def _check_suite(suite: str) -> None:
    """Raises a `TaskError` that lists the suites where `suite` is none of them."""
    if suite not in _MODULES:
        raise task_errors.TaskError(
            f"unknown task suite {suite!r}; the suites are {', '.join(SUITES)} (a "
            "task string is suite,task)"
        )
