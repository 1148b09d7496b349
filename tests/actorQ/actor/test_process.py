"""An actor that acts against a real server."""

import dataclasses
import itertools
import os
import threading
import time
from unittest import mock

from absl import logging
import numpy as np
import pytest
from tensorboard.backend.event_processing import plugin_event_accumulator

from actorQ import actor_main
from actorQ.actor import process as actor_process
from actorQ.actor import transition_writer
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import ports
from actorQ.core import telemetry
from actorQ.environments import suites
from actorQ.environments import task_errors
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.wire import connection
from actorQ.wire import messages
from actorQ.wire import replay
from actorQ.wire import server
from tests.actorQ import harness


class Stage:
    """A real server and one real actor, in this process."""

    def __init__(self, tmp_path, **settings):
        defaults = {
            "taskstr": "gym,Pendulum-v1", "model_str": "4", "quantize": 32, "port": 0,
            "logpath": str(tmp_path), "max_episode_steps": 40, "log_period_s": 0.05,
        }
        self.config = config_lib.RunConfig(**{**defaults, **settings})
        discrete = "CartPole" in self.config.taskstr
        self.folder = tmp_path / "actor_1"
        self.layout = replay.Layout((4 if discrete else 3,), False, 1, discrete)
        tables = server.make_tables(self.config, self.layout, prioritized=False)
        self.server = server.start_server(self.config, tables)
        address = f"localhost:{self.server.port}"
        self.connection = connection.Connection(self.config, address)
        self.actor = actor_process.ActorProcess(
            config_lib.RunConfig(**{**defaults, **settings, "server_address": address})
        )

    def serve_again(self):
        """Starts a new server at the address of the one that was stopped."""
        self.server = server.start_server(
            dataclasses.replace(self.config, port=self.server.port),
            server.make_tables(self.config, self.layout, prioritized=False),
        )
        # Every process waits like this: the first insert after the old server's end may fail.
        self.connection = connection.Connection(self.config, self.connection.address)

    def publish(self, version):
        shapes = architecture_lib.PolicyArchitecture(
            self.layout.observation_shape, (4,), 2 if self.layout.discrete else 1,
            architecture_lib.Q_VALUES_HEAD if self.layout.discrete else architecture_lib.TANH_HEAD,
        ).parameter_shapes
        rng = np.random.default_rng(version)
        weights = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
        update = forms.to_actor_form(weights, version, self.config.quantize)
        self.connection.publish(self.config.model_table_name, messages.encode(update))

    def act(self, transitions):
        """Lets the actor act until replay holds `count` transitions; returns them all."""
        if self.actor._weights.version < 0:
            self.publish(0)
            assert self.actor.connect()
        self.actor._stop.clear()
        acting_thread = threading.Thread(target=self.actor.act)
        acting_thread.start()
        harness.poll(
            lambda: self.connection.status().transitions_inserted >= transitions, 60, 0.001
        )
        self.actor.stop()
        acting_thread.join(20)
        self.actor._writer.flush()
        samples = self.connection.client.sample(
            self.config.replay_table_name, 300, emit_timesteps=False
        )
        return self.layout.unpack(np.stack([np.asarray(sample.data[0]) for sample in samples]))

    def close(self):
        self.server.stop()


@pytest.fixture
def stage(tmp_path):
    stages = []

    def make(**settings):
        settings.setdefault("min_replay_size", 1)
        settings.setdefault("replay_table_max_times_sampled", 0)
        stages.append(Stage(tmp_path / str(len(stages)), **settings))
        return stages[-1]

    yield make
    for made in stages:
        made.close()


def test_actor_n_step_and_discount_flags_shape_the_transitions(stage):
    batch = stage(n_step=3, discount=0.5).act(200)
    # A time limit (every 40 steps) is not a terminal state, so no discount is 0. Full windows have
    # 0.5^2, and the shorter ones at an episode's end have 0.5 and 1.
    assert set(np.unique(batch.discount)) == {0.25, 0.5, 1.0}
    one_step = stage(n_step=1, discount=0.5).act(100)
    assert set(np.unique(one_step.discount)) == {1.0}


