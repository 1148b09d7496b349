"""Errors about a task that a user can put right."""

from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import difflib
import os
import sysconfig
import traceback

from actorQ.core import errors
from actorQ.core import provenance

_OURS = os.path.join(provenance.ROOT, "actorQ")
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


class TaskError(errors.UserError, ValueError):
    """A mistake about a task that a user can put right; its text is one clear line."""


class UnknownTaskError(TaskError):
    """A suite has no task of that name."""


def unknown_task(
    suite: str, task: str, known: Iterable[str], advice: str = ""
) -> UnknownTaskError:
    """Returns the error for a task that a suite does not have.

    Args:
      suite: Name of the suite.
      task: The name asked for.
      known: The names that exist.
      advice: A clause with more advice for the user.
    """
    known = sorted(known)
    lower = {name.lower(): name for name in known}
    close = [lower[name] for name in difflib.get_close_matches(task.lower(), lower, 3, 0.6)]
    hint = (
        f"the nearest are {', '.join(close)}"
        if close
        else f"it has, among {len(known)}, " + (", ".join(known[:3]))
    )
    advice = f"; {advice}" if advice else ""
    return UnknownTaskError(
        f"suite {suite} has no task {task!r}; {hint} "
        f"(actorQ.environments.suites.list_tasks({suite!r}) names all){advice}"
    )


@contextlib.contextmanager
def importing(what: str, packages: str) -> Iterator[None]:
    """Turns a failed import into a `TaskError` that names the packages for `pip install`."""
    try:
        yield
    except ImportError as error:
        raise TaskError(
            f"{what} cannot be imported ({one_line(error)}); `pip install {packages}` provides it"
        ) from error


@contextlib.contextmanager
def building(name: str) -> Iterator[None]:
    """Turns whatever a task's constructor raises into a `TaskError`."""
    try:
        yield
    # Anyone may have written the constructor. Its error stays attached as the cause.
    except Exception as error:
        raise TaskError(
            f"task {name} cannot be built: {one_line(error)}{place(error)}"
        ) from error


def no_observation_bounds() -> TaskError:
    """Returns the error for a task whose observations cannot be scaled."""
    return TaskError(
        "--scale_observations=1 needs a task whose observations are one vector with bounds in some "
        "dimension (see its observation_space): this task has none, so leave the flag out"
    )


def failed(name: str, call: str, error: Exception) -> TaskError:
    """Returns the error for a task whose own code has failed.

    Args:
      name: The task with its suite.
      call: What was called, for example "step()".
      error: What it raised.
    """
    return TaskError(f"task {name} failed in {call}: {one_line(error)}{place(error)}")


def place(error: BaseException) -> str:
    """Returns " (FILE, line 12)", the last place on an error's way that is the task's; or ""."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__)
        if os.path.isabs(frame.filename) and not frame.filename.startswith(_OURS)
    ]
    own = [frame for frame in frames if not frame.filename.startswith(_INSTALLED)]
    return "".join(f" ({frame.filename}, line {frame.lineno})" for frame in (own or frames)[-1:])


def one_line(error: BaseException) -> str:
    """Returns an exception's kind and text on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
