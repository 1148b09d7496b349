"""Errors about a task that a user can put right."""

from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import difflib

from actorQ.core import errors


class TaskError(errors.UserError, ValueError):
    """A mistake about a task that a user can put right; its text is one clear line."""


def unknown_task(suite: str, task: str, known: Iterable[str], advice: str = "") -> TaskError:
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
    return TaskError(
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


def no_observation_bounds() -> TaskError:
    """Returns the error for a task whose observations cannot be scaled."""
    return TaskError(
        "--scale_observations=1 needs a task whose observations are one vector with bounds in some "
        "dimension (see its observation_space): this task has none, so leave the flag out"
    )


def one_line(error: BaseException) -> str:
    """Returns an exception's kind and text on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
