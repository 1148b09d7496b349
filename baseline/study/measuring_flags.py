"""Defines the flags that several tools share. Imports no framework: --help is instant."""

from collections.abc import Sequence
import os
from typing import TYPE_CHECKING

from absl import flags

from actorQ.core import lean_imports
from actorQ.policy import quantization
from baseline.quantization import names
from baseline.quantization import recipes
from baseline.study import rows as rows_lib

if TYPE_CHECKING:
    from baseline.study import measuring

DEFAULT_FOLDER = "logs/zoo"  # `baseline.train` leaves agents there.
DEFAULT_OUT = "quantized"
_CALIBRATION_EPISODES = 5  # `calibration.EPISODES`, which needs torch.
_CALIBRATION_STATES = 4096  # `post_training.STATES`, which needs torch.


def define_folder() -> None:
    """Defines where agents come from."""
    flags.DEFINE_string(
        "folder", DEFAULT_FOLDER,
        "Folder of agents: FOLDER/ALGO/ENV_1/ENV.zip; for an ActorQ policy, its run folder.",
    )
    flags.DEFINE_boolean("hub", False, "Fetch the zoo's agent from its hub if it is not there.")


def define_quantizer() -> None:
    """Defines how tensors are quantized."""
    flags.DEFINE_enum(
        "granularity", names.GRANULARITIES[0], list(names.GRANULARITIES),
        "paper: a scale for each linear layer and each output channel of a convolution; channel: "
        "for each output of both.",
    )
    flags.DEFINE_enum(
        "rounding", quantization.ROUNDINGS[0], list(quantization.ROUNDINGS),
        "floor is what the paper prints; nearest is what its code does.",
    )


def define_granularity_of_linear() -> None:
    """Defines `granularity` for tools that make files of integers."""
    flags.DEFINE_enum(
        "granularity", names.GRANULARITIES[0], list(names.GRANULARITIES),
        "Scales of linear layers' weights. paper: one a layer; channel: one for each output.",
    )


def define_calibration() -> None:
    """Defines how ranges of activations are found."""
    flags.DEFINE_integer(
        "calibration_episodes", _CALIBRATION_EPISODES,
        "Episodes that find activations' ranges, >= 1.", lower_bound=1,
    )


def define_method() -> None:
    """Defines how weights are rounded to integers."""
    flags.DEFINE_string(
        "method", recipes.MINMAX,
        f"Method, or several with commas ({', '.join(recipes.METHODS)}), or {recipes.AUTO}: the "
        "one whose actions agree most in states held out of calibration. minmax is the paper's.",
    )
    flags.DEFINE_integer(
        "group_size", 0,
        "Inputs of an output that share a scale, >= 1, with --granularity channel; 0: all of them.",
        lower_bound=0,
    )
    define_calibration_states()


def define_calibration_states() -> None:
    """Defines how many states methods calibrate with."""
    flags.DEFINE_integer(
        "calibration_states", _CALIBRATION_STATES,
        "States of the agent's own episodes that methods other than minmax calibrate with, at "
        "most, >= 2.", lower_bound=2,
    )


def define_rows(scheme: bool = True) -> None:
    """Defines which rows a tool looks at.

    Args:
      scheme: whether the tool shows one scheme only.
    """
    flags.DEFINE_list(
        "results", [os.path.join(DEFAULT_OUT, rows_lib.CSV_NAME)],
        "CSV files with the rows of baseline.ptq, comma separated.",
    )
    choices = {"granularity": names.GRANULARITIES, "rounding": quantization.ROUNDINGS}
    if scheme:
        choices["scheme"] = names.SCHEMES
    for name, values in choices.items():
        flags.DEFINE_enum(
            name, values[0], list(values), f"Show rows of this {name}, a flag of baseline.ptq."
        )


def define() -> None:
    """Defines the flags."""
    define_folder()
    flags.DEFINE_string(
        "out", DEFAULT_OUT, "Folder that gets BITS/ALGO/... (agents) and ptq.csv (rows)."
    )
    flags.DEFINE_integer("episodes", 10, "Episodes for each seed, >= 1.", lower_bound=1)
    flags.DEFINE_string("seeds", "0,2,4", "Seeds of the environments, each >= 0.")
    flags.DEFINE_enum(
        "scheme", names.SCHEMES[0], list(names.SCHEMES),
        "The quantized tensors; ranges of activations come from --calibration_episodes.",
    )
    define_quantizer()
    define_method()
    define_calibration()
    flags.DEFINE_string("note", "", "Text for the rows' column `note`.")


def requests(
    pairs: Sequence[tuple[str, str]], widths: Sequence[str]
) -> "list[measuring.Request]":
    """Returns a `measuring.Request` for every pair and width, from the flags.

    Raises:
      errors.UserError: a width or the seeds make no sense.
    """
    with lean_imports.without("tensorboard"):  # SB3 would load TensorFlow with it.
        from baseline.quantization import schemes
        from baseline.study import measuring

    values = flags.FLAGS
    bits = dict.fromkeys(schemes.parse_bits(width) for width in widths)
    seeds = measuring.parse_seeds(values.seeds)
    method = recipes.parse(values.method)
    # There is only one full precision, whatever the flags say.
    how = [
        schemes.Scheme(width) if width == names.FP32
        else schemes.Scheme(
            width, values.scheme, values.granularity, values.rounding, method, values.group_size
        )
        for width in bits
    ]
    for scheme in how:
        if scheme.bits != names.FP32:
            recipes.check(
                method, scheme.bits, scheme.rounding, scheme.granularity, scheme.group_size
            )
    return [
        measuring.Request(
            algo, env, scheme, values.folder, values.out, seeds, values.episodes,
            values.calibration_episodes, values.note,
            calibration_states=values.calibration_states,
        )
        for algo, env in dict.fromkeys((names.canonical_algo(algo), env) for algo, env in pairs)
        for scheme in how
    ]
