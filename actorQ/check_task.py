"""Tells what this project makes of a task before a training, and which flags are advised.

    python -m actorQ.check_task gym,my_tasks:MyEnv-v0

Imports no framework.
"""

import shlex
from typing import Any

from absl import flags

from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import provenance
from actorQ.environments import checking
from actorQ.environments import suites

_OF_THE_TASK = ("max_episode_steps", "action_limit", "env_kwargs")  # Flags of a training, too.


def define_flags() -> None:
    """Defines the flags of this tool."""
    flags.DEFINE_integer("steps", 2000, "Agent steps of random play, >= 1.", lower_bound=1)
    config_flags.define_flags(("seed", *_OF_THE_TASK))


def main(argv: list[str]) -> int:
    """Checks one task; see `cli.run` for errors."""
    if len(argv) != 2:
        raise errors.UserError("takes one argument: the task, for example gym,CartPole-v1.")
    values, task = flags.FLAGS, argv[1]
    chosen: dict[str, Any] = {name: values[name].value for name in ("seed", *_OF_THE_TASK)}
    config = config_lib.RunConfig(taskstr=task, **chosen)
    found = checking.check(
        lambda: suites.make_for(config, config.seed), values.steps, config.seed
    )
    for heading, text in checking.describe(found).items():
        print(f"{heading + ':':14}{text}.")
    for note in found.notes:
        print(f"{'Note:':14}{note}")
    for text in found.complaints:
        print(f"{'Gymnasium:':14}{text}")
    sentences, advised = checking.advice(found, provenance.usable_cores())
    for sentence in sentences:
        print(f"{'Advice:':14}{sentence}")
    given = [
        f"--{name}={values[name].value}" for name in _OF_THE_TASK if values[name].present
    ]
    command = ["./run_multiprocess.sh", f"--taskstr={task}", *given, *advised]
    print(f"{'Train on it:':14}{shlex.join(command)}")
    return 0


if __name__ == "__main__":
    define_flags()
    flags.adopt_module_key_flags(config_flags)
    cli.run(main, takes_arguments=True, name="check_task")
