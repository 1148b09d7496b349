"""Says which files `deploy` can write: their formats and widths, and what they quantize.

Imports no framework.
"""

from collections.abc import Sequence
from typing import Any

from actorQ.core import errors
from baseline.quantization import names

FORMATS = ("onnx", "tflite", "torchscript", "native", "c")
ENDINGS = {
    "onnx": ".onnx", "tflite": ".tflite", "torchscript": ".pt", "native": ".native", "c": ".c",
}
# In every file: its input, its two outputs, and the entry that marks it as a policy of ours.
OBSERVATION, OUTPUT, ACTION = "observation", "output", "action"
MARK, MARK_VERSION = "quarl_policy", "1"
# Names of the runtimes, for people.
RUNTIMES = {
    "onnx": "ONNX Runtime", "tflite": "TFLite", "torchscript": "TorchScript",
    "native": "native kernels", "c": "C",
}
WIDTHS = {
    "onnx": (32, 16, 8, 4), "tflite": (32, 8, 7, 6, 5, 4, 3, 2), "torchscript": (32, 8),
    "native": (32, 16, 8, 4, 3), "c": (32, 16, 8, 7, 6, 5, 4, 3, 2),
}
_WEIGHTS, _ACTIVATIONS = names.SCHEMES
# Schemes of files whose weights are integers; the first is the default. With `weights` alone,
# activations get their ranges from every call.
_SCHEMES = {
    "onnx": (_ACTIVATIONS, _WEIGHTS), "tflite": (_ACTIVATIONS,), "torchscript": (_WEIGHTS,),
    "native": (_WEIGHTS,), "c": (_ACTIVATIONS, _WEIGHTS),
}
# Formats whose arithmetic decides which weights share a scale.
_GRANULARITIES = {"native": (names.CHANNEL,)}
# Whether C files compute with floats between their layers.
FLOATS = HARD, NONE = "hard", "none"
_FLOATS = (32, 16)  # Layers of these widths compute in fp32.
# Kernels that a TFLite file is written for: those of TensorFlow Lite Micro, or BATCH_MATMUL, whose
# exact sums of int32 TFLite alone has. The first is for 8 bits.
KERNELS = MICRO, EXACT = "micro", "exact"
MICRO_BITS = 8


def check_bits(file_format: str, bits: int) -> None:
    """Checks that there is such a file.

    Raises:
      errors.UserError: There is none. The message says which there are.
    """
    if bits not in WIDTHS[file_format]:
        possible = "; ".join(
            f"{name}: {', '.join(map(str, widths))}" for name, widths in WIDTHS.items()
        )
        raise errors.UserError(
            f"There is no {file_format} file of {bits} bits. Possible are {possible}."
        )


def schemes(file_format: str, bits: int) -> tuple[str, ...]:
    """Returns the schemes that a file of a format and width can have; the first is the default."""
    return (_WEIGHTS,) if bits in _FLOATS else _SCHEMES[file_format]


def scheme(file_format: str, bits: int, asked: str | None) -> str:
    """Returns the scheme of a file.

    Args:
      file_format: One of FORMATS.
      bits: One of its WIDTHS.
      asked: One of `quantization.names.SCHEMES`; None: the format's default.

    Raises:
      errors.UserError: There is no such file. The message says which there are.
    """
    check_bits(file_format, bits)
    possible = schemes(file_format, bits)
    if bits in _FLOATS and asked == _ACTIVATIONS:
        raise errors.UserError(
            f"Activations stay in fp32 where weights have {bits} bits: leave --scheme out."
        )
    if asked is not None and asked not in possible:
        able = [name for name, schemes in _SCHEMES.items() if asked in schemes]
        raise errors.UserError(
            f"A {file_format} file is quantized with --scheme={possible[0]} only; {asked} is "
            f"possible with --format={' or '.join(able)}."
        )
    return asked or possible[0]


def check_kernels(file_format: str, bits: int, asked: str) -> None:
    """Checks that there is a file for these kernels.

    Args:
      file_format: One of FORMATS.
      bits: One of its WIDTHS.
      asked: One of KERNELS; formats but tflite do not heed it.

    Raises:
      errors.UserError: There is none.
    """
    if file_format == "tflite" and asked == MICRO and bits != MICRO_BITS:
        raise errors.UserError(
            f"--tflite_kernels={MICRO} is for {MICRO_BITS} bits: a file of {bits} bits has "
            f"--tflite_kernels={EXACT}."
        )


def granularities(file_format: str) -> tuple[str, ...]:
    """Returns the granularities that the weights of linear layers can have in a format."""
    return _GRANULARITIES.get(file_format, names.GRANULARITIES)


def granularity(file_format: str, asked: str) -> str:
    """Returns the granularity of a file: the one that is asked for, or the only one."""
    possible = granularities(file_format)
    return asked if asked in possible else possible[0]


def layout(
    fields: Sequence[tuple[str, tuple[int, ...]]], sizes: Sequence[int]
) -> dict[str, list[Any]]:
    """Returns what a file says of flat observations and of several actions, where it has them.

    Args:
      fields: Names and shapes of the parts of a flat observation, in order.
      sizes: Numbers of outputs of the actions.
    """
    found: dict[str, list[Any]] = {}
    if fields:
        found["fields"] = [[name, list(shape)] for name, shape in fields]
    if sizes:
        found["action_sizes"] = list(sizes)
    return found
