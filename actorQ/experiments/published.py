"""Copies what is worth keeping of an experiment: results and report, without logs and checkpoints.

The copy has the layout of an experiment's folder (see `runner`), so that `--report --out=COPY`
makes tables and figures from it again. Imports no framework but matplotlib.
"""

from collections.abc import Sequence
import dataclasses
import os

from actorQ import errors
from actorQ import provenance
from actorQ.experiments import reporting
from actorQ.experiments import reports
from actorQ.experiments import results
from actorQ.experiments import runner
from actorQ.experiments import specification
from actorQ.scripts import curves


def publish(
    plan: runner.Plan,
    folder: str,
    experiment: specification.Experiment,
    planned: Sequence[specification.Run],
) -> int:
    """Copies the results of a plan and makes the report of all that is there; returns how many.

    Commands in the copies are as from the repository's folder, whatever its place on this machine.

    Args:
      plan: whose runs have ended.
      folder: of the copy; results of the same names are replaced. Others that are there stay, and
        are in the report if they are what the experiment describes now.
      experiment: whose runs they are.
      planned: all of its runs in the plan's profile.

    Raises:
      errors.UserError: a file cannot be written, a result is damaged, or of another profile.
    """
    if os.path.realpath(folder) == os.path.realpath(plan.folder):
        raise errors.UserError(f"--publish={folder} is the folder of the runs itself.")
    copied = runner.finished(plan)
    named = {run.name for run in plan.runs}
    every = [*plan.runs, *(run for run in planned if run.name not in named)]
    copy = dataclasses.replace(plan, folder=folder, runs=every)
    for run in every:
        there = results.read(runner.run_folder(copy, run))
        if there is not None and there.profile != plan.profile:
            raise errors.UserError(
                f"{folder} holds results of the profile {there.profile} ({run.name}): publish "
                f"those of {plan.profile} in another folder."
            )
    for run in plan.runs:
        if run.name in copied:
            target = runner.run_folder(copy, run)
            curves.make_folder(target)
            result = copied[run.name]
            command = result.command.replace(provenance.ROOT + os.sep, "")
            results.write(dataclasses.replace(result, command=command), target)
    done = runner.finished(copy)
    # In the experiment's order; those of the plan that have no result are named in the report.
    shown = [run for run in planned if run.name in done or run.name in named]
    known = {run.name for run in shown}
    shown += [run for run in plan.runs if run.name not in known]
    reports.write(
        reporting.Material(
            experiment, plan.profile, shown, done, runner.failures(plan), reports.folder(folder)
        ),
        plan.smoke,
    )
    return len(copied)
