"""Starts real ActorQ processes for tests, and leaves none behind."""

import contextlib
import pathlib
import subprocess
import sys
import time

import numpy as np
import psutil

from actorQ.core import config as config_lib
from actorQ.policy import saved

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

# A run that is over in seconds: tiny networks, little data, no evaluation.
QUICK = (
    "--model_str=16,16",
    "--critic_str=16,16",
    "--batch_size=16",
    "--min_replay_size=100",
    "--num_episodes=30",
    "--eval_period_s=0",
    "--final_eval_episodes=1",
    "--max_episode_steps=100",
    "--log_period_s=0.2",
    "--push_period_s=0.05",
    "--connect_timeout=60",
)


class Process:
    """One started process; its output goes to a file."""

    def __init__(self, command, log, cwd=REPOSITORY):
        self.log = pathlib.Path(log)
        with open(log, "wb") as file:
            self.popen = subprocess.Popen(
                command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )
        self.family = {}

    def wait(self, timeout_s=60):
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s} s:\n{self.output()}") from None

    def output(self):
        return self.log.read_text(errors="replace")

    def signal(self, signum):
        self.popen.send_signal(signum)

    def descendants(self):
        """All processes that this one ever had below it, as far as was looked."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.popen.pid).children(recursive=True):
                self.family[child.pid] = child
        return list(self.family.values())


class Crew:
    """Starts processes and kills what is left of them at the end."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self._started = []

    def start(self, *command, cwd=REPOSITORY):
        log = self.folder / f"process{len(self._started)}.log"
        process = Process(list(command), log, cwd)
        self._started.append(process)
        return process

    def module(self, name, *flags):
        return self.start(sys.executable, "-m", f"actorQ.{name}", *flags)

    def launch(self, *arguments):
        return self.start(sys.executable, "-m", "actorQ.launcher", *arguments)

    def end(self):
        for process in self._started:
            for child in [*process.descendants(), process.popen]:
                with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                    child.kill()
            process.popen.wait(10)


def poll(condition, timeout_s=60, period_s=0.05, what="the condition"):
    """Waits until `condition()` is true and returns its value."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(period_s)
    raise AssertionError(f"{what} did not come true within {timeout_s} s")


def alive(processes):
    """Returns the psutil processes that still run."""
    running = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
    return running


def named(processes, module):
    """Returns the psutil processes that run `python -m actorQ.<module>`."""
    found = []
    for process in alive(processes):
        with contextlib.suppress(psutil.NoSuchProcess):
            if f"actorQ.{module}" in process.cmdline():
                found.append(process)
    return found


def random_checkpoint(architecture, facts, seed=0):
    """A policy with random weights, as a run would save it."""
    rng = np.random.default_rng(seed)
    weights = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in architecture.parameter_shapes.items()
    }
    return saved.PolicyCheckpoint(architecture, weights, facts)


def run_folder(logdir):
    """The one run folder under `logdir`."""
    (folder,) = [entry for entry in pathlib.Path(logdir).iterdir() if entry.is_dir()]
    return folder


def error_lines(output, program):
    """Lines of the form `program: error: ...`."""
    return [line for line in output.splitlines() if line.startswith(f"{program}: error:")]


def small_tables() -> config_lib.RunConfig:
    """Returns the flags of a server with small tables of short names, on any free port."""
    return config_lib.RunConfig(
        min_replay_size=5, replay_table_max_replay_size=300, replay_table_max_times_sampled=7,
        replay_table_name="r", broadcaster_table_name="b", model_table_name="m",
        shutdown_table_name="s", port=0, connect_timeout=1.0,
    )


def small_layout():
    """Returns the layout of transitions for `small_tables`: 3 observations, 2 actions."""
    from actorQ.wire import replay  # Late: most tests of processes need no Reverb in their own.

    return replay.Layout((3,), pixels=False, action_size=2, discrete=False)
