"""The learning thread by itself, with stand-ins for everything around it."""

import dataclasses
import itertools
import time
from unittest import mock

import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.learner import progress as progress_lib
from actorQ.learner import training as training_lib
from tests.actorQ.learner import fakes


def make(parts, progress=None, publish_card=None, **settings):
    """Returns a training of few steps, and its shared state."""
    settings = {"num_episodes": 5, "eval_period_s": 0.0, "final_eval_episodes": 0, **settings}
    progress = progress or progress_lib.Progress()
    config = config_lib.RunConfig(**settings)
    return training_lib.Training(config, 77, parts, progress, publish_card), progress


def versions(parts):
    return [call.args[0] for call in parts.publisher.publish.call_args_list]


def test_a_new_run_is_saved_shown_and_pushed_in_this_order_before_it_learns():
    calls = mock.Mock()
    parts = fakes.make_parts(step=calls.step)
    parts.checkpoints.save = calls.save
    parts.publisher.publish = calls.publish
    training, progress = make(parts, publish_card=calls.publish_card, num_episodes=2)
    training.run()
    names = [call[0] for call in calls.method_calls]
    assert names == [
        "save", "publish_card", "publish", "step", "publish", "step", "publish", "save"
    ]
    assert calls.publish.call_args_list[0] == mock.call(0, wait=True)
    assert progress.failure is None and progress.steps == 2
    assert progress.ready.is_set() and progress.finished.is_set()


def test_a_resumed_run_goes_on_with_its_steps_and_versions():
    parts = fakes.make_parts()
    training, progress = make(parts, progress_lib.Progress(steps=3, versions_skipped=10))
    training.run()
    assert versions(parts) == [13, 14, 15]
    assert progress.steps == 5
    parts.checkpoints.save.assert_called_once_with(training.state, wait=True)  # The last one.


def test_the_end_is_asked_for_during_a_step():
    parts = fakes.make_parts(returns=[1.0] * 9)
    training, progress = make(parts, final_eval_episodes=3)
    parts.learner.step = progress.stop.set
    training.run()
    assert progress.steps == 1 and progress.failure is None
    assert not parts.evaluator.returns  # Whoever stops a run does not wait for evaluations.
    assert parts.evaluator.saved == [1]


def test_a_step_that_was_overtaken_changes_nothing():
    parts = fakes.make_parts()
    training, progress = make(parts)
    parts.learner.step = lambda: setattr(progress, "overtaken", True)
    training.run()
    assert progress.steps == 0 and progress.finished.is_set()
    assert versions(parts) == [0]
    assert not parts.checkpoints.save.called and not parts.evaluator.saved


def test_training_ends_when_its_time_is_over():
    parts = fakes.make_parts()
    parts.logger.seconds.side_effect = [1.0, 2.0, 3.5]
    training, progress = make(parts, max_seconds=3.0)
    training.run()
    assert progress.steps == 3


def test_training_ends_when_the_return_is_held():
    parts = fakes.make_parts(returns=[1.0, 5.0, 9.0, 9.0])
    parts.evaluator.stop_return = 5.0
    training, progress = make(parts, eval_period_s=1e-9, num_episodes=50, final_eval_episodes=2)
    training.run()
    assert progress.steps == 2
    rows = [call.kwargs for call in parts.logger.write.call_args_list]
    assert [call.args[0] for call in parts.logger.write.call_args_list] == [
        telemetry.EVALUATION_CSV
    ] * 4
    assert [row["episode_return"] for row in rows] == [1.0, 5.0, 9.0, 9.0]
    assert [row["learner_steps"] for row in rows] == [1, 2, 2, 2]
    # If the run goes on, its stop rule looks at later evaluations only.
    assert parts.evaluator.stop_rule_from == 4


class Slow(fakes.Evaluator):
    """Plays beside learning: an episode is over when it is waited for, or after three looks."""

    def begin(self, steps, actor_steps, stop):
        super().begin(steps, actor_steps, stop)
        self.looks = 0

    def take(self, stop, wait):
        self.looks = 3 if wait else getattr(self, "looks", 0) + 1
        return super().take(stop, wait) if self.looks >= 3 else None


def rows(parts):
    return [
        (call.kwargs["learner_steps"], call.kwargs["episode_return"])
        for call in parts.logger.write.call_args_list
    ]


def test_an_episode_beside_learning_counts_for_the_steps_at_which_it_began():
    parts = dataclasses.replace(fakes.make_parts(), evaluator=Slow([1.0, 2.0, 3.0]))
    training, progress = make(parts, eval_period_steps=4, num_episodes=10, final_eval_episodes=1)
    training.run()
    assert progress.failure is None and progress.steps == 10
    assert rows(parts) == [(4, 1.0), (8, 2.0), (10, 3.0)]


