"""Reads the settings that rl-baselines3-zoo tuned for a task, from the files of its package.

The package itself is not imported: that takes seconds, which would count as the agent's. Imports no
framework.
"""

import ast
import dataclasses
import importlib.util
import os
import re
from typing import Any

from actorQ.core import errors
from actorQ.core import yaml_files

_PACKAGE = "rl_zoo3"
_DEFAULT = "default"  # Entry for tasks that a file does not list.
_MUJOCO = "HalfCheetah-v4"  # Entry of the zoo's settings for MuJoCo.
# Parts of an entry that change the environment, or need more than one of them.
_NOT_TAKEN = (
    "callback", "env_kwargs", "env_wrapper", "frame_stack", "monitor_kwargs", "n_envs",
    "normalize", "replay_buffer_class", "vec_env_wrapper",
)
_PYTHON = ("policy_kwargs", "replay_buffer_kwargs")  # Parts that may be texts in Python.
_FALLING = "lin_"  # Start of a step size that falls to 0.


@dataclasses.dataclass(frozen=True)
class Tuned:
    """An entry of the zoo."""

    entry: str  # Its name.
    steps: int  # Environment steps over which schedules run.
    settings: dict[str, Any]  # Arguments of the agent.
    # First step size, where it falls linearly to 0 over `steps`; None: `settings` has it.
    falling_step_size: float | None


def read(algorithm: str, taskstr: str) -> Tuned:
    """Returns the settings of an agent for a task.

    - The tasks of dm_control take the settings for MuJoCo, since the zoo lists none of them.
    - A task that is listed in another version only takes the entry of that version.
    - Any other task that is not listed takes the zoo's `default`.

    Args:
      algorithm: Name of one of the zoo's files: sac, td3 or dqn.
      taskstr: Task as 'suite,task', or its bare name.

    Raises:
      errors.UserError: The entry needs what this peer does not have.
    """
    entries = yaml_files.read(os.path.join(_folder(), f"{algorithm}.yml"))
    entry = _entry(entries, taskstr)
    settings = dict(entries[entry])
    steps = int(settings.pop("n_timesteps"))
    if unusable := sorted(settings.keys() & set(_NOT_TAKEN)):
        raise errors.UserError(
            f"The zoo's settings of {algorithm} for {entry} have {', '.join(unusable)}, which the "
            "peer does not take."
        )
    for name in _PYTHON:
        if isinstance(settings.get(name), str):
            settings[name] = _value(settings[name])
    if isinstance(settings.get("train_freq"), list):
        settings["train_freq"] = tuple(settings["train_freq"])
    rate, falling = settings.get("learning_rate"), None
    if isinstance(rate, str):
        falling = float(settings.pop("learning_rate").removeprefix(_FALLING))
    return Tuned(entry, steps, settings, falling)


def _folder() -> str:
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise errors.UserError(f"{_PACKAGE} is not installed: run ./setup_ubuntu.sh.")
    return os.path.join(os.path.dirname(found.origin), "hyperparams")


def _entry(entries: dict[str, Any], taskstr: str) -> str:
    suite, _, task = taskstr.partition(",")
    name = _MUJOCO if suite == "dm_control" else task or suite
    if name in entries:
        return name
    others = [key for key in entries if _unversioned(key) == _unversioned(name)]
    return max(others, default=_DEFAULT)


def _unversioned(name: str) -> str:
    return re.sub(r"-v\d+$", "", name)


def _value(text: str) -> Any:
    """Returns the value of a text like 'dict(net_arch=[64, 64])' without running it."""
    body = ast.parse(text.strip(), mode="eval").body
    if isinstance(body, ast.Call) and ast.unparse(body.func) == "dict":
        return {str(each.arg): ast.literal_eval(each.value) for each in body.keywords}
    return ast.literal_eval(body)
