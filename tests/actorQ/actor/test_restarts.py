"""An actor goes on after its learner, or itself, was started again."""

import dataclasses
import threading
import time

import numpy as np
import pytest

from actorQ.actor import process as actor_process
from actorQ.core import errors
from actorQ.core import telemetry
from tests.actorQ import harness
from tests.actorQ.actor.stage import running


@pytest.mark.parametrize("n_step", [1, 3])
def test_actor_reconnects_drops_its_episode_and_keeps_its_weights(stage, monkeypatch, n_step):
    monkeypatch.setattr(actor_process, "_HEALTH_PERIOD_S", 0.1)
    made = stage(n_step=n_step, max_episode_steps=0, replay_table_max_replay_size=100_000)
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
