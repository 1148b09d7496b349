"""Planned runs: which of them have a result, and why others have none. Imports no framework."""

from collections.abc import Sequence
import contextlib
import dataclasses
import os

from actorQ.experiments import kinds
from actorQ.experiments import results
from actorQ.experiments import specification

RUNS_FOLDER = "runs"
FAILURE_FILENAME = "failure.txt"


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
