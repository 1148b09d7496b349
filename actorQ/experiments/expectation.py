"""Estimates of how long runs may take, in words. Imports no framework."""

from collections.abc import Mapping
from collections.abc import Sequence

from actorQ.experiments import kinds
from actorQ.experiments import results
from actorQ.experiments import specification

_AROUND_S = 30.0  # For start-up, last evaluation and end, which a run's own limit leaves out.


def expected_s(
    run: specification.Run, done: Mapping[str, results.Result]
) -> tuple[float | None, bool]:
    """Returns how long a run may take, and whether that is an upper limit.

    The estimate is the mean of results of the same kind, task and precision; other precisions take
    other times. Without such results it is the run's own limit.

    Args:
      run: Run that has no result yet.
      done: Results by name.

    Returns:
      Seconds, or None if nothing is known; and whether they are an upper limit.
    """
    wanted = (run.task, run.kind, run.precision)
    known = [r.wall_s for r in done.values() if (r.task, r.kind, r.precision) == wanted]
    if known:
        return sum(known) / len(known), False
    limit_s = kinds.get(run.kind).limit_s(run.settings)
    return None if limit_s is None else limit_s + _AROUND_S, True


def left(
    runs: Sequence[specification.Run],
    done: Mapping[str, results.Result],
    parallel: int = 1,
    spent_s: Mapping[str, float] | None = None,
) -> str:
    """Returns how long the runs that are left may take, in words.

    Args:
      runs: All runs.
      done: Results by name.
      parallel: Runs at a time.
      spent_s: Seconds that runs under way have taken already, by name.
    """
    waiting = [run for run in runs if run.name not in done]
    if not waiting:
        return "nothing is left to do"
    expected = [expected_s(run, done) for run in waiting]
    spent_s = spent_s or {}
    seconds = [  # A run that takes longer than expected does not shorten the others.
        max(0.0, value - spent_s.get(run.name, 0.0))
        for run, (value, _) in zip(waiting, expected, strict=True) if value is not None
    ]
    # The last run ends no sooner than the longest of them.
    known_s = max([*seconds, sum(seconds) / parallel])
    if len(seconds) < len(waiting):
        unknown = f"{len(waiting) - len(seconds)} of {len(waiting)} runs take an unknown time"
        return f"{unknown}; the others {duration(known_s)}" if seconds else unknown
    word = "at most" if any(limit for _, limit in expected) else "about"
    return f"{word} {duration(known_s)}"


def duration(seconds: float) -> str:
    """Returns '2 h 05 min', '12 min' or '40 s'."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
