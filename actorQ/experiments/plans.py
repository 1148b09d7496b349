"""Planned runs: their results or why they have none, the time they take, and their cores.

Imports no framework.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import os

from actorQ.core import provenance
from actorQ.experiments import kinds
from actorQ.experiments import results
from actorQ.experiments import specification
from actorQ.launch import processes

RUNS_FOLDER = "runs"
FAILURE_FILENAME = "failure.txt"
_AROUND_S = 30.0  # For start-up, last evaluation and end, which a run's own limit leaves out.


@dataclasses.dataclass(frozen=True)
class Plan:
    """Runs to be made, and facts that all their results note."""

    experiment: str
    profile: str
    smoke: bool
    folder: str
    runs: Sequence[specification.Run]


def run_folder(plan: Plan, run: specification.Run) -> str:
    """Returns the folder of a run."""
    return os.path.join(plan.folder, RUNS_FOLDER, run.name)


def command(run: specification.Run, folder: str) -> list[str]:
    """Returns program and arguments of a run."""
    return kinds.get(run.kind).command(run.settings, folder)


def finished(plan: Plan) -> dict[str, results.Result]:
    """Returns the results of exactly these runs, by name.

    Raises:
      errors.UserError: A result is damaged.
    """
    found = {}
    for run in plan.runs:
        result = results.read(run_folder(plan, run))
        if result is not None and not changes(run, result):
            found[run.name] = result
    return found


def changes(run: specification.Run, result: results.Result) -> list[str]:
    """Returns how a result's run differs from a planned run of the same name."""
    if result.kind != run.kind:
        return [f"kind {result.kind} -> {run.kind}"]
    return run.differences(result.settings)


def failures(plan: Plan) -> dict[str, str]:
    """Returns the reasons of runs that failed, by name."""
    lines = {}
    for run in plan.runs:
        with contextlib.suppress(OSError):
            path = os.path.join(run_folder(plan, run), FAILURE_FILENAME)
            with open(path, encoding="utf-8") as file:
                lines[run.name] = file.read().strip()
    return lines


def of_other_settings(plan: Plan) -> dict[str, str]:
    """Returns, by name, a reason for each run whose result is of other settings."""
    lines = {}
    for run in plan.runs:
        result = results.read(run_folder(plan, run))
        if result is not None and (changed := changes(run, result)):
            lines[run.name] = (
                f"the result that is there is of other settings ({'; '.join(changed)})"
            )
    return lines


def reasons(plan: Plan) -> dict[str, str]:
    """Returns why runs have no result, by name; runs that were never tried are not in it."""
    return {**of_other_settings(plan), **failures(plan)}


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


def time_left(
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


def most_at_once(runs: Sequence[specification.Run]) -> int:
    """Returns how many of these runs can go on at once, each with the cores that it needs."""
    return max(1, physical_cores() // cores_needed(runs))


def cores_needed(runs: Sequence[specification.Run]) -> int:
    """Returns how many cores the most demanding of these runs keeps busy."""
    return max(kinds.get(run.kind).cores(run.settings) for run in runs)


def physical_cores() -> int:
    """Returns how many physical cores runs can share out here."""
    return cores_of_run(None, 1)[results.PHYSICAL_CORES]


def cores_of_slot(slot: int, parallel: int) -> set[int] | None:
    """Returns the cores of a slot, or None for all."""
    cores = processes.sharable_cores()
    each = len(cores) // parallel
    mine = cores[slot * each : (slot + 1) * each]
    return set().union(*mine) if parallel > 1 and each else None


def cores_of_run(own: set[int] | None, parallel: int) -> dict[str, int]:
    """Returns how many usable and physical cores a run gets.

    A container's quota of cores is shared as well. Two hyperthreads of one core are two usable
    cores and one physical core.

    Args:
      own: The run's own cores; None: all.
      parallel: Runs at a time.
    """
    usable, groups = provenance.usable_cores(), processes.physical_cores()
    if own:
        usable = max(1, min(len(own), usable // parallel))
        groups = [core for core in groups if core & own]
    return {"usable_cores": usable, results.PHYSICAL_CORES: min(len(groups), usable)}
