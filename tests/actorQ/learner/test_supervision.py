"""The learner's main thread by itself, with a stand-in for the learning thread."""

import threading
import time
from unittest import mock

import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import health
from actorQ.core import run_logger
from actorQ.core import telemetry
from actorQ.learner import progress as progress_lib
from actorQ.learner import supervision
from tests.actorQ.learner import fakes


class Learner:
    """A supervisor with stand-ins around it."""

    def __init__(self, **settings):
        self.config = config_lib.RunConfig(**settings)
        self.parts = fakes.make_parts()
        self.training = mock.Mock(spec_set=["check_losses", "save", "wind_up"])
        self.training.check_losses.return_value = {}
        self.progress = progress_lib.Progress()
        self.supervisor = supervision.Supervisor(
            self.config, self.parts, self.training, self.progress
        )

    def rows(self):
        return [call.kwargs for call in self.parts.logger.write.call_args_list]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(supervision, "_LOOK_S", 0.01)
    monkeypatch.setattr(supervision, "_LAST_STEP_S", 0.05)


def test_the_last_row_is_written_when_training_has_finished():
    learner = Learner(log_period_s=600.0)
    learner.progress.steps = 40
    learner.progress.finished.set()
    learner.supervisor.run()
    (row,) = learner.rows()
    assert (row["learner_steps"], row["actor_steps"], row["model_version"]) == (40, 100, 7)
    assert learner.parts.logger.write.call_args.args[0] == telemetry.TRAIN_CSV


def test_rates_are_those_since_the_row_before(monkeypatch):
    learner = Learner()
    clock = mock.Mock(monotonic=mock.Mock(side_effect=[100.0, 102.0]))
    monkeypatch.setattr(run_logger, "time", clock)
    learner.supervisor.log(fakes.status(transitions_inserted=100))
    learner.progress.steps = 30
    learner.supervisor.log(fakes.status(transitions_inserted=500))
    assert learner.rows()[1]["learner_steps_per_s"] == 15.0
    assert learner.rows()[1]["actor_steps_per_s"] == 200.0


def test_losses_that_are_no_numbers_end_training():
    learner = Learner(log_period_s=0.1)
    diverged = errors.UserError("loss is nan.")
    learner.training.check_losses.side_effect = diverged
    learner.supervisor.run()
    assert learner.progress.failure is diverged and learner.progress.stop.is_set()
    assert not learner.rows() and not learner.training.save.called  # The weights are not sound.


def test_a_step_that_does_not_end_after_a_stop_does_not_cost_the_weights():
    learner = Learner()
    learner.progress.begin_step()
    learner.progress.stop.set()
    learner.supervisor.run()
    learner.training.save.assert_called_once_with(last=True)


def test_a_step_that_ends_after_a_stop_leaves_the_last_save_to_its_thread(monkeypatch):
    monkeypatch.setattr(supervision, "_LAST_STEP_S", 60.0)
    learner = Learner()
    learner.progress.stop.set()
    threading.Timer(0.1, learner.progress.finished.set).start()
    learner.supervisor.run()
    assert not learner.training.save.called


def test_a_learner_that_gets_no_data_ends_and_keeps_its_weights():
    learner = Learner(data_timeout=1.0, log_period_s=600.0)
    learner.progress.begin_step()
    learner.supervisor.run()
    assert learner.progress.starved
    assert "No transition came for 1 s" in str(learner.progress.failure)
    learner.training.save.assert_called_once_with(last=True)


def test_only_a_step_that_waits_for_data_runs_into_the_data_timeout():
    learner = Learner()
    status, timeout_s = fakes.status(transitions_inserted=100), learner.config.data_timeout
    late = time.monotonic() + 2 * timeout_s
    learner.supervisor.watch_data(late, status)  # An evaluation may take this long.
    assert learner.progress.failure is None
    learner.progress.step_started = late - 1.0  # A step that began after it has all of its time.
    learner.supervisor.watch_data(late, status)
    assert learner.progress.failure is None
    learner.supervisor.watch_data(late + timeout_s, status)
    assert "No transition came" in str(learner.progress.failure)


def test_transitions_and_steps_are_signs_of_life():
    learner = Learner(data_timeout=10.0)
    start = time.monotonic()
    learner.progress.step_started = start
    learner.supervisor.watch_data(start + 9.0, fakes.status(transitions_inserted=101))
    learner.supervisor.watch_data(start + 18.0, fakes.status(transitions_inserted=101))
    learner.progress.steps += 1
    learner.supervisor.watch_data(start + 27.0, fakes.status(transitions_inserted=101))
    assert learner.progress.failure is None
    learner.supervisor.watch_data(start + 38.0, fakes.status(transitions_inserted=101))
    assert learner.progress.starved


def test_weights_that_nobody_acts_on_are_pushed_again_while_it_does_not_learn():
    learner = Learner()
    now, status = time.monotonic() + 60.0, fakes.status(transitions_inserted=100)
    publish = learner.parts.publisher.publish
    learner.supervisor.watch_data(now, status._replace(pushes_waiting=1))
    assert publish.call_count == 0  # The broadcaster has not taken them yet.
    learner.supervisor.watch_data(now, status)
    assert publish.call_count == 1
    # A learner that goes on from a checkpoint has data for some steps, which push theirs.
    learner.progress.steps += 1
    learner.supervisor.watch_data(now + 6.0, status)
    assert publish.call_count == 1
    learner.supervisor.watch_data(now + 12.0, status)
    assert publish.call_count == 2
    learner.supervisor.watch_data(now + 30.0, fakes.status(transitions_inserted=101))
    assert publish.call_count == 2  # Somebody acts.


@pytest.mark.parametrize(
    ("seconds", "step_s", "overtaken"),
    [(45.0, 31.0, True), (45.0, 29.0, False), (39.0, 31.0, False)],
)
def test_a_step_is_overtaken_when_it_and_the_run_take_too_long(seconds, step_s, overtaken):
    learner = Learner(max_seconds=10.0, log_period_s=600.0)
    learner.parts.logger.seconds.return_value = seconds
    learner.progress.step_started = time.monotonic() - step_s
    if not overtaken:
        threading.Timer(0.1, learner.progress.finished.set).start()
    learner.supervisor.run()
    assert learner.training.wind_up.called == learner.progress.overtaken == overtaken
    assert learner.progress.end_step() != overtaken


def test_a_server_that_is_gone_is_the_process_s_to_handle():
    learner = Learner()
    learner.parts.connection.status.side_effect = errors.LearnerGoneError("gone.")
    with pytest.raises(errors.LearnerGoneError):
        learner.supervisor.run()


def test_a_stuck_policy_is_told_once_and_at_the_end(caplog):
    learner = Learner(log_period_s=600.0)
    remark = health.Remark("vmin", "targets below --vmin", "The targets lie below --vmin.")

    def look(final=False):
        return health.Findings("Not learned: return 1.0." if final else "", [remark])

    learner.supervisor._health = mock.Mock(look=look)
    for _ in range(3):
        learner.supervisor.log(fakes.status())
    assert [record.message for record in caplog.records] == [remark.sentence]
    learner.progress.finished.set()
    learner.supervisor.run()
    assert [record.message for record in caplog.records] == [
        remark.sentence, "Not learned: return 1.0."
    ]


def test_a_run_that_is_ended_early_is_not_judged(caplog):
    learner = Learner(log_period_s=600.0)
    learner.supervisor._health = mock.Mock(look=lambda final=False: health.Findings("x" * final))
    learner.progress.fail(errors.UserError("loss is nan."))
    learner.progress.finished.set()
    learner.supervisor.run()
    assert not caplog.records
