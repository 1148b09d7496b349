"""Which files `deploy` can write: formats, widths, and what of a policy they quantize.

Imports no framework.
"""

from actorQ.core import errors
from baseline.quantization import names

FORMATS = ("onnx", "tflite", "torchscript")
ENDINGS = {"onnx": ".onnx", "tflite": ".tflite", "torchscript": ".pt"}
# In every file: its input, its two outputs, and the entry that marks it as a policy of ours.
OBSERVATION, OUTPUT, ACTION = "observation", "output", "action"
MARK, MARK_VERSION = "quarl_policy", "1"
# For people.
RUNTIMES = {"onnx": "ONNX Runtime", "tflite": "TFLite", "torchscript": "TorchScript"}
WIDTHS = {"onnx": (32, 16, 8, 4), "tflite": (32, 8, 7, 6, 5, 4, 3, 2), "torchscript": (32, 8)}
_WEIGHTS, _ACTIVATIONS = names.SCHEMES
# Where weights are integers: the first is what is done unless another is asked for. `weights`
# means that activations get their ranges from every call.
_SCHEMES = {
    "onnx": (_ACTIVATIONS, _WEIGHTS), "tflite": (_ACTIVATIONS,), "torchscript": (_WEIGHTS,),
}
_FLOATS = (32, 16)  # Widths of which layers compute in fp32.


def check_bits(file_format: str, bits: int) -> None:
    """Checks that there is such a file.

    Raises:
      errors.UserError: there is none; says which there are.
    """
    if bits not in WIDTHS[file_format]:
        possible = "; ".join(
            f"{name}: {', '.join(map(str, widths))}" for name, widths in WIDTHS.items()
        )
        raise errors.UserError(
            f"There is no {file_format} file of {bits} bits. Possible are {possible}."
        )


def scheme(file_format: str, bits: int, asked: str | None) -> str:
    """Returns what a file quantizes.

    Args:
      file_format: one of FORMATS.
      bits: one of its WIDTHS.
      asked: one of `quantization.names.SCHEMES`; None: the format's first.

    Raises:
      errors.UserError: there is no such file; says which there are.
    """
    check_bits(file_format, bits)
    if bits in _FLOATS:
        if asked == _ACTIVATIONS:
            raise errors.UserError(
                f"Activations stay in fp32 where weights have {bits} bits: leave --scheme out."
            )
        return _WEIGHTS
    possible = _SCHEMES[file_format]
    if asked is not None and asked not in possible:
        able = [name for name, schemes in _SCHEMES.items() if asked in schemes]
        raise errors.UserError(
            f"A {file_format} file is quantized with --scheme={possible[0]} only; {asked} is "
            f"possible with --format={' or '.join(able)}."
        )
    return asked or possible[0]
