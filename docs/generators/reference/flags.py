"""Tables of the flags of all programs, made from the code that defines them."""

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import re
import runpy
from typing import Any
from unittest import mock

from absl import flags

from actorQ import check_task
from actorQ import evaluate
from actorQ import launcher as launcher_program
from actorQ.benchmarks import actor_loop
from actorQ.benchmarks import advice
from actorQ.benchmarks import end_to_end
from actorQ.benchmarks import inference
from actorQ.benchmarks import learner
from actorQ.benchmarks import learner_parity
from actorQ.benchmarks import parameter_path
from actorQ.core import config as config_lib
from actorQ.core import presets
from actorQ.core import resuming
from actorQ.core import settings as run_settings
from actorQ.experiments import command_line as experiments
from actorQ.experiments.cluster import command_line as cluster
from actorQ.launch import command_line as launcher
from actorQ.launch.ray import cluster as ray_cluster
from actorQ.scripts import breakdown_table
from actorQ.scripts import plot_run
from actorQ.scripts import quantization_table
from actorQ.scripts import speedup_table
from baseline import collate
from baseline import cortex_benchmark
from baseline import deploy_benchmark
from baseline import enjoy
from baseline import findings
from baseline import integer_benchmark
from baseline import ptq_methods
from baseline import qat_integer
from baseline import qat_speed
from baseline import qat_sweep
from baseline import sweep
from baseline import table
from baseline import visualize
from baseline.deploy import __main__ as deploy
from baseline.mixed_precision import study as mixed_precision
from baseline.qat import training
from baseline.report import __main__ as report
from baseline.study import measuring_flags
from baseline.train import learning_curve
from baseline.train import settings
from docs.generators import tables

TOOLS: dict[str, Callable[[], None]] = {
    "train": settings.define_flags,
    "learning_curve": learning_curve.define_flags,
    "qat": training.define_flags,
    "qat_sweep": qat_sweep.define_flags,
    "qat_speed": qat_speed.define_flags,
    "qat_integer": qat_integer.define_flags,
    "ptq": measuring_flags.define,
    "sweep": sweep.define_flags,
    "ptq_methods": ptq_methods.define_flags,
    "enjoy": enjoy.define_flags,
    "collate": collate.define_flags,
    "table": table.define_flags,
    "integer_benchmark": integer_benchmark.define_flags,
    "deploy": deploy.define_flags,
    "deploy_benchmark": deploy_benchmark.define_flags,
    "cortex_benchmark": cortex_benchmark.define_flags,
    "mixed_precision": mixed_precision.define_flags,
    "visualize": visualize.define_flags,
    "findings": findings.define_flags,
    "report": report.define_flags,
}
# These tools take all flags of another.
INHERITS = {
    "sweep": "ptq", "qat": "train", "qat_sweep": "qat", "deploy_benchmark": "deploy",
}
SCRIPTS: dict[str, Callable[[Sequence[str]], None]] = {
    "plot_run": plot_run.main,
    "speedup_table": speedup_table.main,
    "quantization_table": quantization_table.main,
    "breakdown_table": breakdown_table.main,
}
BENCHMARKS: dict[str, Callable[[Sequence[str]], None]] = {
    "actor_loop": actor_loop.main,
    "advice": advice.main,
    "end_to_end": end_to_end.main,
    "inference": inference.main,
    "learner": learner.main,
    "learner_parity": learner_parity.main,
    "parameter_path": parameter_path.main,
}
_PLAYERS = tables.ROOT / "baseline" / "deploy"
# The column of defaults says what a help text says so.
_DEFAULT_IN_HELP = re.compile(r" \(default: (%\(default\)s|[\d ]+)\)")
_AND_MORE = "(default: %(default)s, "
_CHANGEABLE = {
    "Limits": ("num_episodes", "stop_return", "stop_window", "stop_smoothing", "max_seconds"),
    "Actors": ("n_actors", "envs_per_actor", "inference_mode", "actor_update_period"),
    "Exploration": ("sigma", "noise_exponent", "epsilon_max", "epsilon_zeta"),
    "Devices": (
        "actor_device_placement", "learner_device_placement", "learner_threads", "actors_yield",
        "learner_compile",
    ),
    "Learning": (
        "policy_learning_rate", "critic_learning_rate", "learning_rate",
        "learning_rate_decay_steps", "batch_size", "target_update_period",
        "importance_sampling_exponent", "invert_gradients", "learner_precision",
    ),
    "Weights on the wire": (
        "push_period_s", "push_share", "push_precision", "quantize_communication",
        "weight_compress", "compress",
    ),
    "Evaluations": (
        "eval_period_s", "eval_period_steps", "final_eval_episodes", "evaluator_process",
    ),
    "Logs and checkpoints": (
        "checkpoint_period_s", "log_period_s", "meter_period_s", "track", "track_energy",
    ),
    "Time limits": ("connect_timeout", "transfer_timeout", "data_timeout"),
}
_HEAD = ("Flag", "Default", "Meaning")


