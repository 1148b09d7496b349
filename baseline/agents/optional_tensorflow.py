"""TensorFlow where there is one: on macOS `setup_ubuntu.sh` leaves it out. Imports no framework."""

from collections.abc import Iterator
import contextlib

from actorQ.core import errors


class MissingError(errors.UserError):
    """There is no TensorFlow here."""


@contextlib.contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Tells, where TensorFlow cannot be imported inside, what it is needed for.

    Args:
      what: begins the sentence.

    Raises:
      MissingError: there is no TensorFlow here.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("tensorflow", "flatbuffers"):
            raise
        raise MissingError(
            f"{what} need TensorFlow, which is not installed here: ./setup_ubuntu.sh installs it "
            "on Linux."
        ) from None
