"""Runs and their curves against time."""

import dataclasses

import numpy as np
import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import run_logger
from actorQ.core import settings
from actorQ.core import telemetry
from actorQ.experiments.run_logs import curves
from tests.actorQ.experiments import log_files


def test_running_mean_starts_short():
    np.testing.assert_allclose(curves.running_mean(np.array([2.0, 4, 9, 5]), 2), [2, 3, 6.5, 7])


def test_mean_curve_holds_last_values():
    def curve(seconds, values):
        values = np.array(values, float)
        return curves.Curve(np.array(seconds, float), values, values, np.zeros(len(values)))

    mean = curves.mean_curve([curve([1, 3], [0, 10]), curve([2, 5], [4, 8])])
    # From 2 s, when both have a value; the first run ends at 3 s and counts with 10 from then on.
    np.testing.assert_allclose(mean.seconds, [2, 3, 5])
    np.testing.assert_allclose(mean.mean, [2, 7, 9])
    np.testing.assert_allclose(mean.low, [0, 4, 8])
    np.testing.assert_allclose(mean.high, [4, 10, 10])


def test_load_curve_reads_what_run_logger_writes(tmp_path):
    logger = run_logger.RunLogger(str(tmp_path), telemetry.LEARNER)
    for i, value in enumerate((1.0, 3.0)):
        logger.write(telemetry.EVALUATION_CSV, i, episode_return=value, evaluation_s=0.5 * i)
    logger.close()
    curve = curves.load_curve(str(tmp_path))
    np.testing.assert_allclose(curve.returns, [1, 3])
    np.testing.assert_allclose(curve.smoothed, [1, 2])
    np.testing.assert_allclose(curve.evaluation_s, [0, 0.5])


def test_read_log_says_which_column_a_log_lacks(tmp_path):
    (tmp_path / "phases.csv").write_text("seconds,unix_time,pull_s\n1,1,0.5\n2,2,0.75\n")
    columns = curves.read_log(str(tmp_path), "phases.csv")
    assert columns["pull_s"].tolist() == [0.5, 0.75]
    with pytest.raises(errors.UserError, match="phases.csv lacks the column pulls"):
        columns["pulls"]


@pytest.mark.parametrize(
    ("processors", "expected"),
    [(("a", "b"), ["processor (a, b)"]), (("a", None), []), (("a", "a"), [])],
)
def test_surroundings_that_were_not_noted_are_not_known_to_differ(tmp_path, processors, expected):
    run = curves.load_run(log_files.make_run(tmp_path, "run"))
    runs = [
        dataclasses.replace(run, surroundings={"processor": processor}) for processor in processors
    ]
    assert curves.differing_settings(runs) == expected


def test_breakdown_labels_tell_runs_apart(tmp_path):
    runs = [
        log_files.breakdown_run(tmp_path, "a", 32),
        log_files.breakdown_run(tmp_path, "b", 8),
        log_files.breakdown_run(tmp_path, "c", 8, actor_update_period=300),
        log_files.breakdown_run(tmp_path, "d", 8, seed=3),
    ]

    def labels(*indices):
        return curves.run_labels(curves.load_runs([runs[i] for i in indices]))

    assert labels(0, 1) == ["fp32", "int8"]
    assert labels(1, 2) == ["int8, period 30", "int8, period 300"]
    assert labels(1, 3) == ["int8 (b)", "int8 (d)"]


def run(**given):
    return curves.Run("run", config_lib.RunConfig(**given), "dqn", {})


def test_run_that_was_restarted_and_resumed_does_not_differ_from_one_that_was_not():
    runs = [run(seed=1), run(seed=2, quantize=32, restarts=1, resume=True)]
    assert curves.differing_settings(runs) == []


def test_settings_that_decide_what_is_learned_differ():
    assert curves.differing_settings([run(), run(n_step=1)]) == ["n_step (5, 1)"]


def test_whatever_the_launcher_sets_may_change_when_a_run_is_resumed():
    launched = config_lib.names_of(settings.Kind.LAUNCHED)
    assert {"restarts", "resume", "logpath", "port"} < launched
    assert launched < config_lib.names_of(settings.Kind.CHANGEABLE)
    assert config_lib.names_of(settings.Kind.NOT_KEPT) < launched