@pytest.mark.parametrize(("scale", "largest"), [(0, 8.0), (1, 1.0)])
def test_actor_scales_observations_if_asked(stage, scale, largest):
    # A pendulum that hangs free turns at more than 1 rad/s, and at 8 at most.
    batch = stage(scale_observations=scale, sigma=0.0).act(300)
    turning = np.abs(batch.observation[:, 2])
    assert largest / 8 < turning.max() <= largest


def test_actor_terminal_states_have_discount_zero(stage):
    batch = stage(taskstr="gym,CartPole-v1", n_step=1, max_episode_steps=500, epsilon_max=1.0).act(
        200
    )
    assert set(np.unique(batch.discount)) == {0.0, 1.0}
    assert set(np.unique(batch.action)) == {0.0, 1.0}


def test_actor_clips_single_rewards_for_dqn_only(stage):
    # CartPole pays 1 a step: clipped to 0.25 each, two steps at discount 0.5 are 0.375.
    batch = stage(
        taskstr="gym,CartPole-v1", n_step=2, discount=0.5, max_abs_reward=0.25, epsilon_max=1.0
    ).act(100)
    assert set(np.unique(batch.reward)) == {0.25, 0.375}
    # With auto the learner finds a scale, and nothing is clipped.
    batch = stage(
        taskstr="gym,CartPole-v1", n_step=2, discount=0.5, max_abs_reward="auto", epsilon_max=1.0
    ).act(100)
    assert set(np.unique(batch.reward)) == {1.0, 1.5}
    # Pendulum pays down to -16 a step.
    assert stage(max_abs_reward=0.25, n_step=1).act(100).reward.min() < -0.25


def test_actor_sigma_zero_repeats_the_policy_and_sigma_spreads_actions(stage):
    quiet = stage(sigma=0.0)
    batch = quiet.act(100)
    expected = np.array([quiet.actor.infer(o[None])[0] for o in batch.observation[:20]])
    np.testing.assert_allclose(batch.action[:20], expected, atol=1e-6)
    loud = stage(sigma=2.0)
    noisy = loud.act(100)
    expected = np.array([loud.actor.infer(o[None])[0] for o in noisy.observation])
    assert np.std(noisy.action - expected) > 0.3


@pytest.mark.parametrize("period", [5, 50])
def test_actor_update_period_sets_how_often_it_looks(stage, period):
    made = stage(actor_update_period=period)
    looks = []
    ask = made.actor._weights.ask

    def counted():
        looks.append(made.actor.loop.steps)
        return ask()

    made.publish(0)
    assert made.actor.connect()
    made.actor._weights.ask = counted
    made.act(200)
    steps = [step for step in looks if step]
    assert steps[:3] == [period, 2 * period, 3 * period]


def test_actor_update_period_counts_the_steps_of_all_environments(stage):
    made = stage(actor_update_period=10, envs_per_actor=4)
    made.publish(0)
    assert made.actor.connect()
    looks = []
    made.actor._weights.ask = lambda: looks.append(made.actor.loop.steps)
    made.act(100)
    # The actor looks in the first turn at or after each multiple of 10.
    assert looks[:6] == [0, 12, 20, 32, 40, 52]


def test_actor_with_several_environments_writes_a_transition_for_each_step(stage):
    made = stage(envs_per_actor=3, n_step=2, discount=0.5, max_episode_steps=20)
    batch = made.act(300)
    assert made.actor.loop.steps % 3 == 0
    written = made.connection.status().transitions_inserted
    # One transition in each environment still waits for its second step.
    assert made.actor.loop.steps - 3 <= written <= made.actor.loop.steps
    assert set(np.unique(batch.discount)) == {0.5, 1.0}
    episodes = telemetry.read_csv(str(made.folder / telemetry.EPISODES_CSV))
    assert set(episodes["episode_length"]) == {20}
    assert episodes["episodes"] == list(range(1, len(episodes["episodes"]) + 1))
    # Three episodes end in each 20th turn.
    assert episodes["actor_steps"][:4] == [60, 60, 60, 120]
    assert len(set(episodes["episode_return"][:3])) == 3


