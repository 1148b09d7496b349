"""Reads pickles from strangers without running anything that is in them.

A pickle is a program: loading one with Python's own unpickler imports whatever it names and calls
it. Here the program runs on a machine of our own (`pickle_machine`) that can build numbers, text,
containers and numpy arrays (`pickle_values.CALLS`). Every other class or function is recorded as a
`Reference`, and every call of one as a `Placeholder`. Both hold their arguments and do nothing. So
no module is imported, and no attribute of anything is looked up or set.

This reads `vecnormalize.pkl` of rl-baselines3-zoo and agents of stable-baselines 2.
"""

import os
from typing import Any
from typing import NamedTuple

from actorQ.core import errors
from baseline.agents import pickle_machine
from baseline.agents import pickle_values

MAX_BYTES = 1 << 30
LISTED = 6  # Largest number of names in a message.


class Contents(NamedTuple):
    """The contents of a pickle.

    Attributes:
      value: The object, with placeholders.
      calls: "module.name" of all that Python's unpickler would have called, and this one did not.
    """

    value: Any
    calls: list[str]


def load(source: str | os.PathLike | bytes) -> Any:
    """Returns the object in a pickle; see `read`."""
    return read(source).value


def read(source: str | os.PathLike | bytes) -> Contents:
    """Reads a pickle without running it.

    Args:
      source: A path, or the bytes.

    Raises:
      errors.UserError: There is no such file, or it is damaged.
    """
    name, content = _bytes_of(source)
    machine = pickle_machine.Machine(len(content))
    try:
        value = machine.run(content)
    except (pickle_values.DamagedError, ValueError, LookupError, TypeError, ArithmeticError) as why:
        raise errors.UserError(f"{name} is no pickle, or a damaged one: {_reason(why)}.") from None
    except (MemoryError, RecursionError):
        raise errors.UserError(f"{name} asks for more memory than there is.") from None
    return Contents(value, list(machine.calls))


def listed(names: list[str]) -> str:
    """Returns the first few names for a message: "os.system, builtins.eval and 3 more"."""
    shown = [name[:80].encode("unicode_escape").decode()[:80] for name in names[:LISTED]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _bytes_of(source: str | os.PathLike | bytes) -> tuple[str, bytes]:
    """Returns a name for messages and the content."""
    if isinstance(source, bytes):
        return "The data", source
    name = os.fspath(source)
    try:
        with open(source, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise errors.UserError(f"Cannot read {name}: {error.strerror}.") from None
    if len(content) > MAX_BYTES:
        raise errors.UserError(f"{name} is larger than a pickle of an agent: over 1 GiB.")
    return name, content


def _reason(error: Exception) -> str:
    if isinstance(error, pickle_values.DamagedError):
        return str(error)
    if isinstance(error, ValueError):  # Its message comes from pickletools and tells the cause.
        return errors.summary(error).rstrip(".")
    return "its instructions do not fit together"
