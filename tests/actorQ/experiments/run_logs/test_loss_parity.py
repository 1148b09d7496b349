"""Tests `scripts.loss_parity`: how far two curves of losses are apart, and their files."""

import csv

import numpy as np
import pytest

from actorQ.experiments.run_logs import loss_parity


def test_deviations_are_relative_to_fp32():
    full, half = np.array([1.0, 1.0, 2.0, 2.0]), np.array([1.5, 0.5, 2.0, 2.5])
    # Means of two: 1, 1.5, 2 and 1, 1.25, 2.25.
    assert loss_parity.deviations(full, half, 2) == (0.5, pytest.approx(0.25 / 1.5))
    assert loss_parity.deviations(full[:1], half[:1], 20) == (0.5, 0.5)


def test_write_draws_losses_below_zero_too(tmp_path):
    losses = {"policy": {"float32": -np.arange(3.0), "bfloat16": np.arange(3.0)}}
    loss_parity.write(losses, {"policy": "Policy"}, str(tmp_path), "parity")
    with open(tmp_path / "parity.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[1] == {"gradient_step": "2", "policy_float32": "-1", "policy_bfloat16": "1"}
    assert (tmp_path / "parity.png").stat().st_size > 5000
