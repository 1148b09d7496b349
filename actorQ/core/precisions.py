"""Precisions of the actors' inference and their names. Imports no framework."""

from actorQ.core import errors

# The bits of --quantize to the names that tables and plots show.
NAMES = {32: "fp32", 16: "fp16", 8: "int8", 4: "int4", 3: "int3"}
LEGAL = tuple(NAMES)
# The bits of --quantize to the names in model messages.
SCHEMES = {32: "float32", 16: "float16", 8: "int8", 4: "int4", 3: "int3"}


def check(quantize: int, inference_mode: str, flag: str = "quantize") -> None:
    """Checks that a backend computes at a precision.

    Args:
      quantize: The precision, bits.
      inference_mode: The backend, one of `config.INFERENCE_MODES`.
      flag: Name of the flag that has the precision.

    Raises:
      errors.UserError: It does not, or there is no such precision.
    """
    if quantize not in LEGAL:
        legal = ", ".join(str(bits) for bits in LEGAL)
        raise errors.UserError(f"--{flag}={quantize} is not possible: choose one of {legal}.")
    if quantize < 8 and inference_mode == "pytorch":
        raise errors.UserError(
            f"--{flag}={quantize} needs --inference_mode=native (or tensorflow): torch has no "
            f"{quantize}-bit operator for single observations."
        )


def parse(flag: str, text: str) -> int:
    """Parses '8' or 'int8' into 8.

    Raises:
      errors.UserError: `text` is no precision.
    """
    for bits, name in NAMES.items():
        if text in (name, str(bits)):
            return bits
    legal = ", ".join(f"{bits} ({name})" for bits, name in NAMES.items())
    raise errors.UserError(f"--{flag}: {text!r} is not a precision: choose from {legal}.")
