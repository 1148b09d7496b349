"""Tests `benchmarks.learner_parity`: its replay, its learners, its command."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest

from actorQ.benchmarks import learner_parity

SMALL = learner_parity.Settings(steps=12, transitions=300, width=16, batch=8)


@pytest.mark.parametrize("algorithm", ["d4pg", "dqn"])
def test_recorded_replay_is_random_play_of_the_task(algorithm):
    config = SMALL.config(algorithm, "float32")
    rows = learner_parity.record_replay(config, 300)
    np.testing.assert_array_equal(rows, learner_parity.record_replay(config, 300))
    assert rows.dtype == np.float32 and len(rows) == 300
    size = (rows.shape[1] - 3) // 2
    actions = rows[:, size]
    if algorithm == "dqn":
        assert set(actions) == {0.0, 1.0}
        # Windows that end with the pole's fall have discount 0.
        assert {0.0} < set(rows[:, size + 2])
    else:
        assert -1 <= actions.min() < -0.9 and 0.9 < actions.max() <= 1


@pytest.mark.parametrize("algorithm", ["d4pg", "dqn"])
def test_learners_learn_alike_from_the_same_weights_and_batches(algorithm):
    batches = learner_parity.record_replay(SMALL.config(algorithm, "float32"), 96).reshape(
        12, 8, -1
    )
    learned, weights = {}, None
    for precision in ("float32", "bfloat16", "float32 again"):
        config = SMALL.config(algorithm, precision.split()[0])
        learned[precision] = learner_parity.learn(config, weights, batches)
        weights = learned[precision].weights
    names = {name for which, name in learner_parity._TITLES if which == algorithm}
    assert set(learned["float32"].losses) == names
    for name in names:
        full, half, again = (found.losses[name] for found in learned.values())
        assert full.shape == (12,) and np.all(np.isfinite(full))
        np.testing.assert_array_equal(full, again)
        assert not np.array_equal(full, half)
        np.testing.assert_allclose(half, full, rtol=0.1, atol=1e-3)
    assert learned["float32"].peak_bytes > 10**8


@pytest.mark.slow
def test_command_writes_its_files(tmp_path):
    subprocess.run(
        [
            sys.executable, "-m", "actorQ.benchmarks.learner_parity", "--steps=5", "--width=16",
            "--transitions=200", "--batch=8", f"--out={tmp_path}",
        ],
        check=True, timeout=300,
    )
    record = json.loads((tmp_path / "learner_parity.json").read_text())
    assert set(record["losses"]) == set(learner_parity._TITLES.values())
    assert set(record["peak_bytes"]["dqn"]) == {"float32", "bfloat16"}
    assert "| DQN " in (tmp_path / "learner_parity.md").read_text()
    assert (tmp_path / "learner_parity.png").stat().st_size > 5000
    with open(tmp_path / "learner_parity.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 5
