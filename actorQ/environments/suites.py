"""Builds the tasks that agents act in, from a task string such as `dm_control,cheetah_run`.

Actors, the evaluator and every tool that shows or tests a policy use it. A suite's own packages
are imported when one of its tasks is made, never before.
"""

import ast
from collections.abc import Mapping
import contextlib
import importlib
import re
from typing import Any

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
# Gymnasium's ids of Atari's games have these parts besides the name.
_ATARI_ID = re.compile(r"^ALE/|(NoFrameskip|Deterministic)?-v\d+$|-ram(?=-v\d+$)")
# Earlier versions had this --max_episode_steps for every task, and it meant "at most".
_FORMER_DEFAULT = 1000


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
            f"the task string {taskstr!r} names no task: write suite,task, for "
            "example dm_control,cheetah_run"
        )
    return suite, task


def make(
    taskstr: str,
    seed: int,
    max_episode_steps: int = 0,
    scale_observations: bool = False,
    action_limit: float = 1.0,
    env_kwargs: str = "",
) -> base.Environment:
    """Builds an environment.

    Args:
      taskstr: `suite,task`, see `parse_taskstr`.
      seed: Non-negative. Two environments with the same task and seed behave identically,
        through every episode.
      max_episode_steps: Agent steps after which an episode is cut (LAST with discount 1),
        where the task's own limit is not shorter; 0 for the task's own limit.
      scale_observations: See `Environment.scale_observations`.
      action_limit: Size of the largest action where the task gives no bound, in its own units.
      env_kwargs: Arguments for the task's constructor, see `parse_env_kwargs`.

    Returns:
      The environment, not yet reset.

    Raises:
      TaskError: The task does not exist, its packages are missing, or its spaces are of a
        kind that no agent here supports, or have no bounds to scale observations by.
    """
    suite, task = parse_taskstr(taskstr)
    if seed < 0:
        raise task_errors.TaskError(f"the seed of an environment is {seed}; it must be 0 or more")
    if max_episode_steps < 0:
        raise task_errors.TaskError(
            f"max_episode_steps is {max_episode_steps}; it must be 0 or more"
        )
    options = base.Options(max_episode_steps, action_limit, parse_env_kwargs(env_kwargs))
    try:
        environment = importlib.import_module(_MODULES[suite]).make(suite, task, seed, options)
    except task_errors.UnknownTaskError:
        if elsewhere := _elsewhere(suite, task):
            raise task_errors.TaskError(
                f"suite {suite} has no task {task!r}: write {elsewhere}"
            ) from None
        raise
    if scale_observations:
        try:
            environment.scale_observations()
        except task_errors.TaskError:
            environment.close()
            raise
    return environment


def make_for(config: config_lib.RunConfig, seed: int) -> base.Environment:
    """Builds the environment that the processes of a run act and evaluate in; see `make`."""
    environment = make(
        config.taskstr, seed, config.max_episode_steps, bool(config.scale_observations),
        config.action_limit, config.env_kwargs,
    )
    if not config.scale_observations:
        environment.scale_bytes()
    return environment


def require_limit(config: config_lib.RunConfig, environment: base.Environment) -> None:
    """Checks that a new run does not ask for longer episodes than the task has.

    Raises:
      TaskError: It does.
    """
    asked, own = config.max_episode_steps, environment.limit.own
    if asked > own and asked != _FORMER_DEFAULT:
        raise task_errors.TaskError(
            f"{config.taskstr} ends its episodes after {own:,.0f} steps by itself, which "
            f"--max_episode_steps={asked} does not change: leave the flag out, or register the "
            "task with a longer limit (gymnasium.register)"
        )


def make_from(facts: Mapping[str, Any], seed: int) -> base.Environment:
    """Builds the environment that a policy was trained in, without a scale of observations.

    Args:
      facts: What the policy's file says; older files lack the last two facts.
      seed: See `make`.

    Raises:
      TaskError: As in `make`.
    """
    return make(
        facts["taskstr"], seed, facts["max_episode_steps"],
        action_limit=facts.get("action_limit", 1.0), env_kwargs=facts.get("env_kwargs", ""),
    )


def _elsewhere(suite: str, task: str) -> str:
    """Returns the task string of a task that another suite has; "" if none has it."""
    game = _ATARI_ID.sub("", task)
    for other in SUITES:
        if other != suite:
            with contextlib.suppress(task_errors.TaskError):  # Its packages may be missing.
                names = list_tasks(other)
                for name in [task, *([game] if other == "atari" else [])]:
                    if name in names:
                        return f"{other},{name}"
    return ""


def parse_env_kwargs(text: str) -> dict[str, Any]:
    """Returns arguments for a task's constructor.

    Args:
      text: `name:value,name:value`; a value is a Python literal or else a word. Brackets keep
        commas together.

    Raises:
      TaskError: The text is no such list.
    """
    found: dict[str, Any] = {}
    for part in _split(text):
        name, colon, value = part.partition(":")
        if not colon or not name.strip().isidentifier():
            raise task_errors.TaskError(
                f"--env_kwargs={text} is not possible at {part!r}: write name:value,name:value, "
                "for example --env_kwargs=gravity:-5.0,enable_wind:True"
            )
        try:
            found[name.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            found[name.strip()] = value.strip()
    return found


def _split(text: str) -> list[str]:
    """Splits a text at the commas that stand in no bracket and no quotation mark."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if letter == "," and not depth and not quote:
            parts.append("")
            continue
        parts[-1] += letter
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter in "([{") - (letter in ")]}")
    return [part.strip() for part in parts if part.strip()]


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
