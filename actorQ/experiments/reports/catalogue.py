"""The reports that can be made of an experiment's results, by name.

Files go to the folder `report` of the experiment: NAME.md, tables as CSV, figures as PNG, and
runs.csv with a row for each run. Imports no framework but matplotlib.
"""

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import functools
import os

from actorQ.core import errors
from actorQ.core import output
from actorQ.experiments import results as results_lib
from actorQ.experiments import specification
from actorQ.experiments import training
from actorQ.experiments.reports import breakdown
from actorQ.experiments.reports import reporting
from actorQ.experiments.reports import sweep
from actorQ.experiments.reports import tasks
from actorQ.experiments.reports import throughput
from actorQ.experiments.reports import time_to_reward

REPORT_FOLDER = "report"
RUNS_CSV = "runs.csv"

# A report takes the material, writes its files and returns Markdown.
Report = Callable[[reporting.Material], str]
REPORTS: dict[str, Report] = {
    "time_to_reward": time_to_reward.write,
    "tasks": tasks.write,
    "staleness": functools.partial(sweep.write, sweep=sweep.STALENESS),
    "communication": functools.partial(sweep.write, sweep=sweep.COMMUNICATION),
    "final_reward": functools.partial(sweep.write, sweep=sweep.PRECISION),
    "learner_precision": functools.partial(sweep.write, sweep=sweep.LEARNER_PRECISION),
    "breakdown": breakdown.write,
    "throughput": throughput.write,
}
# The setting that varies in a report's runs; all other settings are equal.
_VARIED = {
    "staleness": "actor_update_period",
    "communication": "quantize_communication",
    "learner_precision": "learner_precision",
    "breakdown": "actor_update_period",
    "throughput": "n_actors",
}
_WITH_PEERS = ("time_to_reward", "tasks")


def check(experiment: specification.Experiment) -> None:
    """Checks that an experiment's report exists and can show the experiment.

    Raises:
      errors.UserError: It does not exist, or cannot show it.
    """
    if experiment.report not in REPORTS:
        raise errors.UserError(
            f"{experiment.name}: there is no report {experiment.report!r}: choose one of "
            f"{', '.join(REPORTS)}."
        )
    shown = _VARIED.get(experiment.report)
    varied = experiment.vary[0] if experiment.vary else None
    if varied != shown:
        raise errors.UserError(
            f"{experiment.name}: the report {experiment.report} "
            f"{f'shows runs that differ in {shown}' if shown else 'cannot show a varied setting'} "
            f"(vary), not in {varied or 'nothing'}."
        )
    if experiment.peers and experiment.report not in _WITH_PEERS:
        raise errors.UserError(
            f"{experiment.name}: the report {experiment.report} shows no peers (only "
            f"{' and '.join(_WITH_PEERS)} do)."
        )


def write(material: reporting.Material, smoke: bool) -> str:
    """Writes the report of an experiment; returns its tables as Markdown.

    Args:
      material: Input of the report, with one result at least.
      smoke: Whether the runs were made only to see that they start.

    Raises:
      errors.UserError: A file cannot be written.
    """
    experiment = material.experiment
    output.make_folder(material.folder)
    before = _written(material.folder)
    text = _smoke(material) if smoke else REPORTS[experiment.report](material)
    title = f"# {experiment.title}{' (smoke)' if smoke else ''}\n\n"
    output.write_text(material.path(f"{experiment.name}.md"), title + text)
    rows = [results_lib.csv_row(result) for result in material.all_results]
    output.write_csv(material.path(RUNS_CSV), rows)
    for name, moment in _written(material.folder).items():
        if before.get(name) == moment:  # An earlier report's file may contradict this report.
            with contextlib.suppress(OSError):
                os.remove(material.path(name))
    return text


def _written(report_folder: str) -> dict[str, int]:
    """Returns the modification times of tables and figures in a report's folder, by name."""
    return {
        entry.name: entry.stat().st_mtime_ns
        for entry in os.scandir(report_folder) if entry.name.endswith((".csv", ".png"))
    }


def folder(experiment_folder: str) -> str:
    """Returns the folder of a report."""
    return os.path.join(experiment_folder, REPORT_FOLDER)


def too_short(found: Sequence[results_lib.Result]) -> list[str]:
    """Returns a line for each smoke run that did not make its steps and so proves nothing."""
    return [
        f"{result.name} made only {result.measured.learner_steps:g} of {training.SMOKE_STEPS} "
        "learner steps in its time."
        for result in found
        if result.measured.learner_steps < training.SMOKE_STEPS
    ]


def _smoke(material: reporting.Material) -> str:
    header = ["Run", "Outcome", "Seconds", "Learner steps", "Actor steps", "Message, bytes"]
    rows = [
        [
            result.name, result.measured.outcome, output.number(result.wall_s),
            output.number(result.measured.learner_steps, 0),
            output.number(result.measured.actor_steps, 0),
            reporting.mean([result.measured.message_bytes], 0),
        ]
        for result in material.all_results
    ]
    lines = ["These runs show that each task and precision starts, and nothing else."]
    lines += [f"**{line}**" for line in too_short(material.all_results)]
    return output.markdown_table(header, rows) + "\n" + reporting.bullets(
        [*lines, *reporting.notes(material)]
    )