def test_actor_environments_have_seeds_of_their_own_and_the_first_that_of_a_single_one(stage):
    one, three = stage(seed=1), stage(seed=1, envs_per_actor=3)
    starts = [
        lane.environment.reset().observation
        for lane in (*one.actor.loop.lanes, *three.actor.loop.lanes)
    ]
    np.testing.assert_array_equal(starts[0], starts[1])
    assert len({start.tobytes() for start in starts}) == 3
    zero = np.zeros(1, np.float32)
    noises = [
        float(lane.explore(zero)[0]) for lane in (*one.actor.loop.lanes, *three.actor.loop.lanes)
    ]
    assert noises[0] == noises[1]
    assert len(set(noises)) == 3


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


@pytest.mark.parametrize("n_step", [1, 3])
def test_actor_reconnects_drops_its_episode_and_keeps_its_weights(stage, monkeypatch, n_step):
    monkeypatch.setattr(actor_process, "_HEALTH_PERIOD_S", 0.1)
    made = stage(n_step=n_step, max_episode_steps=100_000, replay_table_max_replay_size=100_000)
    made.publish(3)
    made.connection.publish_card(77, 1, 0)
    done, drops = [], []
    drop = made.actor.loop.drop_episodes
    monkeypatch.setattr(
        made.actor.loop, "drop_episodes", lambda: (drops.append(made.actor.loop.steps), drop())
    )
    thread = threading.Thread(target=lambda: done.append(made.actor.run()))
    monkeypatch.setattr(actor_process.cli, "on_stop_signals", lambda *_: None)
    thread.start()
    harness.poll(lambda: made.connection.status().transitions_inserted > 100)
    made.server.stop()
    harness.poll(lambda: made.actor._writer is None, what="the actor giving the server up")
    steps = made.actor.loop.steps
    made.serve_again()
    made.connection.publish_card(77, 2, 40)
    # It acts on without a new message, from the start of an episode.
    harness.poll(lambda: made.connection.status().transitions_inserted > 50)
    assert made.actor._weights.version == 3
    assert made.actor.loop.lanes[0].length <= made.actor.loop.steps - steps
    # The weights of the checkpoint, which are older, are not taken; newer ones are.
    made.publish(2)
    harness.poll(lambda: made.actor._weights._seen == 1)
    assert made.actor._weights.version == 3
    made.publish(41)
    harness.poll(lambda: made.actor._weights.version == 41)
    made.actor.stop()
    thread.join(20)
    assert done == [130]
    inserted = made.connection.status().transitions_inserted
    # Nothing is left of the episode before: the first window is whole after n steps. The steps of
    # the turn that was broken off were not counted. Windows are open in the present episode only,
    # and the actor may have stopped at the end of one (every 200 steps).
    still_open = min(n_step - 1, made.actor.loop.lanes[0].length)
    assert drops[0] == steps
    # An actor that saw the new server before its card has dropped another beginning.
    least, most = (made.actor.loop.steps - drops[at] - still_open for at in (-1, 0))
    assert least <= inserted <= most


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
    with pytest.raises(RuntimeError, match="Acting failed: no such model"):
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
    with pytest.raises(RuntimeError, match="Acting failed: no such model"):
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


def test_actor_waits_longer_for_a_learner_that_is_not_ready_but_not_for_ever(stage):
    made = stage(connect_timeout=0.2, data_timeout=1.0)
    started = time.monotonic()
    with pytest.raises(errors.NoLearnerError, match=r"answers, but was not ready within \d+ s\."):
        made.actor.connect()
    assert 1.0 <= time.monotonic() - started < 10.0


@pytest.mark.parametrize("resumed", [False, True])
def test_actor_waits_for_weights_from_when_the_learner_is_ready(stage, monkeypatch, resumed):
    made = stage(connect_timeout=0.5)
    failures, pushes = [], [0]
    status = made.actor._connection.status
    monkeypatch.setattr(
        made.actor._connection, "status", lambda **a: status(**a)._replace(pushes=pushes[0])
    )
    if resumed:  # A resumed learner shows its card before it builds anything.
        made.connection.publish_card(77, 1, 0)

    def connect():
        try:
            made.actor.connect()
        except errors.NoLearnerError as error:
            failures.append(str(error))

    thread = threading.Thread(target=connect)
    thread.start()
    thread.join(1.5)  # The learner may be compiling kernels meanwhile.
    assert thread.is_alive()
    if not resumed:
        made.connection.publish_card(77, 1, 0)
    pushes[0] = 1
    thread.join(20)
    assert len(failures) == 1 and "no weights came within" in failures[0]


