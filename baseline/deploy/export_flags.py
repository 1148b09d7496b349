"""The flags of `deploy` that `deploy_benchmark` has as well. Imports no framework."""

from absl import flags

from baseline.quantization import names
from baseline.study import measuring_flags

AUTO = "auto"


def define(chooses: bool = False) -> None:
    """Defines the flags.

    Args:
      chooses: Whether the tool has the scheme `AUTO`.
    """
    flags.DEFINE_string(
        "algo", None, "Algorithm of AGENT where its place does not tell it, such as ppo or dqn."
    )
    flags.DEFINE_string(
        "env", None, "Environment of AGENT where its name does not tell it, such as CartPole-v1."
    )
    flags.DEFINE_enum(
        "scheme", None, [*names.SCHEMES, *[AUTO] * chooses],
        "What is quantized: weights alone, so that every call finds ranges of its own, or "
        "weights+activations (default; torchscript and native have weights alone)."
        + " auto: the scheme and --granularity whose file acts most like the agent." * chooses,
    )
    measuring_flags.define_granularity_of_linear()
    measuring_flags.define_calibration()
    flags.DEFINE_integer("seed", 0, "Seed of the environments, >= 0.", lower_bound=0)
    flags.adopt_module_key_flags(measuring_flags)  # Programs show them in their --help.
