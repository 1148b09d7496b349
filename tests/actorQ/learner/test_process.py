"""The learner's process by itself; test_launcher and test_training make whole runs."""

import dataclasses
import logging
import pathlib
import shutil
import socket
import threading
import time
from unittest import mock

import numpy as np
import pytest

from actorQ.actor import transition_writer
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import run_logger
from actorQ.core import snapshots
from actorQ.core import telemetry
from actorQ.learner import process as learner_process
from actorQ.learner import supervision
from actorQ.policy import saved
from actorQ.wire import connection
from actorQ.wire import replay


@pytest.fixture(name="process")
def _process(tmp_path, monkeypatch):
    # TensorFlow's threads can be set only before its first use; other tests may have used it.
    monkeypatch.setattr(learner_process.device, "set_up_tensorflow", lambda config: None)
    config = config_lib.RunConfig(
        taskstr="dm_control,cartpole_balance", model_str="24,24", critic_str="16", port=0,
        inference_mode="native", evaluator_process="off", max_episode_steps=20,
        logpath=str(tmp_path),
    )
    process = learner_process.LearnerProcess(config)
    yield process
    process._server.stop()


def test_evaluation_with_the_kernels_acts_as_tensorflows_policy(process, tmp_path):
    variables = process._parts.evaluator._policy.named_variables()
    generator = np.random.default_rng(0)
    for variable in variables.values():  # The output layer starts near zero.
        variable.assign(generator.normal(size=variable.shape).astype(np.float32))
    assert process._training.evaluate() is not None
    observations = generator.normal(size=(20, 5)).astype(np.float32)
    player = process._parts.evaluator._player
    with_kernels = [player.act(observation) for observation in observations]
    # A later evaluation takes the weights of that moment.
    for variable in variables.values():
        variable.assign(variable / 2)
    assert process._training.evaluate() is not None
    later = [player.act(observation) for observation in observations]
    process._parts.evaluator._kernels = None
    np.testing.assert_allclose(
        later, [player.act(observation) for observation in observations], atol=1e-5
    )
    for variable in variables.values():
        variable.assign(2 * variable)
    np.testing.assert_allclose(
        with_kernels, [player.act(observation) for observation in observations], atol=1e-5
    )
    assert np.ptp(with_kernels) > 0.1
    rows = (tmp_path / telemetry.LEARNER / telemetry.EVALUATION_CSV).read_text().splitlines()
    assert len(rows) == 3


@pytest.mark.parametrize("kernels", [True, False])
def test_evaluation_notes_the_share_of_actions_at_their_bounds(process, tmp_path, kernels):
    if not kernels:
        process._parts.evaluator._kernels = None
    (bias,) = [
        variable for name, variable in process._parts.evaluator._policy.named_variables().items()
        if variable.shape == (1,) and name.endswith("/b")
    ]
    for value, share in ((20.0, 1.0), (-20.0, 1.0), (0.0, 0.0)):
        bias.assign([value])
        process._training.evaluate()
        row = telemetry.last_row(str(tmp_path / telemetry.LEARNER / telemetry.EVALUATION_CSV))
        assert row["actions_at_bounds"] == share
        assert 0.0 <= row["reward_low"] <= row["reward_high"] <= 1.0


def test_checkpoint_after_the_end_was_announced_is_not_written(process, tmp_path):
    process._training.save(last=True)
    store = snapshots.Store(str(tmp_path))
    before = store.newest_name()
    process._config = dataclasses.replace(process._config, n_actors=1)
    process._announce(failed=False)
    process._training.save(last=True)
    assert store.newest_name() == before


def test_checkpoint_while_the_log_folder_is_away_keeps_the_lengths_of_logs(process, tmp_path):
    process._training.evaluate()
    lengths = process._training.state().log_bytes
    assert lengths[telemetry.EVALUATION_CSV] > 0
    folder = tmp_path / telemetry.LEARNER
    folder.rename(tmp_path / "away")
    assert process._training.state().log_bytes == lengths
    (tmp_path / "away").rename(folder)
    process._logger.close()
    snapshots.cut_logs(str(folder), process._training.state())
    assert (folder / telemetry.EVALUATION_CSV).stat().st_size == lengths[telemetry.EVALUATION_CSV]


