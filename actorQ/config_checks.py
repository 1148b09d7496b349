"""How one setting is declared and checked; `config` lists the settings. Imports no framework."""

import dataclasses
import math
from typing import Any

from actorQ import errors

PRECISION_NAMES = {32: "fp32", 16: "fp16", 8: "int8", 4: "int4"}
PRECISIONS = tuple(PRECISION_NAMES)


def declare(
    default: Any,
    help_text: str,
    choices: tuple | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """Declares one flag: default, help (with unit), and its legal values or range."""
    return dataclasses.field(
        default=default,
        metadata={"help": help_text, "choices": choices, "low": low, "high": high},
    )


def check_precision(quantize: int, inference_mode: str) -> None:
    """Checks that a backend computes at a precision.

    Raises:
      errors.UserError: it does not, or there is no such precision.
    """
    if quantize not in PRECISIONS:
        legal = ", ".join(str(bits) for bits in PRECISIONS)
        raise errors.UserError(f"--quantize={quantize} is not possible: choose one of {legal}.")
    if quantize == 4 and inference_mode == "pytorch":
        raise errors.UserError(
            "--quantize=4 needs --inference_mode=native (or tensorflow): torch has no 4-bit "
            "operator for single observations."
        )


def hidden_sizes(flag: str, text: str) -> tuple[int, ...]:
    """Parses '256,256' into (256, 256).

    Raises:
      errors.UserError: `text` is not a comma-separated list of positive integers.
    """
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise errors.UserError(
            f"--{flag}={text!r} is not a list of layer sizes: write positive whole numbers with "
            "commas between, for example 256,256,256."
        )
    return sizes


def check_range(field: dataclasses.Field, value: Any) -> None:
    """Checks a value against the choices or the range that `declare` was given.

    Raises:
      errors.UserError: it is not legal; the message names flag, value and legal values.
    """
    choices, low, high = (field.metadata[key] for key in ("choices", "low", "high"))
    if choices and value not in choices:
        legal = ", ".join(str(choice) for choice in choices)
        raise errors.UserError(f"--{field.name}={value} is not possible: choose one of {legal}.")
    if value is None:
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise errors.UserError(f"--{field.name}={value} is not a finite number.")
    if low is not None and value < low or high is not None and value > high:
        legal = f"at least {low}" if high is None else f"from {low} to {high}"
        raise errors.UserError(f"--{field.name}={value} is out of range: it must be {legal}.")


def is_host_port(text: str) -> bool:
    """Returns whether a text is HOST:PORT."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 65536
