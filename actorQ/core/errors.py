"""Errors that a user can mend, and how a process reports them.

In every process a `UserError` becomes one clear line on stderr and a non-zero exit code, never a
stack trace alone. Imports no framework.
"""

import contextlib
import sys

# Part of the learner's line when its numbers are no longer finite. Such a training has an outcome:
# it did not fail for want of something.
DIVERGED = "training has diverged"


def summary(error: BaseException) -> str:
    """Returns the last line of an exception's text, TensorFlow's reason; or its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__


def report(name: str, message: str, kind: str = "error") -> None:
    """Prints `name: error: message` as one line on stderr; line breaks become spaces."""
    # Where the disk is full or nobody reads, the exit code still tells.
    with contextlib.suppress(OSError):
        print(f"{name}: {kind}: {' '.join(message.split())}", file=sys.stderr, flush=True)


class UserError(Exception):
    """A mistake in flags, files or surroundings; its text is one line with the remedy."""


class LearnerGoneError(UserError):
    """The learner's Reverb server cannot be reached (any more)."""


class NoLearnerError(LearnerGoneError):
    """No learner came within --connect_timeout."""


class WriteError(UserError):
    """A file cannot be written: a full disk, a missing permission."""


class MessageError(UserError):
    """A model message must not be used: it is damaged, or of another model or scheme."""
