"""The flags that several tools share. Imports no framework, so that --help is instant."""

from collections.abc import Callable
from collections.abc import Sequence
import os
from typing import Any

from absl import flags

from actorQ.core import lean_imports
from actorQ.policy import quantization
from baseline.quantization import names
from baseline.study import rows as rows_lib

DEFAULT_FOLDER = "logs/zoo"  # Where `baseline.train` leaves agents.
DEFAULT_OUT = "quantized"
_CALIBRATION_EPISODES = 5  # `calibration.EPISODES`, which needs torch.


def define_folder() -> None:
    """Defines where agents come from."""
    flags.DEFINE_string(
        "folder", DEFAULT_FOLDER,
        "Folder of agents: FOLDER/ALGO/ENV_1/ENV.zip; of an ActorQ policy, its run folder.",
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
        "Of linear layers' weights: paper, a scale for each layer; channel, for each output.",
    )


def define_calibration() -> None:
    """Defines how ranges of activations are found."""
    flags.DEFINE_integer(
        "calibration_episodes", _CALIBRATION_EPISODES,
        "Episodes that find activations' ranges, >= 1.", lower_bound=1,
    )


def define_rows(scheme: bool = True) -> None:
    """Defines which rows a tool looks at; `scheme`: not where it shows all schemes."""
    flags.DEFINE_list(
        "results", [os.path.join(DEFAULT_OUT, rows_lib.CSV_NAME)],
        "CSV file with the rows of baseline.ptq; several with commas.",
    )
    choices = {"granularity": names.GRANULARITIES, "rounding": quantization.ROUNDINGS}
    if scheme:
        choices["scheme"] = names.SCHEMES
    for name, values in choices.items():
        flags.DEFINE_enum(name, values[0], list(values), "Of the rows, as baseline.ptq has it.")


def define() -> None:
    """Defines the flags."""
    define_folder()
    flags.DEFINE_string("out", DEFAULT_OUT, "Gets BITS/ALGO/... (agents) and ptq.csv (rows).")
    flags.DEFINE_integer("episodes", 10, "Episodes for each seed, >= 1.", lower_bound=1)
    flags.DEFINE_string("seeds", "0,2,4", "Seeds of the environments, each >= 0.")
    flags.DEFINE_enum(
        "scheme", names.SCHEMES[0], list(names.SCHEMES),
        "What is quantized; ranges of activations come from --calibration_episodes.",
    )
    define_quantizer()
    define_calibration()
    flags.DEFINE_string("note", "", "Text for the rows' column `note`.")


def requests(pairs: Sequence[tuple[str, str]], widths: Sequence[str]) -> list:
    """Returns a `measuring.Request` for every pair and width, from the flags.

    Raises:
      errors.UserError: a width or the seeds make no sense.
    """
    with lean_imports.without("tensorboard"):  # Which SB3 would load TensorFlow for.
        from baseline.quantization import schemes
        from baseline.study import measuring

    values = flags.FLAGS
    bits = dict.fromkeys(schemes.parse_bits(width) for width in widths)
    seeds = measuring.parse_seeds(values.seeds)
    return [
        measuring.Request(
            algo, env, _scheme(width, schemes.Scheme), values.folder, values.out, seeds,
            values.episodes, values.calibration_episodes, values.note,
        )
        for algo, env in dict.fromkeys((names.canonical_algo(algo), env) for algo, env in pairs)
        for width in bits
    ]


def _scheme(width: str, make: Callable[..., Any]) -> Any:
    if width == names.FP32:
        return make(width)  # There is one full precision, whatever the flags say of others.
    values = flags.FLAGS
    return make(width, values.scheme, values.granularity, values.rounding)
