"""Starts a training, measures a stretch of it from its logs, and ends it. Imports no framework."""

import contextlib
import dataclasses
import os
import sys
import tempfile
import time
from typing import Protocol

import psutil

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.launch import processes

_START_TIMEOUT_S = 120.0
_SETTLE_S = 4.0
_END_TIMEOUT_S = 60.0
_POLL_S = 0.2


def run_flags(folder: str) -> list[str]:
    """Returns the launcher's flags for a run that is measured and never ends by itself.

    Args:
      folder: Folder for the run's folder, `run`.
    """
    return [
        f"--logdir={folder}", "--run_name=run", "--num_episodes=1000000000", "--eval_period_s=0",
        "--eval_period_steps=0", "--final_eval_episodes=0", "--checkpoint_period_s=3600",
        "--log_period_s=0.5",
    ]


class Measurable(Protocol):
    """A run that `measure` can start."""

    def flags(self, folder: str) -> list[str]:
        """Returns the launcher's flags, with those of `run_flags`."""


@dataclasses.dataclass(frozen=True)
class Rates:
    """Figures of a run's steady part.

    Attributes:
      actor_steps_per_s: Environment steps of all actors in a second.
      learner_steps_per_s: Learner steps in a second.
      actor_cpu_us: CPU time of the actors' processes for one environment step, microseconds.
      learner_cpu_ms: CPU time of the learner's process (with the server) for one learner step.
      phases_us: Microseconds of the acting threads for one environment step, by phase.
      learner_device: What the learner computed on, "CPU" or "GPU".
    """

    actor_steps_per_s: float
    learner_steps_per_s: float
    actor_cpu_us: float
    learner_cpu_ms: float
    phases_us: dict[str, float]
    learner_device: str = "CPU"


@dataclasses.dataclass(frozen=True)
class _Reading:
    time: float
    learner_steps: float
    actor_steps: float
    phases: dict[str, float]
    actor_cpu_s: float
    learner_cpu_s: float


def measure(run: Measurable, seconds: float, settle_s: float = _SETTLE_S) -> Rates:
    """Starts a run, measures a stretch of it, and ends it.

    Args:
      run: The run.
      seconds: Length of the stretch.
      settle_s: Seconds between the learner's first steps and the stretch.

    Raises:
      errors.UserError: The run ended by itself, or its learner did not begin in time.
    """
    with tempfile.TemporaryDirectory() as folder:
        logs = os.path.join(folder, "run")
        launcher = processes.Child(
            "the launcher", [sys.executable, "-m", "actorQ.launcher", *run.flags(folder)],
            os.path.join(folder, "output.txt"), None,
        )
        launcher.start()
        try:
            _wait_for_learner(launcher, logs)
            time.sleep(settle_s)
            before = _read(launcher, logs)
            time.sleep(seconds)
            after = _read(launcher, logs)
            device = config_lib.load_record(logs)["learner_device"]
        finally:
            launcher.terminate()
            launcher.wait(_END_TIMEOUT_S)
            launcher.kill()
    return dataclasses.replace(rates(before, after), learner_device=device)


def rates(before: _Reading, after: _Reading) -> Rates:
    """Returns the rates between two readings.

    Raises:
      errors.UserError: The learner or the actors made no steps between them.
    """
    seconds = after.time - before.time
    learner_steps = after.learner_steps - before.learner_steps
    actor_steps = after.actor_steps - before.actor_steps
    if not (seconds > 0 and learner_steps > 0 and actor_steps > 0):
        raise errors.UserError(
            f"The run has no steady part: it made {learner_steps:g} learner steps and "
            f"{actor_steps:g} actor steps in {seconds:.1f} s. Give it more time with --seconds."
        )
    return Rates(
        actor_steps / seconds,
        learner_steps / seconds,
        1e6 * (after.actor_cpu_s - before.actor_cpu_s) / actor_steps,
        1e3 * (after.learner_cpu_s - before.learner_cpu_s) / learner_steps,
        {
            phase: 1e6 * (after.phases[phase] - before.phases[phase]) / actor_steps
            for phase in telemetry.PHASES
        },
    )


def _wait_for_learner(launcher: processes.Child, logs: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    train = os.path.join(logs, telemetry.LEARNER, telemetry.TRAIN_CSV)
    while telemetry.last_row(train).get("learner_steps", 0) < 2:
        if launcher.poll() is not None or time.monotonic() > deadline:
            raise errors.UserError(f"The run did not get going: {_why(launcher)}")
        time.sleep(_POLL_S)


def _why(launcher: processes.Child) -> str:
    return launcher.error_line() or launcher.last_line()


def _read(launcher: processes.Child, logs: str) -> _Reading:
    """Waits for the learner's next row, then reads all logs and clocks.

    Raises:
      errors.UserError: The run has ended.
    """
    train = os.path.join(logs, telemetry.LEARNER, telemetry.TRAIN_CSV)
    old = telemetry.last_row(train)["unix_time"]
    while (row := telemetry.last_row(train))["unix_time"] == old and launcher.poll() is None:
        time.sleep(0.02)
    if launcher.poll() is not None:
        raise errors.UserError(f"The run ended while it was measured: {_why(launcher)}")
    cpu = {processes.ACTOR_MODULE: 0.0, processes.LEARNER_MODULE: 0.0}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            times, command = process.cpu_times(), process.cmdline()
            for module in cpu:
                if module in command:
                    cpu[module] += times.user + times.system
    phases = dict.fromkeys(telemetry.PHASES, 0.0)
    for actor in telemetry.actor_folders(logs):
        last = telemetry.last_row(os.path.join(actor, telemetry.PHASES_CSV))
        for phase in phases:
            phases[phase] += last.get(phase, 0.0)
    return _Reading(
        row["unix_time"], row["learner_steps"], row["actor_steps"], phases,
        cpu[processes.ACTOR_MODULE], cpu[processes.LEARNER_MODULE],
    )
