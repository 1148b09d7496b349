"""Errors about a task that a user can put right."""

from collections.abc import Iterable
import difflib

from actorQ.core import errors


class TaskError(errors.UserError, ValueError):
    """Something a user can put right about a task; its text is one clear line."""


def unknown_task(suite: str, task: str, known: Iterable[str], advice: str = "") -> TaskError:
    """Describes a task that a suite does not have.

    Args:
        suite: Name of the suite.
        task: The name asked for.
        known: The names that exist.
        advice: What else to tell the user, a clause.

    Returns:
        The error, to be raised.
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


def no_observation_bounds() -> TaskError:
    """Describes a task whose observations cannot be scaled; the error is to be raised."""
    return TaskError(
        "--scale_observations=1 needs a task whose observations are one vector with bounds in some "
        "dimension (see its observation_space): this one has none, leave the flag out"
    )


def one_line(error: BaseException) -> str:
    """Returns an exception's kind and text on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
