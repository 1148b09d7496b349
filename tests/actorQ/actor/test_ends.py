"""An actor ends as it should: told to, by a fault, or for want of a learner."""

import dataclasses
import itertools
import threading
import time
from unittest import mock

import numpy as np
import pytest
from tensorboard.backend.event_processing import plugin_event_accumulator

from actorQ.actor import process as actor_process
from actorQ.actor import transition_writer
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import ports
from actorQ.core import telemetry
from actorQ.environments import suites
from actorQ.environments import task_errors
from actorQ.wire import connection
from tests.actorQ import harness
from tests.actorQ.actor.stage import running


def test_actor_stop_sends_what_was_written(stage):
    made = stage(n_step=1)
    made.publish(0)
    assert made.actor.connect()
    thread = threading.Thread(target=made.actor.act)
    thread.start()
    harness.poll(lambda: made.actor.loop.steps > 100)
    made.actor.stop()
    thread.join(20)
    assert made.actor._end() == 130
    assert made.connection.status().transitions_inserted == made.actor.loop.steps


def test_actor_of_another_run_ends_with_one_line(stage, monkeypatch):
    monkeypatch.setattr(actor_process, "_HEALTH_PERIOD_S", 0.1)
    made = stage()
    made.publish(0)
    made.connection.publish_card(77, 1, 0)
    assert made.actor.connect()
    made.connection.publish_card(78, 2, 0)
    with pytest.raises(errors.UserError, match="another run"):
        while not made.actor._connect_and_act():
            pass


def test_actor_whose_task_gives_what_is_no_number_ends_with_one_line(stage):
    made = stage(n_step=1, transfer_timeout=7.0)
    made.publish(0)
    environment = made.actor.loop.lanes[0].environment
    step = environment._raw_step
    environment._raw_step = lambda action: (np.full(3, np.nan), *step(action)[1:])
    with pytest.raises(task_errors.TaskError, match="a next observation that is not finite"):
        made.actor._connect_and_act()
    assert made.connection.status().transitions_inserted == 0
    assert made.actor._writer._timeout_s == 7.0  # Inserts wait as long as weights may take.


@pytest.mark.parametrize("mode", ["pytorch", "native"])
def test_actor_whose_task_fails_before_a_transition_is_whole_says_the_same(stage, mode):
    # torch's int8 products take no NaN, and most tasks take no action of NaN.
    made = stage(n_step=5, quantize=8, inference_mode=mode)
    made.publish(0)
    environment = made.actor.loop.lanes[0].environment
    step = environment._raw_step

    def fail(action):
        if not np.isfinite(action).all():
            raise ValueError("no such action")
        return np.full(3, np.nan), *step(action)[1:]

    environment._raw_step = fail
    with pytest.raises(task_errors.TaskError, match="an observation that is not finite"):
        made.actor._connect_and_act()


def test_actor_that_fails_leaves_its_newest_points_on_disk(stage, monkeypatch):
    monkeypatch.setattr(actor_process.cli, "on_stop_signals", lambda *_: None)
    made = stage(log_period_s=600.0, max_episode_steps=10)
    made.publish(0)
    environment = made.actor.loop.lanes[0].environment
    step, steps = environment._raw_step, itertools.count()

    def fail_at_last(action):
        if next(steps) == 35:
            raise OSError("no such model")
        return step(action)

    environment._raw_step = fail_at_last
    with pytest.raises(task_errors.TaskError, match=r"failed in step\(\): OSError: no such model"):
        made.actor.run()
    events = plugin_event_accumulator.EventAccumulator(made.actor._logger.folder)
    events.Reload()
    assert [event.step for event in events.Tensors("episodes/episode_return")] == [10]


def test_actor_whose_task_cannot_begin_says_why(stage, monkeypatch):
    made = stage()
    made.publish(0)
    loop = made.actor.loop
    loop._observations[:] = np.nan  # Memory that was never written may hold NaN.
    monkeypatch.setattr(
        loop.lanes[0].environment, "_begin", mock.Mock(side_effect=OSError("no such model"))
    )
    with pytest.raises(task_errors.TaskError, match=r"in reset\(\): OSError: no such model"):
        made.actor._connect_and_act()


def test_actor_of_an_unknown_task_ends_with_one_line(tmp_path):
    config = config_lib.RunConfig(taskstr="dm_control,no_such", logpath=str(tmp_path))
    with pytest.raises(errors.UserError, match="no_such"):
        actor_process.ActorProcess(config)


def test_actor_that_cannot_make_all_its_environments_closes_those_that_it_made(
    tmp_path, monkeypatch
):
    made, closed = [], []

    def make(config, seed):
        if len(made) == 2:
            raise task_errors.TaskError("no licence for a third simulator")
        made.append(suites.make(config.taskstr, seed))
        monkeypatch.setattr(made[-1], "close", lambda it=made[-1]: closed.append(it))
        return made[-1]

    monkeypatch.setattr(actor_process.suites, "make_for", make)
    with pytest.raises(task_errors.TaskError, match="a third simulator"):
        actor_process.ActorProcess(config_lib.RunConfig(
            taskstr="gym,Pendulum-v1", model_str="4", envs_per_actor=3, logpath=str(tmp_path)
        ))
    assert len(made) == 2 and closed == made