def test_a_finished_run_that_goes_on_keeps_its_final_evaluation(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.device, "set_up_tensorflow", lambda config: None)
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(tmp_path),
        max_episode_steps=20, final_eval_episodes=3, num_episodes=1, stop_return=1.0,
        stop_smoothing=1,
    )
    first = learner_process.LearnerProcess(config)
    first._progress.steps = 1  # All steps are done.
    first._training._learn()
    first._logger.close()
    best = first._parts.evaluator.best_return
    first._server.stop()
    path = tmp_path / telemetry.LEARNER / telemetry.EVALUATION_CSV
    rows = path.read_bytes()
    assert len(rows.splitlines()) == 4
    second = learner_process.LearnerProcess(
        dataclasses.replace(config, resume=True, num_episodes=2)
    )
    evaluator = second._parts.evaluator
    try:
        assert path.read_bytes() == rows
        assert len(evaluator.returns) == 3 and evaluator.best_return == best
        # The last policy holds the return, which is no reason for the resumed run to end at once.
        assert not evaluator.reached_stop_return()
        evaluator.returns += [1.0] * config.stop_window
        assert evaluator.reached_stop_return()
        del evaluator.returns[3:]
        # The logs' lengths are known, even if their folder goes away before anything is written.
        path.parent.rename(tmp_path / "away")
        assert second._training.state().log_bytes[telemetry.EVALUATION_CSV] == len(rows)
    finally:
        second._server.stop()


@pytest.mark.parametrize("trace", ["checkpoint", "log"])
def test_a_folder_with_a_run_is_not_begun_anew(tmp_path, monkeypatch, trace):
    monkeypatch.setattr(learner_process.device, "set_up_tensorflow", lambda config: None)
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(tmp_path), launch_id=5,
    )
    if trace == "checkpoint":
        first = learner_process.LearnerProcess(config)
        first._training.save(last=True)
        first._server.stop()
    else:
        (tmp_path / telemetry.LEARNER).mkdir()
        (tmp_path / telemetry.LEARNER / telemetry.TRAIN_CSV).write_text("seconds\n")
    before = sorted(tmp_path.rglob("*"))
    for launch_id in (0, 6):  # It is started by hand, or by another launcher.
        with pytest.raises(errors.UserError, match="There is a run in .*add --resume"):
            learner_process.LearnerProcess(dataclasses.replace(config, launch_id=launch_id))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"taskstr": "nosuite,x"}, "nosuite"),
        ({"algorithm": "dqn"}, "--algorithm=dqn"),
        ({"logpath": "/proc/nothing"}, "Cannot write logs to /proc/nothing"),
    ],
)
def test_a_learner_that_cannot_use_its_settings_says_so(tmp_path, settings, message):
    config = config_lib.RunConfig(**{"port": 0, "logpath": str(tmp_path), **settings})
    with pytest.raises(errors.UserError, match=message):
        learner_process.LearnerProcess(config)


@pytest.mark.parametrize(
    ("settings", "threads", "line"),
    [
        ({"n_actors": 12}, 19,
         "19 threads on 32 cores (13 left to others on this machine; see --learner_threads)"),
        ({"n_actors": 12, "evaluator_process": "off"}, 20,
         "20 threads on 32 cores (12 left to others on this machine; see --learner_threads)"),
        ({"n_actors": 12, "learner_threads": 30}, 30, "30 threads on 32 cores"),
        ({"n_actors": 12, "evaluator_process": "off", "actors_yield": 1}, 32,
         "32 threads on 32 cores"),
    ],
)
def test_learner_says_how_many_cores_it_takes(monkeypatch, caplog, settings, threads, line):
    tensorflow = mock.Mock()
    monkeypatch.setattr(learner_process.device, "tf", tensorflow)
    monkeypatch.setattr(learner_process.provenance, "usable_cores", lambda: 32)
    with caplog.at_level(logging.INFO, logger="absl"):
        learner_process.device.set_up_tensorflow(
            config_lib.RunConfig(learner_device_placement="CPU", **settings)
        )
    tensorflow.config.threading.set_intra_op_parallelism_threads.assert_called_once_with(threads)
    assert caplog.messages == [f"Learner: {line}"]


