"""What is measured of a training's logs, beside what the runner's tests see of it."""

import dataclasses
import time

import pytest

from actorQ.core import config as config_lib
from actorQ.core import telemetry
from actorQ.experiments import kinds
from tests.actorQ.experiments import fake_launcher


@pytest.fixture
def measure(tmp_path):
    """Measures a training with some returns; without any it was ended before the first."""

    def call(returns, **settings):
        config = config_lib.RunConfig(
            run_start_time=time.time(), eval_period_steps=50, stop_return=100.0, **settings
        )
        run = tmp_path / "run"
        run.mkdir()
        fake_launcher.write_logs(run, config, returns or [0])
        if not returns:
            (run / "learner" / telemetry.EVALUATION_CSV).unlink()
            fake_launcher.write_log(
                run / "learner" / telemetry.TRAIN_CSV, seconds=[1, 90], unix_time=[1, 90],
                learner_steps=[0, 40], actor_steps=[100, 900],
            )
        values = {
            name: value
            for name, value in dataclasses.asdict(config).items()
            if name not in ("logpath", "run_start_time")
        }
        kind = kinds.get("training")
        return kind.measure(values, str(tmp_path), config.run_start_time, "")

    return call


def test_small_returns_hold_the_reward_that_the_learner_saw_them_hold(measure):
    measured = measure([0.0, 100.0004, 100.0004], stop_window=2, final_eval_episodes=1)
    assert measured.rewards.returns == [0.0, 100.0004, 100.0004]
    assert measured.outcome == "reached"
    assert measured.final_returns == [100.0004]


def test_returns_just_below_the_reward_do_not_hold_it(measure):
    measured = measure([0.0, 99.9996, 99.9996], stop_window=2, final_eval_episodes=1)
    assert measured.outcome == "missed"


def test_run_that_its_time_ended_before_the_first_evaluation_is_censored(measure):
    measured = measure([], final_eval_episodes=0)
    assert measured.outcome == "missed"
    assert measured.censored_at_s == pytest.approx(90, abs=0.1)
    assert measured.final_returns == [] and measured.final_reward is None


@pytest.mark.parametrize(
    ("samples", "times", "most"), [(0.5, 16, 0.5), (32.0, 16, 16.0), (0.0, 8, 8.0), (3.0, 0, 3.0)]
)
def test_data_used_is_of_the_stricter_limit(measure, samples, times, most):
    measured = measure(
        [0, 0, 0], samples_per_insert=samples, replay_table_max_times_sampled=times, batch_size=10
    )
    # The learner of the fake makes 50 steps while actors make 1,000.
    assert measured.data_used == pytest.approx(50 * 10 / (most * 1000), rel=0.01)


def test_no_limit_is_no_share_of_the_data():
    config = config_lib.RunConfig(samples_per_insert=0, replay_table_max_times_sampled=0)
    assert config.most_samples_per_insert == 0
