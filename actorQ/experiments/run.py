"""Makes the runs of an experiment and its tables and figures; goes on where it was interrupted.

    python -m actorQ.experiments.run NAME [--profile=paper|workstation|laptop] [--smoke] [--dry_run]

NAME is a file of this folder without its ending, or a path that ends in .yaml. Imports no
framework but matplotlib.
"""

from collections.abc import Callable
from collections.abc import Sequence
import os
import shlex

from absl import flags

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import precisions as precisions_lib
from actorQ.experiments import cores
from actorQ.experiments import expectation
from actorQ.experiments import loading
from actorQ.experiments import plans
from actorQ.experiments import published
from actorQ.experiments import runner
from actorQ.experiments import specification
from actorQ.experiments import training
from actorQ.experiments.reports import catalogue
from actorQ.experiments.reports import reporting
from actorQ.policy.native import library

NAME = "experiments.run"
DEFAULT_PROFILE = "laptop"
NONE = ["none"]


def define_flags(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags of this tool."""
    flags.DEFINE_string(
        "profile", DEFAULT_PROFILE,
        "Kind of machine that the settings are for: paper, workstation or laptop.",
        flag_values=flag_values,
    )
    flags.DEFINE_boolean(
        "smoke", False,
        f"Only see that everything starts: each task and precision for {training.SMOKE_STEPS} "
        "learner steps, with the profile's model and batch, first seed.", flag_values=flag_values,
    )
    flags.DEFINE_boolean(
        "dry_run", False,
        "Only print the runs, their exact commands and the expected time.",
        flag_values=flag_values,
    )
    flags.DEFINE_boolean(
        "report", False, "Make no runs, only the report from the results that are there.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "out", "", "Folder of runs and report; empty: logs/experiments/NAME-PROFILE.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "publish", "",
        "Folder to which results are copied at the end, without logs and checkpoints (what one "
        "commits), beside those that are there; the report is of both. Empty: none.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "seeds", [], "Seeds, whole numbers >= 0 with commas between; empty: the experiment's.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "tasks", [],
        "Tasks, with commas between, with or without their suite; empty: the experiment's.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "precisions", [],
        "Precisions of the actors, bits from 32, 16, 8, 4 with commas between, or none; empty: the "
        "experiment's.", flag_values=flag_values,
    )
    flags.DEFINE_list(
        "peers", [],
        "Somebody else's agents to compare with, from acme, sb3 with commas between, or none; "
        "empty: the experiment's.", flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "parallel", 1,
        "Runs at a time, each on its own share of the cores; 0: as many as have the cores that "
        "they need. Times are honest with 1 only.", lower_bound=0, upper_bound=1024,
        flag_values=flag_values,
    )


def flag_rows(define: Callable[[flags.FlagValues], None] = define_flags) -> list[str]:
    """Returns a Markdown row for every flag: name, default, help.

    Args:
      define: defines the flags of a tool; by default of this one.
    """
    own = flags.FlagValues()
    define(own)
    lines = []
    for name in own:
        default = own[name].default
        default = ",".join(default) if isinstance(default, list) else default
        text = "empty" if default == "" else f"`{default}`".replace("False", "off")
        lines.append(f"| `--{name}` | {text} | {own[name].help} |")
    return lines


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
    precisions = None if values.precisions == NONE else [
        precisions_lib.parse("precisions", text) for text in values.precisions
    ]
    runs = specification.expand(
        experiment, common, values.profile,
        _seeds(values.seeds), task_names(values.tasks, experiment.tasks), precisions,
        values.smoke, None if values.peers == NONE else values.peers,
    )
    suffix = "-smoke" if values.smoke else ""
    folder = values.out or os.path.join(
        "logs", "experiments", f"{experiment.name}-{values.profile}{suffix}"
    )
    plan = plans.Plan(experiment.name, values.profile, values.smoke, folder, runs)
    parallel = values.parallel or cores.most_at_once(runs)
    if values.publish:
        published.check(plan, values.publish)  # Better now than after hours of runs.
    if values.dry_run:
        _print(describe(plan, experiment, common.profile(values.profile), parallel))
        return 0
    code = 0
    if not values.report:
        if any(run.settings.get("inference_mode") == "native" for run in runs):
            library.load()  # Where kernels are missing, better now than in every run.
        code = runner.Runner(plan, parallel).go()
    if code == cli.EXIT_INTERRUPTED:
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
        f"{', ...' if len(names) > 3 else ''}): see {os.path.join(folder, 'runs')}; the same "
        "command makes them again."
    )


def describe(
    plan: plans.Plan,
    experiment: specification.Experiment,
    profile: specification.Profile,
    parallel: int,
) -> str:
    """Returns what --dry_run prints."""
    done, reasons = plans.finished(plan), plans.of_other_settings(plan)
    usable, needed = cores.physical(), cores.needed(plan.runs)
    lines = [
        f"{experiment.title}: {len(plan.runs)} runs, {len(done)} done, {parallel} at a time; "
        f"results in {plan.folder}",
        f"Profile {profile.name}: {profile.about}",
        "An interrupted run is made again from its start.",
        f"A run keeps {needed} cores busy, this machine has {usable}"
        + (": too few, times would not be those of the profile." if needed > usable else "."),
        "",
    ]
    for number, run in enumerate(plan.runs, 1):
        if run.name in done:
            state = runner.describe(done[run.name])
        else:
            seconds, limit = expectation.expected_s(run, done)
            length = "of unknown length" if seconds is None else expectation.duration(seconds)
            state = f"to do, {'at most ' if limit and seconds else ''}{length}"
            if run.name in reasons:
                state += f"; {reasons[run.name]}"
        command = shlex.join(plans.command(run, plans.run_folder(plan, run)))
        lines += [f"[{number}/{len(plan.runs)}] {run.name}: {state}", f"    {command}"]
    expected = expectation.left(plan.runs, done, parallel)
    return "\n".join([*lines, "", f"Expected time: {expected}."])


def task_names(parts: Sequence[str], tasks: Sequence[str]) -> list[str]:
    """Puts together again what the commas between tasks took apart: a suite and its task."""
    names, waiting = [], list(parts)
    while waiting:
        whole = ",".join(waiting[:2])
        names.append(whole if whole in tasks else waiting[0])
        del waiting[: 2 if whole in tasks else 1]
    return names


def _print(text: str) -> None:
    """Prints; `| head` may have seen enough, and a disk may be full: the report is in files."""
    try:
        print(text, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _seeds(texts: Sequence[str]) -> list[int]:
    for text in texts:
        if not (text.isascii() and text.isdecimal()):
            raise errors.UserError(
                f"--seeds={','.join(texts)}: {text!r} is not a whole number, 0 or more."
            )
    return [int(text) for text in texts]


if __name__ == "__main__":
    define_flags()
    cli.run(main, takes_arguments=True, name=NAME)