def test_a_port_in_use_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.device, "set_up_tensorflow", lambda config: None)
    with socket.create_server(("", 0)) as holder:
        port = holder.getsockname()[1]
        config = config_lib.RunConfig(
            taskstr="gym,CartPole-v1", model_str="16", port=port, logpath=str(tmp_path)
        )
        with pytest.raises(errors.UserError, match=f"Port {port} is in use"):
            learner_process.LearnerProcess(config)


def test_a_learner_that_gets_no_data_keeps_what_it_has_learned(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.device, "set_up_tensorflow", lambda config: None)
    monkeypatch.setattr(supervision, "_LAST_STEP_S", 0.1)
    monkeypatch.setattr(supervision, "_LOOK_S", 0.05)
    monkeypatch.setattr(learner_process, "_SHUTDOWN_GRACE_S", 0.1)
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(tmp_path),
        log_period_s=600.0, data_timeout=1.0, final_eval_episodes=0,
    )
    monkeypatch.setattr(learner_process.cli, "on_stop_signals", lambda *_: None)
    process = learner_process.LearnerProcess(config)
    process._parts.learner.step = threading.Event().wait  # Without an actor, replay never fills.
    with pytest.raises(errors.UserError, match="No transition came for 1 s.*are actors running"):
        process.run()
    assert snapshots.Store(str(tmp_path)).newest_name()


def test_a_learner_whose_losses_are_no_numbers_ends_and_says_that_it_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.device, "set_up_tensorflow", lambda config: None)
    monkeypatch.setattr(learner_process.cli, "on_stop_signals", lambda *_: None)
    monkeypatch.setattr(learner_process, "_SHUTDOWN_GRACE_S", 0.1)
    # Steps of 1e38 send the weights to infinity, and the losses with them.
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(tmp_path),
        learning_rate=1e38, batch_size=16, min_replay_size=50, replay_table_max_times_sampled=0,
        log_period_s=0.05, eval_period_s=0.0,
    )
    process = learner_process.LearnerProcess(config)
    announced = mock.Mock(wraps=process._connection.announce_shutdown)
    monkeypatch.setattr(process._connection, "announce_shutdown", announced)
    layout = replay.Layout((4,), pixels=False, action_size=1, discrete=True)
    writer = transition_writer.TransitionWriter(
        process._connection.client, config.replay_table_name, layout
    )
    generator = np.random.default_rng(0)
    for action in (0, 1) * 50:
        before, after = generator.normal(size=(2, 4))
        writer.write(replay.Transition(before, action, 1.0, 0.9, after))
    writer.close()
    with pytest.raises(errors.UserError, match=errors.DIVERGED):
        process.run()
    announced.assert_called_once_with(connection.FAILED)


def test_time_limit_ends_a_step_that_waits_for_data(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.device, "set_up_tensorflow", lambda config: None)
    monkeypatch.setattr(supervision, "_LATE_STEP_S", 0.2)
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(tmp_path), max_seconds=0.5,
        max_episode_steps=20, final_eval_episodes=3, log_period_s=600.0, data_timeout=600.0,
    )
    process = learner_process.LearnerProcess(config)
    try:
        data = threading.Event()
        process._parts.learner.step = data.wait  # Without an actor, replay never fills.
        learning = threading.Thread(target=process._training.run, daemon=True)
        learning.start()
        process._progress.ready.wait()
        store = snapshots.Store(str(tmp_path))
        first = store.newest_name()
        supervising = threading.Thread(target=process._supervisor.run, daemon=True)
        supervising.start()
        supervising.join(60)
        assert not supervising.is_alive() and process._progress.failure is None
        newest = store.newest_name()
        assert newest != first
        data.set()  # A step that ends too late does not count.
        learning.join(60)
        assert process._progress.steps == 0 and store.newest_name() == newest
        rows = (tmp_path / telemetry.LEARNER / telemetry.EVALUATION_CSV).read_text().splitlines()
        assert len(rows) == 1 + 3
        assert (tmp_path / telemetry.CHECKPOINT_FOLDER / "policy.safetensors").exists()
    finally:
        process._server.stop()


