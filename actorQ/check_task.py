"""Tells what this project makes of a task before a training, and which flags are advised.

    python -m actorQ.check_task gym,my_tasks:MyEnv-v0

Imports no framework.
"""

import shlex

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import provenance
from actorQ.environments import base
from actorQ.environments import checking
from actorQ.environments import suites


def define_flags() -> None:
    """Defines the flags of this tool."""
    flags.DEFINE_integer("steps", 2000, "Agent steps of random play, >= 1.", lower_bound=1)
    flags.DEFINE_integer("seed", 0, "Seed of the task and of the actions, >= 0.", lower_bound=0)
    flags.DEFINE_integer(
        "max_episode_steps", 0, "Longest episode, agent steps; 0: the task's own limit.",
        lower_bound=0,
    )
    flags.DEFINE_float(
        "action_limit", 1.0,
        "Size of the largest action, in the task's own units, wherever the task gives no bound.",
        lower_bound=1e-6, upper_bound=1e6,
    )
    flags.DEFINE_string(
        "env_kwargs", "", "Arguments for the task's constructor: name:value,name:value."
    )


def main(argv: list[str]) -> int:
    """Checks one task; see `cli.run` for errors."""
    if len(argv) != 2:
        raise errors.UserError("takes one argument: the task, for example gym,CartPole-v1.")
    values, task = flags.FLAGS, argv[1]

    def make() -> base.Environment:
        return suites.make(
            task, values.seed, values.max_episode_steps, action_limit=values.action_limit,
            env_kwargs=values.env_kwargs,
        )

    found = checking.check(make, values.steps, values.seed)
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
        f"--{name}={values[name].value}"
        for name in ("max_episode_steps", "action_limit", "env_kwargs") if values[name].present
    ]
    command = ["./run_multiprocess.sh", f"--taskstr={task}", *given, *advised]
    print(f"{'Train on it:':14}{shlex.join(command)}")
    return 0


if __name__ == "__main__":
    define_flags()
    cli.run(main, takes_arguments=True, name="check_task")
