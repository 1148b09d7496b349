"""Benchmark 5: whole runs, learner, broadcaster and actors together on two cores.

    python -m actorQ.benchmarks.end_to_end --out DIR

Every run is `./run_multiprocess.sh` itself, with a folder of its own and a free port. It gets some
seconds after the learner's begin, so that caches and queues fill. The steps of a stretch are then
counted from the run's logs, and the run is interrupted. Nothing is learned in so short a time.
"""

from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import os
import statistics
import sys
import tempfile
import time
from typing import Any

import psutil

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import precisions
from actorQ.core import telemetry
from actorQ.core import timing
from actorQ.launch import processes

_NAME = "end_to_end"
_BITS = precisions.NAMES
_START_TIMEOUT_S = 120.0
_SETTLE_S = 4.0
_END_TIMEOUT_S = 60.0
_POLL_S = 0.2


@dataclasses.dataclass(frozen=True)
class Run:
    """The settings of one run."""

    actors: int
    bits: int
    model: str
    task: str
    inference_mode: str
    samples_per_insert: int
    batch_size: int
    environments: int

    def flags(self, folder: str) -> list[str]:
        """Returns the launcher's flags."""
        return [
            f"--logdir={folder}", "--run_name=run", f"--taskstr={self.task}",
            f"--model_str={self.model}", f"--n_actors={self.actors}", f"--quantize={self.bits}",
            f"--inference_mode={self.inference_mode}", f"--envs_per_actor={self.environments}",
            f"--replay_table_max_times_sampled={self.samples_per_insert}",
            f"--batch_size={self.batch_size}", "--num_episodes=1000000000",
            "--learner_device_placement=CPU", "--eval_period_s=0", "--final_eval_episodes=0",
            "--checkpoint_period_s=3600", "--log_period_s=0.5",
        ]


@dataclasses.dataclass(frozen=True)
class Rates:
    """Figures of a run's steady part.

    Attributes:
      actor_steps_per_s: Environment steps of all actors in a second.
      learner_steps_per_s: Learner steps in a second.
      actor_cpu_us: CPU time of the actors' processes for one environment step, microseconds.
      learner_cpu_ms: CPU time of the learner's process (with the server) for one learner step.
      phases_us: Microseconds of the acting threads for one environment step, by phase.
    """

    actor_steps_per_s: float
    learner_steps_per_s: float
    actor_cpu_us: float
    learner_cpu_ms: float
    phases_us: dict[str, float]


@dataclasses.dataclass(frozen=True)
class _Reading:
    time: float
    learner_steps: float
    actor_steps: float
    phases: dict[str, float]
    actor_cpu_s: float
    learner_cpu_s: float


def measure(run: Run, seconds: float) -> Rates:
    """Starts a run, measures a stretch of it, and ends it.

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
            time.sleep(_SETTLE_S)
            before = _read(launcher, logs)
            time.sleep(seconds)
            after = _read(launcher, logs)
        finally:
            launcher.terminate()
            launcher.wait(_END_TIMEOUT_S)
            launcher.kill()
    return rates(before, after)


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


def main(argv: Sequence[str]) -> None:
    """Runs the benchmark."""
    parser = timing.parser(_NAME, __doc__.split("\n")[0], repeats=1)
    parser.add_argument(
        "--task", default="dm_control,cartpole_balance", metavar="TASK",
        help="Task as SUITE,TASK (default: %(default)s).",
    )
    parser.add_argument(
        "--model", default="1024,1024,1024", metavar="SIZES",
        help="Hidden layer sizes of the policy, units (default: %(default)s).",
    )
    parser.add_argument(
        "--batch_size", type=timing.positive, default=256, metavar="B",
        help="Transitions in one learner step (default: %(default)s).",
    )
    parser.add_argument(
        "--samples_per_insert", type=timing.positive, default=2, metavar="K",
        help="A transition is sampled so often (default: %(default)s, so that the learner needs "
        "many transitions).",
    )
    parser.add_argument(
        "--inference_mode", choices=config_lib.INFERENCE_MODES, default="native",
        help="Inference mode of the actors (default: %(default)s).",
    )
    parser.add_argument(
        "--actors", type=timing.positive, nargs="+", default=[1, 2, 4], metavar="N",
        help="Numbers of actors to measure runs with (default: 1 2 4).",
    )
    parser.add_argument(
        "--bits", type=int, choices=sorted(_BITS), nargs="+", default=[32, 8],
        help="Precisions of the actors, bits (default: 32 8).",
    )
    parser.add_argument(
        "--envs_per_actor", type=timing.positive, default=1, metavar="N",
        help="Environments of one actor process (default: %(default)s).",
    )
    parser.add_argument(
        "--seconds", type=timing.positive, default=15, help="Length of the measured stretch."
    )
    parser.add_argument(
        "--quick", action="store_true", help="Measure runs with one actor for 5 s each."
    )
    arguments = timing.parse(parser, argv, actors=[1], seconds=5)
    cores = timing.pin(2)
    runs = [
        Run(actors, bits, arguments.model, arguments.task, arguments.inference_mode,
            arguments.samples_per_insert, arguments.batch_size, arguments.envs_per_actor)
        for actors in arguments.actors for bits in arguments.bits
    ]

    def rates_of(run: Run) -> Rates:
        timing.progress(f"end_to_end: {run.actors} actors, {_BITS[run.bits]}")
        return measure(run, arguments.seconds)

    found = timing.interleave(
        {run: functools.partial(rates_of, run) for run in runs}, arguments.repeats
    )
    _report(found, arguments, cores)


def _report(found: dict[Run, list[Rates]], arguments: Any, cores: list[int]) -> None:
    def median(run: Run, name: str) -> float:
        return statistics.median(getattr(rate, name) for rate in found[run])

    rows = []
    for run, measured in found.items():
        wide = dataclasses.replace(run, bits=32)
        ratios = [
            f"{median(run, name) / median(wide, name):.2f}" if wide in found else ""
            for name in ("actor_steps_per_s", "learner_steps_per_s")
        ]
        phases = [
            statistics.median(rate.phases_us[phase] for rate in measured)
            for phase in ("environment_s", "inference_s", "insert_s")
        ]
        rows.append([
            str(run.actors), _BITS[run.bits], f"{median(run, 'actor_steps_per_s'):.0f}", ratios[0],
            f"{median(run, 'learner_steps_per_s'):.2f}", ratios[1],
            f"{median(run, 'actor_cpu_us'):.0f}", f"{median(run, 'learner_cpu_ms'):.1f}",
            *(f"{us:.0f}" for us in phases),
        ])
    timing.report(
        _NAME,
        f"{arguments.task}, policy {arguments.model}, batch {arguments.batch_size}, "
        f"{arguments.samples_per_insert} samples per insert, {arguments.inference_mode} inference, "
        f"{arguments.envs_per_actor} environments an actor; all processes on {len(cores)} cores",
        ("actors", "precision", "actor steps/s", "x fp32", "learner steps/s", "x fp32",
         "actor CPU us/step", "learner CPU ms/step", "environment us", "inference us",
         "insert us"),
        rows,
        {"runs": [
            {**dataclasses.asdict(run), "rates": [dataclasses.asdict(rate) for rate in measured]}
            for run, measured in found.items()
        ]},
        arguments.out,
        notes=(
            "Figures are of the steady part of short runs, from their logs. CPU of actors counts "
            "all threads of their processes. The learner's process holds the Reverb server too.",
            "With few samples per insert the learner may wait for the actors, and its steps follow "
            "theirs.",
        ),
    )


if __name__ == "__main__":
    timing.run(_NAME, main)
