"""Runs all processes of a run on this machine. Imports no framework."""

import dataclasses
import os
import sys

from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import presets
from actorQ.core import provenance
from actorQ.core import snapshots
from actorQ.core import telemetry
from actorQ.launch import processes
from actorQ.launch import status_line
from actorQ.launch import supervisor


def run(config: config_lib.RunConfig, pin_cpus: bool, status: status_line.StatusLine) -> int:
    """Runs to the end, and leaves no process behind; returns the launcher's exit code.

    Args:
      config: Configuration of the run, with its final folder and port.
      pin_cpus: Whether learner and actors get cores of their own.
      status: Line that tells people how the run does.

    Raises:
      errors.UserError: A process failed for good.
    """
    learner, *peers = children(config, pin_cpus)
    supervised = supervisor.Supervisor(
        config, learner, peers, snapshots.Store(config.logpath), status
    )

    def start() -> bool:
        for process in (learner, *peers):
            process.start()
        return True

    cli.on_stop_signals(supervised.stop.set, supervised.kill)
    if not config.resume:
        status.say(f"Settings of {config.taskstr}: {presets.describe(config)}.")
    status.say(
        f"{config.taskstr}: learner, broadcaster and {config.n_actors} "
        f"actor{'s' if config.n_actors > 1 else ''} at {config.quantize} bits; "
        f"logs in {config.logpath}"
    )
    hint = processes.crowd_hint(config)
    if hint:
        status.say(hint)
    code = cli.EXIT_ERROR
    try:
        code = supervised.run(start)
    finally:
        if code != 0:
            status.tell_how_to_go_on("actorQ.launcher")
    return code


def children(config: config_lib.RunConfig, pin_cpus: bool) -> list[processes.Child]:
    """Returns learner, broadcaster and actors of a run, not started yet.

    Args:
      config: Configuration of the run, with its final folder and port.
      pin_cpus: Whether learner and actors get cores of their own.
    """
    cores = processes.plan_cores(config.n_actors) if pin_cpus else None
    if cores and config.evaluator_process == "auto":
        # The learner's process, which starts the evaluator, will not see the actors' cores.
        beside = "on" if provenance.has_core_beside(config.n_actors) else "off"
        config = dataclasses.replace(config, evaluator_process=beside)
    if cores and not config.learner_threads:
        # A container's quota, too, may leave the learner less than it could be pinned to.
        threads = min(len(cores[0]), provenance.usable_cores() - config.n_actors)
        threads -= int(config.evaluator_process == "on")
        config = dataclasses.replace(config, learner_threads=max(1, threads))
    python_flags = config_flags.to_flags(config)
    log_folder = os.path.join(config.logpath, telemetry.STDOUT_FOLDER)

    def child(
        name: str, module: str, core_set: set[int] | None, *extra: str
    ) -> processes.Child:
        command = [sys.executable, "-m", module, *python_flags, *extra]
        return processes.Child(name, command, os.path.join(log_folder, f"{name}.log"), core_set)

    learner = child(telemetry.LEARNER, processes.LEARNER_MODULE, cores[0] if cores else None)
    # The broadcaster is not pinned: its work is short, and finds the core that has least to do.
    broadcaster = child(telemetry.BROADCASTER, processes.BROADCASTER_MODULE, None)
    actors = [
        child(
            telemetry.actor_name(actor_id), processes.ACTOR_MODULE,
            cores[actor_id] if cores else None, f"--actor_id={actor_id}",
        )
        for actor_id in range(1, config.n_actors + 1)
    ]
    return [learner, broadcaster, *actors]
