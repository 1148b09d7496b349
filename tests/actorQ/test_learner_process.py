"""What the learner's process does by itself; whole runs: test_launcher, test_training."""

import dataclasses
import threading
import time
from unittest import mock

import numpy as np
import pytest

from actorQ import config as config_lib
from actorQ import errors
from actorQ import learner_process
from actorQ import snapshots
from actorQ import telemetry


@pytest.fixture(name="process")
def _process(tmp_path, monkeypatch):
    # Threads can be set before TensorFlow is in use only; here other tests may have used it.
    monkeypatch.setattr(learner_process.learner_device, "set_up_tensorflow", lambda config: None)
    config = config_lib.RunConfig(
        taskstr="dm_control,cartpole_balance", model_str="24,24", critic_str="16", port=0,
        inference_mode="native", max_episode_steps=20, logpath=str(tmp_path),
    )
    process = learner_process.LearnerProcess(config)
    yield process
    process._server.stop()


def test_evaluation_with_the_kernels_acts_as_tensorflows_policy(process, tmp_path):
    variables = process._evaluator._policy.named_variables()
    generator = np.random.default_rng(0)
    for variable in variables.values():  # The output layer starts near zero.
        variable.assign(generator.normal(size=variable.shape).astype(np.float32))
    assert process._evaluate() is not None
    observations = generator.normal(size=(20, 5)).astype(np.float32)
    with_kernels = [process._evaluator.act(observation) for observation in observations]
    # Weights of a later step are evaluated as they are then.
    for variable in variables.values():
        variable.assign(variable / 2)
    assert process._evaluate() is not None
    later = [process._evaluator.act(observation) for observation in observations]
    process._evaluator._kernels = None
    np.testing.assert_allclose(
        later, [process._evaluator.act(observation) for observation in observations], atol=1e-5
    )
    for variable in variables.values():
        variable.assign(2 * variable)
    np.testing.assert_allclose(
        with_kernels, [process._evaluator.act(observation) for observation in observations],
        atol=1e-5,
    )
    assert np.ptp(with_kernels) > 0.1
    rows = (tmp_path / telemetry.LEARNER / telemetry.EVALUATION_CSV).read_text().splitlines()
    assert len(rows) == 3


def test_checkpoint_after_the_end_was_announced_is_not_written(process, tmp_path):
    process._save(last=True)
    store = snapshots.Store(str(tmp_path))
    before = store.newest_name()
    process._config = dataclasses.replace(process._config, n_actors=1)
    process._announce(failed=False)
    process._save(last=True)
    assert store.newest_name() == before


def test_checkpoint_while_the_log_folder_is_away_keeps_the_lengths_of_logs(process, tmp_path):
    process._evaluate()
    lengths = process._state().log_bytes
    assert lengths[telemetry.EVALUATION_CSV] > 0
    folder = tmp_path / telemetry.LEARNER
    folder.rename(tmp_path / "away")
    assert process._state().log_bytes == lengths
    (tmp_path / "away").rename(folder)
    process._logger.close()
    snapshots.cut_logs(str(folder), process._state())
    assert (folder / telemetry.EVALUATION_CSV).stat().st_size == lengths[telemetry.EVALUATION_CSV]


def test_a_finished_run_that_goes_on_keeps_its_final_evaluation(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.learner_device, "set_up_tensorflow", lambda config: None)
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(tmp_path),
        max_episode_steps=20, final_eval_episodes=3, num_episodes=1, stop_return=1.0,
        stop_smoothing=1,
    )
    first = learner_process.LearnerProcess(config)
    first._steps = 1  # All are done.
    first._learn()
    first._logger.close()
    best = first._evaluator.best_return
    first._server.stop()
    path = tmp_path / telemetry.LEARNER / telemetry.EVALUATION_CSV
    rows = path.read_bytes()
    assert len(rows.splitlines()) == 4
    second = learner_process.LearnerProcess(
        dataclasses.replace(config, resume=True, num_episodes=2)
    )
    try:
        assert path.read_bytes() == rows
        assert len(second._evaluator.returns) == 3 and second._evaluator.best_return == best
        # It goes further: that the last policy holds the return is no reason to end at once.
        assert not second._evaluator.reached_stop_return()
        second._evaluator.returns += [1.0] * config.stop_window
        assert second._evaluator.reached_stop_return()
        del second._evaluator.returns[3:]
        # The logs' lengths are known, even if their folder goes away before anything is written.
        path.parent.rename(tmp_path / "away")
        assert second._state().log_bytes[telemetry.EVALUATION_CSV] == len(rows)
    finally:
        second._server.stop()


