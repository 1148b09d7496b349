"""Benchmark 5: whole runs, learner, broadcaster and actors together on two cores.

    python -m actorQ.benchmarks.end_to_end --out DIR

Every run is `./run_multiprocess.sh` itself, with a folder of its own and a free port. When the
learner has begun, and some seconds later for caches and queues, the steps of a stretch are counted
from the run's logs; then the run is interrupted. Nothing is learned in so short a time.
"""

from collections.abc import Sequence
import contextlib
import dataclasses
import os
import signal
import statistics
import subprocess
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
    """What one run is started with."""

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
    """What a run did in its steady part.

    Attributes:
      actor_steps_per_s: environment steps of all actors.
      learner_steps_per_s: as it says.
      actor_cpu_us: CPU time of the actors' processes for one environment step, microseconds.
      learner_cpu_ms: CPU time of the learner's process (with the server) for one learner step.
      phases_us: phase of the acting threads to microseconds a step.
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
      errors.UserError: it ended by itself, or its learner did not begin in time.
    """
    with tempfile.TemporaryDirectory() as folder:
        logs = os.path.join(folder, "run")
        output = os.path.join(folder, "output.txt")
        with open(output, "wb") as file:
            launcher = subprocess.Popen(
                [sys.executable, "-m", "actorQ.launcher", *run.flags(folder)],
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                preexec_fn=processes.attached(),  # Else Ctrl-C reaches it twice: it ends at once.
            )
        try:
            _wait_for_learner(launcher, logs, output)
            time.sleep(_SETTLE_S)
            before = _read(launcher, logs, output)
            time.sleep(seconds)
            after = _read(launcher, logs, output)
        finally:
            _end(launcher)
    return rates(before, after)


def rates(before: _Reading, after: _Reading) -> Rates:
    """Returns the rates between two readings.

    Raises:
      errors.UserError: there were no steps of a learner or of actors between them.
    """
    seconds = after.time - before.time
    learner_steps = after.learner_steps - before.learner_steps
    actor_steps = after.actor_steps - before.actor_steps
    if not (seconds > 0 and learner_steps > 0 and actor_steps > 0):
        raise errors.UserError(
            f"No steady part: {learner_steps:g} learner steps and {actor_steps:g} actor steps in "
            f"{seconds:.1f} s; give --seconds more time."
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


def _wait_for_learner(launcher: subprocess.Popen, logs: str, output: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    train = os.path.join(logs, telemetry.LEARNER, telemetry.TRAIN_CSV)
    while telemetry.last_row(train).get("learner_steps", 0) < 2:
        if launcher.poll() is not None or time.monotonic() > deadline:
            raise errors.UserError(f"The run did not get going: {_last_lines(output)}")
        time.sleep(_POLL_S)


def _last_lines(output: str) -> str:
    with open(output, encoding="utf-8", errors="replace") as file:
        return " | ".join(file.read().splitlines()[-3:])


def _read(launcher: subprocess.Popen, logs: str, output: str) -> _Reading:
    """Waits for the learner's next row, and reads all logs and clocks then.

    Raises:
      errors.UserError: the run has ended.
    """
    train = os.path.join(logs, telemetry.LEARNER, telemetry.TRAIN_CSV)
    old = telemetry.last_row(train)["unix_time"]
    while (row := telemetry.last_row(train))["unix_time"] == old and launcher.poll() is None:
        time.sleep(0.02)
    if launcher.poll() is not None:
        raise errors.UserError(f"The run ended while it was measured: {_last_lines(output)}")
    cpu = {processes.ACTOR_MODULE: 0.0, processes.LEARNER_MODULE: 0.0}
    for process in psutil.Process(launcher.pid).children():
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


def _end(launcher: subprocess.Popen) -> None:
    """Interrupts a launcher, which ends its processes; kills all of them if it takes too long."""
    if launcher.poll() is not None:
        return
    family = psutil.Process(launcher.pid).children(recursive=True)
    launcher.send_signal(signal.SIGINT)
    try:
        launcher.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        for process in [*family, launcher]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        launcher.wait()


def main(argv: Sequence[str]) -> None:
    """Runs the benchmark."""
    parser = timing.parser(_NAME, __doc__.split("\n")[0], repeats=1)
    parser.add_argument("--task", default="dm_control,cartpole_balance", metavar="TASK")
    parser.add_argument("--model", default="1024,1024,1024", metavar="SIZES")
    parser.add_argument("--batch_size", type=timing.positive, default=256, metavar="B")
    parser.add_argument(
        "--samples_per_insert", type=timing.positive, default=2, metavar="K",
        help="how often a transition is sampled (default: %(default)s, so that the learner asks "
        "for many)",
    )
    parser.add_argument(
        "--inference_mode", choices=config_lib.INFERENCE_MODES, default="native",
        help="of the actors (default: %(default)s)",
    )
    parser.add_argument("--actors", type=timing.positive, nargs="+", default=[1, 2, 4])
    parser.add_argument("--bits", type=int, choices=sorted(_BITS), nargs="+", default=[32, 8])
    parser.add_argument("--envs_per_actor", type=timing.positive, default=1, metavar="N")
    parser.add_argument("--seconds", type=timing.positive, default=15, help="that are measured")
    parser.add_argument("--quick", action="store_true", help="one actor, 5 s")
    arguments = timing.parse(parser, argv, actors=[1], seconds=5)
    cores = timing.pin(2)
    runs = [
        Run(actors, bits, arguments.model, arguments.task, arguments.inference_mode,
            arguments.samples_per_insert, arguments.batch_size, arguments.envs_per_actor)
        for actors in arguments.actors for bits in arguments.bits
    ]
    found: dict[Run, list[Rates]] = {run: [] for run in runs}

    def side(run: Run) -> float:
        timing.progress(f"end_to_end: {run.actors} actors, {_BITS[run.bits]}")
        found[run].append(measure(run, arguments.seconds))
        return 0.0

    timing.interleave(
        {str(index): lambda run=run: side(run) for index, run in enumerate(runs)},
        arguments.repeats,
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
            "Steady part of short runs, from their logs. CPU of actors: all threads of their "
            "processes. The learner's process holds the Reverb server too.",
            "With few samples per insert the learner may wait for actors; then its steps follow "
            "theirs.",
        ),
    )


if __name__ == "__main__":
    timing.run(_NAME, main)
