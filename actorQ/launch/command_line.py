"""The launchers' own flags and the original's positional arguments. Imports no framework."""

from absl import flags

from actorQ.core import errors
from actorQ.core import presets
from actorQ.launch import run_folders

# Flags that the original has as positional arguments, in its order. LOGDIR holds run folders.
POSITIONALS = (
    "logdir",
    "taskstr",
    "model_str",
    "num_episodes",
    "n_actors",
    "batch_size",
    "replay_table_max_times_sampled",
    "quantize",
    "quantize_communication",
    "actor_update_period",
    "weight_compress",
)
_WITHOUT_SETTINGS = 2  # The first two arguments are no settings of the training.


def define_flags() -> None:
    """Defines the flags that only the launcher of this machine has."""
    run_folders.define_flags()
    flags.DEFINE_integer(
        "pin_cpus",
        0,
        "1: give every actor a core of its own and the learner the rest; 0: leave cores to the "
        "system. Actors share cores where there are too few, and the broadcaster is left free. "
        "This is for benchmarks; two pinned runs at once would share cores.",
        lower_bound=0,
        upper_bound=1,
    )


def apply_positionals(argv: list[str], flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Sets flags from the positional arguments.

    From the third argument on the rest of the settings is the original's, too, as --preset=paper.

    Args:
      argv: Arguments left by the flags, program name first.
      flag_values: Flags to set.

    Raises:
      errors.UserError: There are too many, one does not parse, or one is given as a flag too.
    """
    arguments = argv[1:]
    if len(arguments) > len(POSITIONALS):
        raise errors.UserError(
            f"takes at most {len(POSITIONALS)} arguments "
            f"({' '.join(name.upper() for name in POSITIONALS)}), got {len(arguments)}."
        )
    for name, value in zip(POSITIONALS, arguments, strict=False):
        if flag_values[name].present:
            raise errors.UserError(f"{name} is given twice: as an argument and as --{name}.")
        try:
            flag_values[name].parse(value)
            flag_values[name].using_default_value = False
        except flags.Error as error:
            raise errors.UserError(f"argument {name.upper()}: {error}") from None
    if len(arguments) > _WITHOUT_SETTINGS and not flag_values["preset"].present:
        flag_values["preset"].parse(presets.PAPER)
        flag_values["preset"].using_default_value = False
