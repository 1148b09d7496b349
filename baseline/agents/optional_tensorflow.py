"""Explains a missing TensorFlow, which setup_ubuntu.sh leaves out on macOS.

Imports no framework.
"""

from collections.abc import Iterator
import contextlib

from actorQ.core import errors


class MissingError(errors.UserError):
    """Raised where TensorFlow is needed and not installed."""


@contextlib.contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Explains a failed import of TensorFlow inside the context.

    Args:
      what: The parts that need TensorFlow, in the plural: they begin the message.

    Raises:
      MissingError: TensorFlow is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("tensorflow", "flatbuffers"):
            raise
        raise MissingError(
            f"{what} need TensorFlow, which is not installed here: ./setup_ubuntu.sh installs it "
            "on Linux on x86-64."
        ) from None
