"""Staleness as the two logs have it, between looks and during transfers too."""

import numpy as np
import pytest

from actorQ.core import telemetry
from actorQ.experiments.run_logs import staleness
from tests.faults.test_campaign import write_log

TRAIN = {"unix_time": [0, 1, 2, 3, 4, 5], "learner_steps": [0, 10, 20, 30, 40, 40]}


def test_lag_is_known_between_looks_while_the_learner_learns():
    phases = {"unix_time": [0.5, 1, 1.5, 2, 3, 4.5], "model_version": [0, 0, 0, 18, 18, 18]}
    np.testing.assert_allclose(
        staleness.lag(TRAIN, phases), [np.nan, 10, 15, 2, 12, np.nan], equal_nan=True
    )
    phases["model_version"] = [-1] * 6  # No weights yet.
    assert np.isnan(staleness.lag(TRAIN, phases)).all()
    assert np.isnan(staleness.lag({name: [] for name in TRAIN}, phases)).all()


def test_mean_is_over_time_and_actors(tmp_path):
    write_log(tmp_path, "learner", telemetry.TRAIN_CSV, learner_steps=TRAIN["learner_steps"])
    write_log(tmp_path, "actor_1", telemetry.PHASES_CSV, model_version=[0, 5, 10, 20])
    write_log(tmp_path, "actor_2", telemetry.PHASES_CSV, model_version=[0, 10, 20, 30])
    assert staleness.mean_lag(str(tmp_path)) == pytest.approx((5 + 10 + 10) / 6)
    late = tmp_path / "actor_3"
    late.mkdir()
    header = (tmp_path / "actor_2" / telemetry.PHASES_CSV).read_text().splitlines()[0]
    (late / telemetry.PHASES_CSV).write_text(header + "\n")
    assert staleness.mean_lag(str(tmp_path)) == pytest.approx((5 + 10 + 10) / 6)
    write_log(tmp_path, "learner", telemetry.TRAIN_CSV, learner_steps=[0, 0, 1])
    assert np.isnan(staleness.mean_lag(str(tmp_path)))