def test_actor_whose_learner_goes_when_it_opens_its_stream_does_not_hang(stage, monkeypatch):
    made = stage()
    made.publish(0)
    open_writer = made.actor._open_writer

    def too_late():
        made.server.stop()
        return open_writer()

    monkeypatch.setattr(made.actor, "_open_writer", too_late)
    with pytest.raises(errors.LearnerGoneError, match="does not answer"):
        made.actor.connect()
    assert made.actor._writer is None


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


def running(made):
    """Runs a stage's actor on a thread; returns the thread, and a list for its exit code."""
    made.publish(0)
    done = []
    thread = threading.Thread(target=lambda: done.append(made.actor.run()))
    thread.start()
    harness.poll(lambda: made.actor.loop.steps > 20)
    return thread, done


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


def test_actor_stopped_while_it_waits_for_the_learner_ends(stage, monkeypatch):
    monkeypatch.setattr(actor_process.cli, "on_stop_signals", lambda *_: None)
    monkeypatch.setattr(actor_process, "_HEALTH_PERIOD_S", 0.1)
    made = stage()
    thread, done = running(made)
    made.server.stop()
    harness.poll(lambda: made.actor._writer is None, what="the actor giving the server up")
    made.actor.stop()
    thread.join(10)
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


def test_actor_restarted_takes_no_weights_older_than_those_it_had(stage):
    made = stage()
    (made.folder / telemetry.EPISODES_CSV).write_text("seconds,unix_time,model_version\n1,2,7\n")
    again = actor_process.ActorProcess(
        dataclasses.replace(made.actor._config, restarts=1, connect_timeout=1.0)
    )
    made.connection.publish_card(77, 1, 0)
    made.publish(6)
    with pytest.raises(errors.NoLearnerError, match="no weights came"):
        again.connect()
    made.publish(7)
    assert again.connect()
    assert again._weights.version == 7


def test_actor_restarted_counts_on_where_its_logs_end(stage):
    made = stage()
    made.publish(1)
    assert made.actor.connect()
    made.actor.act(seconds=0.5)
    made.actor._end()
    before = telemetry.last_row(str(made.folder / telemetry.PHASES_CSV))
    assert before["actor_steps"] > 0 and before["pulls"] == 1 and before["insert_s"] > 0
    with open(made.folder / telemetry.EPISODES_CSV, "a", encoding="utf-8") as file:
        file.write(f"9,9,{before['actor_steps'] + 3:.0f},7000,1,1,1,1\n")  # Written after it.
    again = actor_process.ActorProcess(dataclasses.replace(made.actor._config, restarts=1))
    assert again.loop.steps == before["actor_steps"] + 3
    assert again.connect()
    again.act(seconds=0.5)
    again._end()
    after = telemetry.read_csv(str(made.folder / telemetry.PHASES_CSV))
    for name in ("actor_steps", "pulls", *telemetry.TIMED):
        assert np.all(np.diff(after[name]) >= 0), name
    assert after["pulls"][-1] == 2 and after["actor_steps"][-1] > before["actor_steps"] + 3
    episodes = telemetry.read_csv(str(made.folder / telemetry.EPISODES_CSV))["episodes"]
    assert np.all(np.diff(episodes) > 0) and episodes[-1] > 7000


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


def test_actor_that_lost_its_learner_writes_nothing_before_the_next_says_who_it_is(stage):
    made = stage()
    made.publish(0)
    made.connection.publish_card(77, 1, 0)
    assert made.actor.connect()
    made.server.stop()
    made.serve_again()
    made.actor._disconnect(errors.LearnerGoneError("gone."))
    failures = []

    def connect():
        try:
            made.actor.connect()
        except errors.UserError as error:
            failures.append(str(error))

    thread = threading.Thread(target=connect)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive() and made.actor._writer is None
    made.connection.publish_card(78, 1, 0)
    thread.join(20)
    assert "another run's" in failures[0] and made.actor._writer is None