def test_a_learner_closes_its_environment_at_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.device, "set_up_tensorflow", lambda config: None)
    monkeypatch.setattr(learner_process.cli, "on_stop_signals", lambda *_: None)
    monkeypatch.setattr(learner_process, "_SHUTDOWN_GRACE_S", 0.1)
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(tmp_path), num_episodes=3,
        max_episode_steps=20, final_eval_episodes=1,
    )
    process = learner_process.LearnerProcess(config)
    process._parts.learner.step = lambda: None
    closed = []
    environment = process._parts.evaluator._environment
    monkeypatch.setattr(environment._raw, "close", lambda: closed.append(process._progress.steps))
    assert process.run() == 0
    assert closed == [3]


def test_a_learner_leaves_an_environment_alone_that_may_be_played(process, monkeypatch):
    monkeypatch.setattr(learner_process, "_SHUTDOWN_GRACE_S", 0.1)
    closed = mock.Mock()
    monkeypatch.setattr(process._parts.evaluator._environment, "close", closed)
    process._interrupted = True
    assert process._end() == 130  # Its learning thread has not come to its end.
    closed.assert_not_called()


def test_the_best_policy_outlives_a_crash_after_the_last_checkpoint(process, tmp_path):
    evaluator = process._parts.evaluator
    before = process._training.state()
    assert before.best_return is None

    def played(steps, episode_return):
        evaluator.begin(steps, 0, stop=lambda: False)
        evaluator.returns.append(episode_return)
        evaluator.finish()

    played(7, 950.0)
    best = saved.find_policy(str(tmp_path), best=True)
    content = pathlib.Path(best).read_bytes()

    def resume_and_play(state, episode_return):
        evaluator.best_return = -np.inf
        evaluator.restore(state)
        played(8, episode_return)
        return pathlib.Path(best).read_bytes() != content

    assert not resume_and_play(before, 12.0)
    assert evaluator.best_return == 950.0
    assert not resume_and_play(dataclasses.replace(before, best_return=10.0), 12.0)
    assert resume_and_play(before, 951.0)
    evaluator._run_id += 1  # The best policy of another run does not count.
    assert resume_and_play(before, 12.0)
    assert saved.load_policy(best).facts["episode_return"] == 12.0


def test_resumed_learner_goes_on_counting_the_seconds_of_pushes(process, tmp_path):
    process._parts.publisher.snapshot_s, process._parts.publisher.insert_s = 1.5, 2.5
    process._training.save(last=True)
    process._server.stop()
    again = learner_process.LearnerProcess(dataclasses.replace(process._config, resume=True))
    try:
        again._supervisor.log(again._connection.status())
        row = telemetry.last_row(str(tmp_path / telemetry.LEARNER / telemetry.TRAIN_CSV))
        assert (row["push_snapshot_s"], row["push_insert_s"]) == (1.5, 2.5)
    finally:
        again._server.stop()


def test_checkpoint_that_reverb_cannot_write_leaves_the_one_before(process, tmp_path, monkeypatch):
    process._training.save()
    process._parts.checkpoints._writing.join()
    store = snapshots.Store(str(tmp_path))
    before = store.newest_name()

    def refuse():
        (tmp_path / "left").mkdir()
        raise IndexError("No space left on device")  # Reverb raises this type.

    monkeypatch.setattr(process._parts.checkpoints, "_client", mock.Mock(checkpoint=refuse))
    process._training.save(last=True)
    assert (tmp_path / "left").exists()
    assert store.newest_name() == before and not store.being_written()


def test_resumed_learner_s_versions_are_new_to_whoever_has_a_log(process, tmp_path):
    # A machine that crashed may have lost the record of versions, but not an actor's log.
    process._training.save(last=True)
    process._server.stop()
    logger = run_logger.RunLogger(str(tmp_path), "actor_1", time.time())
    logger.write(telemetry.PHASES_CSV, 1, model_version=41)
    logger.close()
    again = learner_process.LearnerProcess(dataclasses.replace(process._config, resume=True))
    try:
        assert again._progress.version == 42
    finally:
        again._server.stop()


def test_resumed_learner_keeps_the_record_of_where_its_settings_came_from(
    process, tmp_path, monkeypatch
):
    sources = config_lib.load_record(str(tmp_path))["settings_from"]
    assert "model_str" in sources["command line"]
    process._training.save(last=True)
    process._server.stop()
    monkeypatch.setattr(learner_process.presets, "origins", lambda config: {"elsewhere": []})
    again = learner_process.LearnerProcess(dataclasses.replace(process._config, resume=True))
    try:
        assert config_lib.load_record(str(tmp_path))["settings_from"] == sources
    finally:
        again._server.stop()


