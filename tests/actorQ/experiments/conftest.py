"""A small experiment, and the runner with a launcher that only writes logs."""

import json
import sys

import pytest

from actorQ.experiments import loading
from actorQ.experiments import results
from tests import commands
from tests.actorQ.experiments import driver

SMALL = """
title: Small
report: time_to_reward
precisions: [32, 8]
seeds: [0, 1]
settings: {inference_mode: pytorch, stop_smoothing: 1, stop_window: 2, eval_period_steps: 50,
           final_eval_episodes: 2, max_seconds: 120, batch_size: 128, samples_per_insert: 8,
           track_energy: 1}
tasks:
  dm_control,cartpole_balance: {stop_return: 100}
"""


def changed(old, new):
    """Returns the small experiment's text with one of its parts replaced."""
    assert old in SMALL
    return SMALL.replace(old, new)


def load(tmp_path, text):
    """Reads an experiment, mine.yaml, that says this."""
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return loading.load(str(path), loading.load_common())


class Small:
    """The experiment, its folder, and the command line with the fake launcher."""

    def __init__(self, crew, run_experiments, folder):
        self.crew, self.folder, self._run_experiments = crew, folder, run_experiments
        self.file = folder / "small.yaml"
        self.out = folder / "out"
        self._orders = "{}"
        self.write(SMALL)

    def write(self, text):
        self.file.write_text(text)

    def orders(self, **orders):
        self._orders = json.dumps(orders)

    def start(self, *flags):
        """Starts a process with nothing before it, to which anything may be done."""
        return self.crew.start(
            "env", f"FAKE={self._orders}", sys.executable, "-m", driver.__name__, str(self.file),
            f"--out={self.out}", *flags,
        )

    def run(self, *flags, code=0):
        """Runs to the end and returns the output."""
        command = [self.file, f"--out={self.out}", *flags]
        (done,) = self._run_experiments("driver", [command], FAKE=self._orders)
        assert done.code == code, done
        return done.out + done.err

    def made(self):
        """The runs that were started, in order, since the last call."""
        path = self.out / "made"
        names = path.read_text().split() if path.exists() else []
        path.unlink(missing_ok=True)
        return names

    def result(self, name):
        return results.read(str(self.out / "runs" / name))

    def report(self, name):
        return (self.out / "report" / name).read_text()


@pytest.fixture(scope="session")
def run_experiments():
    """Runs real command lines, as `tests.commands` does: takes a module and lists of arguments."""
    server = commands.Server(
        "tests.actorQ.experiments", "matplotlib.backends.backend_agg", "actorQ.experiments.run"
    )
    yield server
    server.end()


@pytest.fixture
def small(crew, run_experiments, tmp_path):
    return Small(crew, run_experiments, tmp_path)