def test_actor_without_a_port_to_ask_closes_its_environments(tmp_path, monkeypatch):
    monkeypatch.setattr(actor_process.cli, "on_stop_signals", lambda *_: None)
    actor = actor_process.ActorProcess(config_lib.RunConfig(
        taskstr="gym,Pendulum-v1", model_str="4", port=0, logpath=str(tmp_path)
    ))
    closed = []
    monkeypatch.setattr(actor.loop, "close", lambda: closed.append(True))
    with pytest.raises(errors.UserError):
        actor.run()
    assert closed


def test_actor_without_learner_gives_up_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(actor_process.cli, "on_stop_signals", lambda *_: None)
    actor = actor_process.ActorProcess(config_lib.RunConfig(
        taskstr="gym,Pendulum-v1", model_str="4", port=ports.free_port(), connect_timeout=1.0,
        logpath=str(tmp_path),
    ))
    started = time.monotonic()
    with pytest.raises(errors.NoLearnerError, match="No learner at localhost:"):
        actor.run()
    assert 1.0 <= time.monotonic() - started < 10.0


@pytest.mark.parametrize("end", ["announced", "failed run", "failure"])
def test_actor_closes_its_environments_however_it_ends(stage, monkeypatch, end):
    monkeypatch.setattr(actor_process.cli, "on_stop_signals", lambda *_: None)
    monkeypatch.setattr(actor_process, "_HEALTH_PERIOD_S", 0.05)
    made = stage(envs_per_actor=2)
    made.publish(0)
    environments_of = [lane.environment for lane in made.actor.loop.lanes]
    closed = []
    for environment in environments_of:
        monkeypatch.setattr(environment._raw, "close", lambda it=environment: closed.append(it))
    if end == "failure":
        step = environments_of[1]._raw_step
        environments_of[1]._raw_step = lambda action: (np.full(3, np.nan), *step(action)[1:])
        with pytest.raises(task_errors.TaskError):
            made.actor.run()
    elif end == "failed run":
        made.connection.announce_shutdown(connection.FAILED)
        with pytest.raises(errors.UserError, match="the run has failed"):
            made.actor.run()
    else:
        made.connection.announce_shutdown(connection.COMPLETED)
        assert made.actor.run() == 0
    assert closed == environments_of


def test_actor_with_the_id_of_another_is_refused_and_the_other_goes_on(stage, monkeypatch):
    monkeypatch.setattr(actor_process.cli, "on_stop_signals", lambda *_: None)
    made = stage()
    thread, done = running(made)
    second = actor_process.ActorProcess(made.actor._config)
    with pytest.raises(errors.UserError, match="Another actor has --actor_id=1 in .*actor_1"):
        second.run()
    assert second.loop.steps == 0
    steps = made.actor.loop.steps
    harness.poll(lambda: made.actor.loop.steps > steps)
    made.actor.stop()
    thread.join(20)
    assert done == [130]


def test_actor_stopped_during_its_first_transfer_ends(stage, monkeypatch):
    monkeypatch.setattr(actor_process.cli, "on_stop_signals", lambda *_: None)
    made = stage()
    made.publish(0)
    begun = threading.Event()

    def take_for_ever(table):  # A slow or broken link is like this.
        begun.set()
        threading.Event().wait()

    monkeypatch.setattr(made.actor._connection, "take", take_for_ever)
    done = []
    thread = threading.Thread(target=lambda: done.append(made.actor.run()))
    thread.start()
    assert begun.wait(30)
    made.actor.stop()
    thread.join(10)
    assert done == [130]


def test_actor_stopped_while_inserts_are_not_confirmed_ends(stage, monkeypatch):
    monkeypatch.setattr(actor_process.cli, "on_stop_signals", lambda *_: None)
    monkeypatch.setattr(transition_writer, "_CHECK_PERIOD_S", 0.05)
    made = stage()
    made.publish(0)
    monkeypatch.setattr(transition_writer.TransitionWriter, "_send", lambda self: None)

    waits = threading.Event()

    def confirm_nothing(writer, timeout_s=None):
        waits.set()
        while True:  # `_wait` does this if the server answers and --transfer_timeout is long.
            time.sleep(0.05)
            writer._check()

    monkeypatch.setattr(transition_writer.TransitionWriter, "_wait", confirm_nothing)
    done = []
    thread = threading.Thread(target=lambda: done.append(made.actor.run()))
    thread.start()
    assert waits.wait(30)
    made.actor.stop()
    thread.join(10)
    assert done == [130]


def test_actor_stopped_before_it_acts_again_logs_nothing(stage):
    made = stage()
    made.publish(1)
    assert made.actor.connect()
    made.actor.act(seconds=0.2)
    made.actor._end()
    rows = (made.folder / telemetry.PHASES_CSV).read_bytes()
    again = actor_process.ActorProcess(dataclasses.replace(made.actor._config, restarts=1))
    assert again.loop.steps > 0
    again._end()
    assert (made.folder / telemetry.PHASES_CSV).read_bytes() == rows