def test_resumed_learner_shows_no_weights_of_the_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.device, "set_up_tensorflow", lambda config: None)
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(tmp_path),
    )
    first = learner_process.LearnerProcess(config)
    message = [np.zeros(4, np.uint8), np.zeros(4, np.uint8)]
    for name in (config.model_table_name, config.broadcaster_table_name):
        first._connection.publish(name, message)
    first._training.save(last=True)
    first._server.stop()
    second = learner_process.LearnerProcess(dataclasses.replace(config, resume=True))
    try:
        status = second._connection.status()
        assert (status.models_published, status.pushes_waiting) == (0, 0)
    finally:
        second._server.stop()


def test_resumed_learner_has_forgotten_the_announced_end(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.device, "set_up_tensorflow", lambda config: None)
    monkeypatch.setattr(learner_process, "_SHUTDOWN_GRACE_S", 0.1)
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(tmp_path),
    )
    first = learner_process.LearnerProcess(config)
    first._announce(failed=False)
    first._training._saves_over = False  # An earlier version of this program saved then.
    first._training.save(last=True)
    first._server.stop()
    second = learner_process.LearnerProcess(dataclasses.replace(config, resume=True))
    try:
        assert not second._connection.status().shutdown
    finally:
        second._server.stop()


def test_resume_from_a_damaged_checkpoint_or_from_none_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.device, "set_up_tensorflow", lambda config: None)
    servers, start = [], learner_process.server.start_server

    def noted(*arguments):  # This notes the servers of learners that fail later, too.
        servers.append(start(*arguments))
        return servers[-1]

    monkeypatch.setattr(learner_process.server, "start_server", noted)
    run = tmp_path / "run"
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", model_str="16", port=0, logpath=str(run),
    )
    learner_process.LearnerProcess(config)._training.save(last=True)
    servers.pop().stop()
    newest = pathlib.Path(snapshots.Store(str(run)).newest().folder).relative_to(run)

    def check_refused(folder, message):
        resumed = dataclasses.replace(config, resume=True, logpath=str(folder))
        with pytest.raises(errors.UserError, match=message):
            learner_process.LearnerProcess(resumed)

    damages = {
        "learner.data-00000-of-00001": "damaged, or of other networks",
        "state.json": "is damaged: state.json",
    }
    for name, message in damages.items():
        damaged = tmp_path / name
        shutil.copytree(run, damaged)
        path = damaged / newest / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        check_refused(damaged, message)
    shutil.rmtree(run / "checkpoint")
    check_refused(run, "no checkpoint to resume")
    for server in servers:
        server.stop()


def test_a_range_that_was_found_is_recorded_and_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(learner_process.device, "set_up_tensorflow", lambda config: None)
    config = config_lib.RunConfig(
        taskstr="gym,Pendulum-v1", model_str="16", critic_str="16", port=0, logpath=str(tmp_path),
        vmin="auto", vmax="auto", batch_size=16, min_replay_size=32,
    )
    first = learner_process.LearnerProcess(config)
    writer = transition_writer.TransitionWriter(
        first._connection.client, config.replay_table_name,
        replay.Layout((3,), pixels=False, action_size=1, discrete=False),
    )
    for _ in range(32):
        writer.write(replay.Transition(np.zeros(3), np.zeros(1), -49.0, 0.99**4, np.zeros(3)))
    writer.close()
    assert "found" not in config_lib.load_record(str(tmp_path))
    first._parts.learner.step()
    found = {"vmin": -1500.0, "vmax": 0.0}  # -10 a step, times 100 and 1.5.
    assert config_lib.load_record(str(tmp_path))["found"] == found
    assert config_lib.RunConfig.load(str(tmp_path)) == config
    first._training.save(last=True)
    first._server.stop()
    second = learner_process.LearnerProcess(dataclasses.replace(config, resume=True))
    try:
        assert second._range_finder._found
        record = config_lib.load_record(str(tmp_path))
        assert record["found"] == found and len(record["resumed"]) == 1
    finally:
        second._server.stop()
