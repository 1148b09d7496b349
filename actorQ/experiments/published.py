"""Copies an experiment's results and report, without logs and checkpoints, to be committed.

The copy has the layout of an experiment's folder (see `runner`), so that `--report --out=COPY` with
the flags of its runs makes tables and figures from it again. Imports no framework but matplotlib.
"""

from collections.abc import Sequence
import dataclasses
import os

from actorQ.core import errors
from actorQ.core import output
from actorQ.core import provenance
from actorQ.experiments import plans
from actorQ.experiments import results
from actorQ.experiments import specification
from actorQ.experiments.reports import catalogue
from actorQ.experiments.reports import reporting


def publish(
    plan: plans.Plan,
    folder: str,
    experiment: specification.Experiment,
    common: specification.Common,
) -> int:
    """Copies the results of a plan and makes the report of all results in the copy.

    Commands in the copies are relative to the repository's folder.

    Args:
      plan: Plan whose runs have ended.
      folder: Folder of the copy. Results of the same names are replaced, other results stay. The
        report shows those that the experiment describes now, and names those of other settings.
      experiment: Experiment of the plan.
      common: Profiles, presets and settings that experiments share.

    Returns:
      Number of results that were copied.

    Raises:
      errors.UserError: A file cannot be written, or `check` refuses the folder.
    """
    there = check(plan, folder)
    copied = plans.finished(plan)
    shown = _together(plan, there, experiment, common)
    copy = dataclasses.replace(plan, folder=folder, runs=shown)
    for run in plan.runs:
        if run.name in copied:
            target = plans.run_folder(copy, run)
            output.make_folder(target)
            result = copied[run.name]
            command = result.command.replace(provenance.ROOT + os.sep, "")
            results.write(dataclasses.replace(result, command=command), target)
    done = plans.finished(copy)
    reasons = {**plans.of_other_settings(copy), **plans.failures(plan)}
    named = {*done, *reasons, *(run.name for run in plan.runs)}
    catalogue.write(
        reporting.Material(
            experiment, plan.profile, [run for run in shown if run.name in named], done, reasons,
            catalogue.folder(folder), common.profile(plan.profile).gpu_optional,
        ),
        plan.smoke,
    )
    return len(copied)


def check(plan: plans.Plan, folder: str) -> list[results.Result]:
    """Returns the results that are in a folder already, to which a plan is to be published.

    Raises:
      errors.UserError: The folder is that of the runs itself. Or a result in it is damaged, or of
        another experiment or profile, or of a smoke run while the plan's are not.
    """
    if os.path.realpath(folder) == os.path.realpath(plan.folder):
        raise errors.UserError(f"--publish={folder} is the folder of the runs itself.")
    there = _there(folder)
    for result in there:
        if result.experiment != plan.experiment:  # Its runs may have the same names as ours.
            raise errors.UserError(
                f"{folder} holds results of {result.experiment} ({result.name}): publish those of "
                f"{plan.experiment} in another folder."
            )
        if (result.profile, result.smoke) != (plan.profile, plan.smoke):
            raise errors.UserError(
                f"{folder} holds {'smoke ' if result.smoke else ''}results of the profile "
                f"{result.profile} ({result.name}): publish those of {plan.profile}"
                f"{' --smoke' if plan.smoke else ''} in another folder."
            )
    return there


def _there(folder: str) -> list[results.Result]:
    runs = os.path.join(folder, plans.RUNS_FOLDER)
    names = sorted(os.listdir(runs)) if os.path.isdir(runs) else []
    found = (results.read(os.path.join(runs, name)) for name in names)
    return [result for result in found if result is not None]


def _together(
    plan: plans.Plan,
    there: Sequence[results.Result],
    experiment: specification.Experiment,
    common: specification.Common,
) -> list[specification.Run]:
    """Returns the experiment's runs with all seeds and precisions of the plan or of a result."""
    both: list[specification.Run | results.Result] = [*plan.runs, *there]
    ours = {each.precision for each in both if each.kind == experiment.kind}
    return specification.expand(
        experiment, common, plan.profile, sorted({each.seed for each in both}),
        precisions=sorted(ours, reverse=True) or None, smoke=plan.smoke,
    )