def test_actor_long_period_pulls_nothing_in_between(stage, monkeypatch):
    monkeypatch.setattr(actor_process, "_HEALTH_PERIOD_S", 0.01)
    made = stage(actor_update_period=1_000_000)
    made.act(20)
    made.publish(8)
    made.act(300)
    # Meanwhile it may have asked for the learner's health several times.
    assert made.actor._weights.version == 0


def test_actor_restarted_does_not_repeat_itself(stage):
    first, again = stage(seed=1), stage(seed=1, restarts=1)
    starts = [s.actor.loop.lanes[0].environment.reset().observation for s in (first, again)]
    assert np.any(starts[0] != starts[1])


def test_actor_resumed_by_hand_does_not_repeat_itself(stage):
    first = stage(seed=1)
    first.act(60)
    first.actor._log_phases()
    again = stage(seed=1, resume=True, logpath=first.config.logpath)
    assert again.actor.loop.steps >= 60
    starts = [s.actor._seed("environment", 0) for s in (first, again)]
    assert starts[0] != starts[1]


def test_actor_seed_fixes_environment_and_noise(stage):
    first, same, other = (stage(seed=s) for s in (1, 1, 2))
    starts = [s.actor.loop.lanes[0].environment.reset().observation for s in (first, same, other)]
    np.testing.assert_array_equal(starts[0], starts[1])
    assert np.any(starts[0] != starts[2])
    zero = np.zeros(1, np.float32)
    noises = [s.actor.loop.lanes[0].explore(zero) for s in (first, same, other)]
    assert noises[0] == noises[1] != noises[2]


def test_actor_without_gpu_says_so_and_goes_on(stage, monkeypatch):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    lines = []
    monkeypatch.setattr(logging, "warning", lambda text, *_: lines.append(text))
    made = stage(actor_device_placement="GPU")
    assert any("goes on with the CPU" in line for line in lines)
    made.act(50)


def test_actor_inference_mode_tensorflow_acts(stage):
    made = stage(inference_mode="tensorflow", quantize=8)
    batch = made.act(60)
    assert np.all(np.abs(batch.action) <= 1)
    assert type(made.actor.infer).__name__ == "TensorFlowInference"


def test_actor_main_gives_torch_one_thread(monkeypatch):
    import torch

    config = config_lib.RunConfig(inference_mode="pytorch")
    before = torch.get_num_threads()
    seen = []

    class Actor:
        def __init__(self, given):
            assert given is config
            seen.append(torch.get_num_threads())

        def run(self):
            return 0

    monkeypatch.setattr(actor_main.config_flags, "from_flags", lambda: config)
    monkeypatch.setattr(actor_main.allocator, "keep_large_blocks", lambda: None)
    monkeypatch.setattr(actor_process, "ActorProcess", Actor)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")  # `main` sets it too; this undoes that.
    torch.set_num_threads(3)
    try:
        assert actor_main.main([]) == 0
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


@pytest.mark.parametrize(("mode", "threads"), [("tensorflow", "1"), ("native", None)])
def test_actor_gives_its_own_tensorflow_one_thread(monkeypatch, mode, threads):
    config = config_lib.RunConfig(inference_mode=mode)
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")
    seen = []

    class Actor:
        def __init__(self, given):
            assert given is config
            seen.extend(os.environ.get(name) for name in names)

        def run(self):
            return 0

    monkeypatch.setattr(os, "environ", {k: v for k, v in os.environ.items() if k not in names})
    monkeypatch.setattr(actor_main.config_flags, "from_flags", lambda: config)
    monkeypatch.setattr(actor_main.allocator, "keep_large_blocks", lambda: None)
    monkeypatch.setattr(actor_process, "ActorProcess", Actor)
    assert actor_main.main([]) == 0
    assert seen == [threads, threads]
