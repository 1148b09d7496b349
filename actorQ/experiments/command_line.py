"""The flags of `experiments.run`, and how their values are read. Imports no framework."""

from collections.abc import Sequence

from absl import flags

from actorQ.core import errors
from actorQ.core import precisions as precisions_lib
from actorQ.experiments import training

DEFAULT_PROFILE = "laptop"
_NONE = ["none"]


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags."""
    flags.DEFINE_string(
        "profile", DEFAULT_PROFILE,
        "Kind of machine that the settings are for: paper, workstation or laptop.",
        flag_values=flag_values,
    )
    flags.DEFINE_boolean(
        "smoke", False,
        "Only see that everything starts: train each task and precision for "
        f"{training.SMOKE_STEPS} learner steps, with the profile's model and batch and the first "
        "seed.", flag_values=flag_values,
    )
    flags.DEFINE_boolean(
        "dry_run", False,
        "Only print the runs, their exact commands and the expected time.",
        flag_values=flag_values,
    )
    flags.DEFINE_boolean(
        "report", False, "Make no runs, only the report from the results that are there.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "out", "", "Folder of runs and report; empty: logs/experiments/NAME-PROFILE.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "publish", "",
        "Folder to which results are copied at the end, to be committed: no logs, no checkpoints. "
        "Results that are there stay, and the report shows both. Empty: none.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "seeds", [], "Seeds, whole numbers >= 0 with commas between; empty: the experiment's.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "tasks", [],
        "Tasks, with commas between, with or without their suite; empty: the experiment's.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "precisions", [],
        "Precisions of the actors, bits from 32, 16, 8, 4, 3 with commas between, or none; empty: "
        "the experiment's.", flag_values=flag_values,
    )
    flags.DEFINE_list(
        "peers", [],
        "Other projects' agents to compare with, from acme, sb3, zoo with commas between, or none; "
        "empty: the experiment's.", flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "parallel", 1,
        "Runs at a time, each on its own share of the cores; 0: as many as have the cores that "
        "they need. Times are honest with 1 only.", lower_bound=0, upper_bound=1024,
        flag_values=flag_values,
    )


def task_names(parts: Sequence[str], tasks: Sequence[str]) -> list[str]:
    """Joins what the commas between tasks took apart: a suite and its task."""
    names, waiting = [], list(parts)
    while waiting:
        whole = ",".join(waiting[:2])
        names.append(whole if whole in tasks else waiting[0])
        del waiting[: 2 if whole in tasks else 1]
    return names


def seeds(texts: Sequence[str]) -> list[int]:
    """Reads --seeds.

    Raises:
      errors.UserError: One is not a whole number.
    """
    for text in texts:
        if not (text.isascii() and text.isdecimal()):
            raise errors.UserError(
                f"--seeds={','.join(texts)}: {text!r} is not a whole number, 0 or more."
            )
    return [int(text) for text in texts]


def precisions(texts: list[str]) -> list[int] | None:
    """Reads --precisions; None: no precision.

    Raises:
      errors.UserError: One is not a precision.
    """
    if texts == _NONE:
        return None
    return [precisions_lib.parse("precisions", text) for text in texts]


def peers(names: list[str]) -> list[str] | None:
    """Reads --peers; None: no peers."""
    return None if names == _NONE else names
