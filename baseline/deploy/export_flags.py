"""The flags of `deploy` that `deploy_benchmark` has as well. Imports no framework."""

from absl import flags

from baseline.formats import names as formats
from baseline.quantization import names
from baseline.study import measuring_flags

AUTO = "auto"


def define(chooses: bool = False) -> None:
    """Defines the flags.

    Args:
      chooses: Whether the tool has the scheme `AUTO`.
    """
    define_agent()
    flags.DEFINE_enum(
        "scheme", None, [*names.SCHEMES, *[AUTO] * chooses],
        "What is quantized: weights alone, so that every call finds ranges of its own, or "
        "weights+activations (default; torchscript and native have weights alone)."
        + " auto: the scheme and --granularity whose file acts most like the agent." * chooses,
    )
    kernels = [*[AUTO] * chooses, *formats.KERNELS]
    flags.DEFINE_enum(
        "tflite_kernels", AUTO if chooses else formats.EXACT, kernels,
        "Kernels of tflite files: those of TensorFlow Lite Micro, in int8 (8 bits; each output has "
        "a scale of its own, whatever --granularity says), or exact sums, which TFLite alone has."
        + " auto: micro, or exact for other bits, for layers that Micro lacks, and for agents that "
        "baseline.qat trained." * chooses,
    )


def define_agent() -> None:
    """Defines which agent it is, and how its ranges are found."""
    flags.DEFINE_string(
        "algo", None, "Algorithm of AGENT where its place does not tell it, such as ppo or dqn."
    )
    flags.DEFINE_string(
        "env", None, "Environment of AGENT where its name does not tell it, such as CartPole-v1."
    )
    measuring_flags.define_granularity_of_linear()
    measuring_flags.define_calibration()
    flags.DEFINE_integer("seed", 0, "Seed of the environments, >= 0.", lower_bound=0)
    flags.adopt_module_key_flags(measuring_flags)  # Programs show them in their --help.