@pytest.mark.parametrize("trace", ["checkpoint", "log"])
def test_a_folder_with_a_run_is_not_begun_anew(tmp_path, monkeypatch, trace):
    monkeypatch.setattr(learner_process.learner_device, "set_up_tensorflow", lambda config: None)
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(tmp_path), launch_id=5,
    )
    if trace == "checkpoint":
        first = learner_process.LearnerProcess(config)
        first._save(last=True)
        first._server.stop()
    else:
        (tmp_path / telemetry.LEARNER).mkdir()
        (tmp_path / telemetry.LEARNER / telemetry.TRAIN_CSV).write_text("seconds\n")
    before = sorted(tmp_path.rglob("*"))
    for launch_id in (0, 6):  # By hand, or by another launcher.
        with pytest.raises(errors.UserError, match="There is a run in .*add --resume"):
            learner_process.LearnerProcess(dataclasses.replace(config, launch_id=launch_id))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_learner_that_gets_no_data_keeps_what_it_has_learned(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.learner_device, "set_up_tensorflow", lambda config: None)
    monkeypatch.setattr(learner_process, "_LAST_STEP_S", 0.1)
    monkeypatch.setattr(learner_process, "_LOOK_S", 0.05)
    monkeypatch.setattr(learner_process, "_SHUTDOWN_GRACE_S", 0.1)
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(tmp_path),
        log_period_s=600.0, data_timeout=1.0, final_eval_episodes=0,
    )
    process = learner_process.LearnerProcess(config)
    process._learner.step = threading.Event().wait  # No actor: replay never fills.
    with pytest.raises(errors.UserError, match="No transition came for 1 s"):
        process.run()
    assert snapshots.Store(str(tmp_path)).exists()


def test_time_limit_ends_a_step_that_waits_for_data(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.learner_device, "set_up_tensorflow", lambda config: None)
    monkeypatch.setattr(learner_process, "_LATE_STEP_S", 0.2)
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(tmp_path), max_seconds=0.5,
        max_episode_steps=20, final_eval_episodes=3, log_period_s=600.0, data_timeout=600.0,
    )
    process = learner_process.LearnerProcess(config)
    try:
        data = threading.Event()
        process._learner.step = data.wait  # No actor: replay never fills.
        learning = threading.Thread(target=process._learn_guarded, daemon=True)
        learning.start()
        process._pushed.wait()
        store = snapshots.Store(str(tmp_path))
        first = store.newest_name()
        supervising = threading.Thread(target=process._supervise, daemon=True)
        supervising.start()
        supervising.join(60)
        assert not supervising.is_alive() and process._failure is None
        newest = store.newest_name()
        assert newest != first
        data.set()  # What comes too late is no step any more.
        learning.join(60)
        assert process._steps == 0 and store.newest_name() == newest
        rows = (tmp_path / telemetry.LEARNER / telemetry.EVALUATION_CSV).read_text().splitlines()
        assert len(rows) == 1 + 3
        assert (tmp_path / telemetry.CHECKPOINT_FOLDER / "policy.safetensors").exists()
    finally:
        process._server.stop()


def test_last_checkpoint_is_written_once(process, monkeypatch):
    saved = []
    save = process._checkpoints.save
    monkeypatch.setattr(
        process._checkpoints, "save", lambda *a, **k: (saved.append(k), save(*a, **k))
    )
    process._save()
    process._save(last=True)
    process._save(last=True)  # What the main thread does if the last step took long.
    assert saved == [{"wait": False}, {"wait": True}]


def test_checkpoint_that_reverb_cannot_write_leaves_the_one_before(process, tmp_path, monkeypatch):
    process._save()
    process._checkpoints._writing.join()
    store = snapshots.Store(str(tmp_path))
    before = store.newest_name()

    def refuse():
        (tmp_path / "left").mkdir()
        raise IndexError("No space left on device")  # As Reverb has it.

    monkeypatch.setattr(process._checkpoints, "_client", mock.Mock(checkpoint=refuse))
    process._save(last=True)
    assert (tmp_path / "left").exists()
    assert store.newest_name() == before and not store.being_written()


def test_weights_that_nobody_acts_on_are_pushed_again_while_it_does_not_learn(
    process, monkeypatch
):
    publish = mock.Mock()
    monkeypatch.setattr(process._publisher, "publish", publish)
    now, status = time.monotonic() + 60.0, process._connection.status()
    process._watch_data(now, status)
    assert publish.call_count == 1
    # A learner that goes on from a checkpoint has data for some steps, which push theirs.
    process._steps += 1
    process._watch_data(now + 6.0, status)
    assert publish.call_count == 1
    process._watch_data(now + 12.0, status)
    assert publish.call_count == 2


def test_resumed_learner_shows_no_weights_of_the_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.learner_device, "set_up_tensorflow", lambda config: None)
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(tmp_path),
    )
    first = learner_process.LearnerProcess(config)
    message = [np.zeros(4, np.uint8), np.zeros(4, np.uint8)]
    for name in (config.model_table_name, config.broadcaster_table_name):
        first._connection.publish(name, message)
    first._save(last=True)
    first._server.stop()
    second = learner_process.LearnerProcess(dataclasses.replace(config, resume=True))
    try:
        status = second._connection.status()
        assert (status.models_published, status.pushes_waiting) == (0, 0)
    finally:
        second._server.stop()


def test_resumed_learner_has_forgotten_the_announced_end(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.learner_device, "set_up_tensorflow", lambda config: None)
    monkeypatch.setattr(learner_process, "_SHUTDOWN_GRACE_S", 0.1)
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(tmp_path),
    )
    first = learner_process.LearnerProcess(config)
    first._announce(failed=False)
    first._announced = False  # As an earlier version of this program did.
    first._save(last=True)
    first._server.stop()
    second = learner_process.LearnerProcess(dataclasses.replace(config, resume=True))
    try:
        assert not second._connection.status().shutdown
    finally:
        second._server.stop()
