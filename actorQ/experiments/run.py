"""Makes the runs of an experiment and its tables and figures; goes on where it was interrupted.

    python -m actorQ.experiments.run NAME [--profile=paper|workstation|laptop] [--smoke] [--dry_run]

NAME is a file of the folder `definitions` without its ending, or a path that ends in .yaml. Imports
no framework but matplotlib.
"""

from collections.abc import Sequence
import os
import shlex

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.experiments import command_line
from actorQ.experiments import loading
from actorQ.experiments import plans
from actorQ.experiments import published
from actorQ.experiments import runner
from actorQ.experiments import specification
from actorQ.experiments.reports import catalogue
from actorQ.experiments.reports import reporting
from actorQ.policy.native import library

NAME = "experiments.run"


def main(argv: list[str]) -> int:
    """Runs one experiment; see `cli.run` for errors."""
    if len(argv) != 2:
        raise errors.UserError(
            f"takes one argument, the experiment: {', '.join(loading.names())}, or a path "
            "that ends in .yaml."
        )
    values = flags.FLAGS
    common = loading.load_common()
    common.profile(values.profile)
    experiment = loading.load(argv[1], common)
    catalogue.check(experiment)
    runs = specification.expand(
        experiment, common, values.profile,
        command_line.seeds(values.seeds),
        command_line.task_names(values.tasks, experiment.tasks),
        command_line.precisions(values.precisions), values.smoke,
        command_line.peers(values.peers),
    )
    suffix = "-smoke" if values.smoke else ""
    folder = values.out or os.path.join(
        "logs", "experiments", f"{experiment.name}-{values.profile}{suffix}"
    )
    plan = plans.Plan(experiment.name, values.profile, values.smoke, folder, runs)
    parallel = values.parallel or plans.most_at_once(runs)
    if values.publish:
        published.check(plan, values.publish)  # Before hours of runs, not after them.
    if values.dry_run:
        _print(describe(plan, experiment, common.profile(values.profile), parallel))
        return 0
    code = 0
    if not values.report:
        if any(run.settings.get("inference_mode") == "native" for run in runs):
            library.load()  # Missing kernels are found now and not in every run.
        code = runner.Runner(plan, parallel).go()
    if code in (cli.EXIT_INTERRUPTED, cli.EXIT_REQUEUE):
        return code
    done = plans.finished(plan)
    failed = [] if values.report else [run.name for run in runs if run.name not in done]
    if not done:
        raise errors.UserError(
            _failed(failed, runs, folder) if failed
            else f"There is no result in {folder} to report on."
        )
    material = reporting.Material(
        experiment, values.profile, runs, done, plans.reasons(plan), catalogue.folder(folder),
        common.profile(values.profile).gpu_optional,
    )
    _print(f"{catalogue.write(material, values.smoke)}\nReport: {material.folder}")
    if values.publish:
        count = published.publish(plan, values.publish, experiment, common)
        _print(f"Published: {count} results in {values.publish}")
    if failed:
        raise errors.UserError(_failed(failed, runs, folder))
    if values.smoke and (short := catalogue.too_short(list(done.values()))):
        raise errors.UserError(" ".join(short))
    return code


def _failed(names: Sequence[str], runs: Sequence[specification.Run], folder: str) -> str:
    return (
        f"{len(names)} of {len(runs)} runs failed ({', '.join(names[:3])}"
        f"{', ...' if len(names) > 3 else ''}): see {os.path.join(folder, 'runs')}. The same "
        "command makes them again."
    )


def describe(
    plan: plans.Plan,
    experiment: specification.Experiment,
    profile: specification.Profile,
    parallel: int,
) -> str:
    """Returns the text of --dry_run."""
    done, reasons = plans.finished(plan), plans.of_other_settings(plan)
    usable, needed = plans.physical_cores(), plans.cores_needed(plan.runs)
    lines = [
        f"{experiment.title}: {len(plan.runs)} runs, {len(done)} done, {parallel} at a time; "
        f"results in {plan.folder}",
        f"Preset {experiment.preset}: it stands in the place of the profile's settings."
        if experiment.preset else f"Profile {profile.name}: {profile.about}",
        "An interrupted run is made again from its start.",
        f"A run keeps {needed} cores busy, this machine has {usable}"
        + (": too few, times would not be those of the profile." if needed > usable else "."),
        "",
    ]
    for number, run in enumerate(plan.runs, 1):
        if run.name in done:
            state = runner.describe(done[run.name])
        else:
            seconds, limit = plans.expected_s(run, done)
            length = "of unknown length" if seconds is None else plans.duration(seconds)
            state = f"to do, {'at most ' if limit and seconds else ''}{length}"
            if run.name in reasons:
                state += f"; {reasons[run.name]}"
        command = shlex.join(plans.command(run, plans.run_folder(plan, run)))
        lines += [f"[{number}/{len(plan.runs)}] {run.name}: {state}", f"    {command}"]
    expected = plans.time_left(plan.runs, done, parallel)
    return "\n".join([*lines, "", f"Expected time: {expected}."])


def _print(text: str) -> None:
    """Prints, and ignores a closed pipe or a full disk: the report is in files as well."""
    try:
        print(text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    command_line.define_flags()
    cli.run(main, takes_arguments=True, name=NAME)