def run() -> str:
    """Returns a table with a row for every setting of a run."""
    defaults = presets.defaults()
    rows = [
        (f"`--{field.name}`", _default(defaults[field.name]), field.metadata["help"])
        for field in dataclasses.fields(config_lib.RunConfig)
    ]
    return tables.table(_HEAD, rows, len(_HEAD))


def positionals() -> str:
    """Returns a table of the launcher's arguments without a flag's name, in their order."""
    usage = re.search(r"\[(LOGDIR [A-Z_\s]+)\]", launcher_program.__doc__ or "")
    if usage is None:
        raise ValueError("The launcher's text names no arguments.")
    rows = [
        (str(number), f"`{word}`", f"`--{flag}`")
        for number, (word, flag) in enumerate(
            zip(usage[1].split(), launcher.POSITIONALS, strict=True), 1
        )
    ]
    return tables.table(("Position", "Argument", "Flag"), rows, 3)


def changeable() -> str:
    """Returns a table of the flags that a resumed run may change.

    Raises:
        ValueError: A flag is in no group, or one that may not change is in a group.
    """
    kinds = run_settings.Kind
    names = config_lib.names_of(kinds.CHANGEABLE) - config_lib.names_of(kinds.LAUNCHED)
    grouped = [name for group in _CHANGEABLE.values() for name in group]
    if sorted(grouped) != sorted(names):
        raise ValueError(f"These flags are in no group, or wrongly: {names ^ set(grouped)}.")
    rows = [
        (group, ", ".join(f"`--{name}`" for name in members))
        for group, members in _CHANGEABLE.items()
    ]
    return tables.table(("What", "Flags"), rows, 2)


def kept() -> str:
    """Returns a table of the flags that a resumed run may not change, and why."""
    grouped: dict[str, list[str]] = {}
    for name, reason in resuming.KEPT.items():
        grouped.setdefault(reason, []).append(f"`--{name}`")
    rows = [
        (", ".join(members), f"{reason[0].upper()}{reason[1:]}.")
        for reason, members in grouped.items()
    ]
    return tables.table(("Flags", "Why"), rows, 2)


def absl_table(define: Callable[[], None]) -> str:
    """Returns a table with a row for every flag that a program defines."""
    return tables.table(_HEAD, _absl_rows(define), len(_HEAD))


def argparse_table(
    head: str, programs: dict[str, Callable[[Sequence[str]], None]]
) -> str:
    """Returns a table with a row for every argument of every program.

    Args:
        head: Name of the column that has the programs.
        programs: The main functions, by program.
    """
    rows = [
        (f"`{name}`", *row) for name, main in programs.items() for row in _argparse_rows(main)
    ]
    return tables.table((head, *_HEAD), rows, 1 + len(_HEAD))


