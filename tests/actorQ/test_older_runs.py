"""Runs that commit 2e87143 made, before the modules moved: they resume and play."""

import pathlib
import shutil
import sys

import pytest

from actorQ.core import telemetry

RUNS = pathlib.Path(__file__).resolve().parents[1] / "data" / "runs_2e87143"


@pytest.mark.parametrize("algorithm", ["d4pg", "dqn"])
def test_run_of_an_older_version_resumes_and_plays(crew, tmp_path, algorithm):
    run = tmp_path / "run"
    shutil.copytree(RUNS / algorithm, run)
    train = str(run / "learner" / telemetry.TRAIN_CSV)
    before = telemetry.last_row(train)["learner_steps"]
    resumed = crew.launch("--resume", f"--logpath={run}", "--num_episodes=260")
    # The policies that it wrote play meanwhile.
    played = [
        crew.start(
            sys.executable, "-m", "actorQ.evaluate", str(RUNS / algorithm), "--episodes", "1",
            "--quantize", str(bits),
        )
        for bits in (32, 8)
    ]
    for evaluated in played:
        assert evaluated.wait(120) == 0, evaluated.output()
        assert "eturn" in evaluated.output()
    assert resumed.wait(180) == 0, resumed.output()
    assert before < telemetry.last_row(train)["learner_steps"] == 260