def test_the_learner_waits_for_an_episode_only_where_steps_say_when_the_next_is_due():
    by_steps = dataclasses.replace(fakes.make_parts(), evaluator=Slow([1.0] * 4))
    training, _ = make(by_steps, eval_period_steps=1, num_episodes=4)
    training.run()
    assert [step for step, _ in rows(by_steps)] == [1, 2, 3, 4]
    by_time = dataclasses.replace(fakes.make_parts(), evaluator=Slow([1.0] * 4))
    training, _ = make(by_time, eval_period_s=1e-9, num_episodes=8)
    training.run()
    assert [step for step, _ in rows(by_time)] == [1, 3, 5, 7]


def test_no_episode_begins_once_the_return_is_held():
    parts = dataclasses.replace(fakes.make_parts(), evaluator=Slow([1.0, 9.0]))
    parts.evaluator.stop_return = 5.0
    training, progress = make(parts, eval_period_steps=1, num_episodes=50)
    training.run()
    assert progress.steps == 3 and rows(parts) == [(1, 1.0), (2, 9.0)]


def test_a_snapshot_waits_for_the_episode_under_way(monkeypatch):
    seconds = itertools.count()
    clock = mock.Mock(monotonic=lambda: float(next(seconds)), perf_counter=time.perf_counter)
    monkeypatch.setattr(training_lib, "time", clock)
    parts = dataclasses.replace(fakes.make_parts(), evaluator=Slow([1.0] * 9))
    saved = []
    parts.checkpoints.save = lambda state, wait: saved.append((state().learner_steps, rows(parts)))
    training, _ = make(parts, eval_period_steps=2, num_episodes=5, checkpoint_period_s=1.0)
    training.run()
    assert saved[1] == (2, [(2, 1.0)])


def test_checkpoints_are_made_in_time_but_never_two_at_once(monkeypatch):
    seconds = itertools.count()
    clock = mock.Mock(monotonic=lambda: float(next(seconds)), perf_counter=time.perf_counter)
    monkeypatch.setattr(training_lib, "time", clock)
    parts = fakes.make_parts()
    parts.checkpoints.writing = True
    training, _ = make(parts, num_episodes=3, checkpoint_period_s=1.0)
    training.run()
    assert parts.evaluator.saved == [3]
    parts.checkpoints.writing = False
    training, _ = make(parts, num_episodes=2, checkpoint_period_s=1.0)
    training.run()
    assert parts.evaluator.saved == [3, 1, 2, 2]


def test_losses_that_are_no_numbers_are_neither_learned_on_nor_saved():
    parts = fakes.make_parts(losses=lambda: {"loss": 0.5, "policy_loss": float("nan")})
    training, progress = make(parts)
    training.run()
    assert isinstance(progress.failure, errors.UserError)
    assert "policy_loss is nan after 5 learner steps" in str(progress.failure)
    assert progress.finished.is_set() and not parts.evaluator.saved


def test_a_failure_of_a_step_is_left_for_the_main_thread():
    failure = RuntimeError("out of memory")
    parts = fakes.make_parts(step=mock.Mock(side_effect=failure))
    training, progress = make(parts)
    training.run()
    assert progress.failure is failure
    assert progress.ready.is_set() and progress.finished.is_set()


def test_a_failing_evaluation_at_the_end_does_not_cost_the_weights():
    parts = fakes.make_parts()
    parts.evaluator.begin = mock.Mock(side_effect=RuntimeError("the simulation failed"))
    training, progress = make(parts, final_eval_episodes=1)
    training.run()
    assert "simulation failed" in str(progress.failure)
    assert parts.evaluator.saved == [5]


def test_a_full_disk_is_survived_until_the_last_policy(caplog):
    parts = fakes.make_parts()
    full = errors.WriteError("Cannot write policy: No space left on device.")
    parts.evaluator.save_policy = mock.Mock(side_effect=full)
    training, _ = make(parts)
    training.save()
    assert "No space left on device. Training goes on." in caplog.text
    with pytest.raises(errors.WriteError, match="No space left"):
        training.save(last=True)


def test_last_checkpoint_is_written_once():
    parts = fakes.make_parts()
    training, _ = make(parts)
    training.save()
    training.save(last=True)
    training.save(last=True)  # The main thread does this if the last step took long.
    assert [call.kwargs["wait"] for call in parts.checkpoints.save.call_args_list] == [False, True]


def test_nothing_is_saved_after_the_end_was_announced():
    parts = fakes.make_parts()
    training, _ = make(parts)
    training.save_no_more()
    training.save(last=True)
    assert not parts.evaluator.saved and not parts.checkpoints.save.called


def test_the_state_holds_the_counters_of_all_parts():
    parts = fakes.make_parts(returns=[4.0])
    training, progress = make(parts, progress_lib.Progress(steps=6, versions_skipped=2))
    assert training.state().best_return is None
    training.evaluate()
    state = training.state()
    assert (state.run_id, state.learner_steps, state.versions_skipped) == (77, 6, 2)
    assert (state.returns, state.best_return) == ([4.0], 4.0)
    assert (state.pushes, state.push_snapshot_s, state.push_insert_s) == (3, 0.25, 0.75)
    assert state.log_bytes == {"train.csv": 5}
    assert state.settings["num_episodes"] == 5