def baseline() -> str:
    """Returns a table of all flags of the tools of `baseline`, without what a tool takes over."""
    lines: list[tuple[str, ...]] = []
    shown: dict[str, set[tuple[str, ...]]] = {}
    for tool, define in TOOLS.items():
        rows = _absl_rows(define)
        shown[tool] = set(rows)
        inherited = shown.get(INHERITS.get(tool, ""), set())
        lines += [(f"`{tool}`", *row) for row in rows if row not in inherited]
    for player in ("run_policy", "run_native"):
        run = functools.partial(_run_player, player)
        lines += [(f"`deploy.{player}`", *row) for row in _argparse_rows(run)]
    return tables.table(("Tool", *_HEAD), lines, 1 + len(_HEAD))


def _run_player(name: str, argv: Sequence[str]) -> None:
    """Runs the script, which has no function of its own: devices get a copy of the file."""
    del argv
    runpy.run_path(str(_PLAYERS / f"{name}.py"), run_name="__main__")


def _absl_rows(define: Callable[[], None]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    # Other flags may be there already, with the same names.
    with mock.patch.dict(flags.FLAGS._flags(), clear=True):
        define()
        for name in flags.FLAGS:
            flag = flags.FLAGS[name]
            if flag.short_name == name:
                continue
            names = (f"`-{flag.short_name}`, " if flag.short_name else "") + f"`--{name}`"
            rows.append((names, _default(flag.default), _help(flag.help)))
        for name in list(flags.FLAGS):
            delattr(flags.FLAGS, name)
    return rows


def _argparse_rows(main: Callable[[Sequence[str]], None]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for action in _parser(main)._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        names = ", ".join(f"`{name}`" for name in action.option_strings)
        text = _DEFAULT_IN_HELP.sub("", _help(action.help or "")).replace(_AND_MORE, "(")
        text = text[:1].upper() + text[1:]
        if text and not text.endswith("."):
            text += "."
        if action.choices:
            text = f"{text} One of: {', '.join(str(choice) for choice in action.choices)}."
        required = action.required and action.default is None
        default = action.default
        if isinstance(default, list):  # A command line has spaces between the values.
            default = " ".join(str(value) for value in default)
        rows.append((
            names or f"`{action.metavar or action.dest}`",
            "required" if required else _default(default),
            text.strip(),
        ))
    return rows


def _parser(main: Callable[[Sequence[str]], None]) -> argparse.ArgumentParser:
    """Returns the parser that a program makes; the program ends where it would parse."""
    found: list[argparse.ArgumentParser] = []

    def parse_args(parser: argparse.ArgumentParser, *_: Any) -> argparse.Namespace:
        found.append(parser)
        raise SystemExit

    with mock.patch.object(argparse.ArgumentParser, "parse_args", parse_args):
        try:
            main([])
        except SystemExit:
            pass
    return found[0]


def _default(value: Any) -> str:
    if isinstance(value, list):
        value = ",".join(str(part) for part in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return {None: "none", "": "empty"}.get(value, f"`{value}`")


def _help(text: str) -> str:
    """Returns one line without the bars that would end a cell."""
    text = " ".join(text.split()).partition("; repeat this option")[0]
    # absl puts an enumeration's values in front: <a|b>: text.
    values, found, rest = text.partition(">: ")
    if found and values.startswith("<"):
        text = f"{values[1:].replace('|', ', ')}. {rest}"
    return text.replace("|", "/")


BLOCKS: dict[str, Callable[[], str]] = {
    "run": run,
    "changeable": changeable,
    "kept": kept,
    "positionals": positionals,
    "launcher": functools.partial(absl_table, launcher.define_flags),
    "ray": functools.partial(absl_table, ray_cluster.define_flags),
    "evaluate": functools.partial(absl_table, evaluate.define_flags),
    "check_task": functools.partial(absl_table, check_task.define_flags),
    "experiments": functools.partial(absl_table, experiments.define_flags),
    "cluster": functools.partial(absl_table, cluster.define_flags),
    "scripts": functools.partial(argparse_table, "Script", SCRIPTS),
    "benchmarks": functools.partial(argparse_table, "Benchmark", BENCHMARKS),
    "baseline": baseline,
}
