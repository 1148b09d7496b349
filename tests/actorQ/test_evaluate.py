"""Tests the program `actorQ.evaluate` and the name that it offers to Python."""

import os
import subprocess
import sys

import imageio.v3
import pytest

from actorQ import evaluate
from actorQ.policy import loaded
from actorQ.policy import saved
from tests.actorQ import harness
from tests.actorQ.policy import test_loaded

PENDULUM, PENDULUM_FACTS = test_loaded.PENDULUM, test_loaded.PENDULUM_FACTS


@pytest.fixture
def run(tmp_path):
    """Returns the folder of a run on Pendulum."""
    checkpoint = harness.random_checkpoint(PENDULUM, PENDULUM_FACTS)
    saved.save_policy(str(tmp_path / "checkpoint"), checkpoint)
    return str(tmp_path)


def test_load_policy_is_public():
    assert evaluate.load_policy is loaded.load_policy


def test_evaluate_command_plays_and_films(run, tmp_path):
    film = tmp_path / "film.mp4"
    command = [
        sys.executable, "-m", "actorQ.evaluate", run, "--episodes=2", "--quantize=8",
        f"--video={film}",
    ]
    environment = {k: v for k, v in os.environ.items() if k != "DISPLAY"}  # Headless.
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("episode ") >= 2
    assert "gym,Pendulum-v1 at 8 bits: return -" in done.stdout
    assert film.stat().st_size > 1000
    frames = sum(1 for _ in imageio.v3.imiter(film))
    # Two episodes of 40 steps and their first frames.
    assert 82 <= frames <= 84


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "No policy at nowhere"),
        ([], "takes one argument"),
        (["RUN", "--quantize=4"], "--quantize=4"),
        (["RUN", "--quantize=3"], "--quantize=3 needs --inference_mode=native"),
        (["RUN", "--video=film.avi"], ".mp4"),
    ],
)
def test_evaluate_command_bad_input_one_clear_line(run, arguments, message):
    arguments = [run if argument == "RUN" else argument for argument in arguments]
    command = [sys.executable, "-m", "actorQ.evaluate", *arguments, "--episodes=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "error:" in line]
    assert line.startswith("evaluate: error: ") and message in line
    assert "Traceback" not in done.stderr
