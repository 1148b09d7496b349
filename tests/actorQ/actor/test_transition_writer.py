"""The writer of transitions, on real tables."""

import time

import numpy as np
import pytest
import tensorflow as tf

from actorQ.actor import transition_writer
from actorQ.core import errors
from actorQ.environments import task_errors
from actorQ.wire import replay
from tests.actorQ import transitions as transitions_lib
from tests.actorQ.transitions import DISCRETE
from tests.actorQ.transitions import SPECS


def signature_of(layout):
    vector = tf.TensorSpec((layout.vector_size,), tf.float32)
    frames = tf.TensorSpec((2, *layout.observation_shape), tf.uint8)
    return (frames, vector) if layout.pixels else vector


def reward_of(item, layout):
    """Returns the reward of one item from its columns."""
    return item[-1][layout.observation_size + layout.action_size]


@pytest.mark.parametrize("block_size", [1, 2, 4, 20, None])
@pytest.mark.parametrize("name", list(SPECS))
def test_transition_writer_inserts_read_back_equal(serve, name, block_size):
    layout = replay.Layout.of(SPECS[name])
    client = serve(transitions_lib.fifo_table(signature_of(layout), "my_table"))
    rng = np.random.default_rng(2)
    transitions = [transitions_lib.random_transition(SPECS[name], rng) for _ in range(45)]
    writer = transition_writer.TransitionWriter(client, "my_table", layout, block_size=block_size)
    for transition in transitions:
        writer.write(transition)
    writer.close()
    # The items of a block have no order.
    order = np.argsort([transition.reward for transition in transitions])
    items = transitions_lib.take(client, 45, "my_table")
    items.sort(key=lambda item: reward_of(item, layout))
    columns = tuple(map(np.stack, zip(*items, strict=True)))
    assert len(columns) == (2 if layout.pixels else 1)
    data = columns if layout.pixels else columns[0]
    transitions_lib.assert_equal_batch(layout.unpack(data), [transitions[i] for i in order])


def test_transition_writer_items_have_priority_one(serve):
    layout = replay.Layout.of(DISCRETE)
    client = serve(transitions_lib.fifo_table(signature_of(layout), "my_table"))
    writer = transition_writer.TransitionWriter(client, "my_table", layout)
    writer.write(transitions_lib.random_transition(DISCRETE, np.random.default_rng(0)))
    writer.close()
    (item,) = client.sample("my_table", 1, emit_timesteps=False)
    assert item.info.priority == 1.0


@pytest.mark.parametrize("name", list(SPECS))
def test_last_transition_of_each_block_is_in_the_thinned_table_too(serve, name):
    layout = replay.Layout.of(SPECS[name])
    signature = signature_of(layout)
    client = serve(
        transitions_lib.fifo_table(signature, "my_table"),
        transitions_lib.fifo_table(signature, "thinned"),
    )
    writer = transition_writer.TransitionWriter(
        client, "my_table", layout, block_size=4, max_delay_s=60.0, thinned_table="thinned"
    )
    writer._sent_at = time.monotonic()  # No block leaves before it is full.
    rng = np.random.default_rng(2)
    rewards = []
    for _ in range(13):
        transition = transitions_lib.random_transition(SPECS[name], rng)
        rewards.append(transition.reward)
        writer.write(transition)
    writer.close()
    items = transitions_lib.take(client, 4, "thinned")
    assert [reward_of(item, layout) for item in items] == [rewards[i] for i in (3, 7, 11, 12)]
    assert len(transitions_lib.take(client, 13, "my_table")) == 13


def small_writer(serve, **settings):
    """Returns a writer, a function that writes a random transition, and one that counts items."""
    layout = replay.Layout.of(DISCRETE)
    client = serve(transitions_lib.fifo_table(signature_of(layout), "my_table"))
    writer = transition_writer.TransitionWriter(client, "my_table", layout, **settings)
    rng = np.random.default_rng(0)

    def write():
        writer.write(transitions_lib.random_transition(DISCRETE, rng))

    return writer, write, lambda: client.server_info()["my_table"].current_size


def wait_in_vain(unconfirmed, timeout_ms):
    """Behaves like Reverb's `flush` if the server confirms nothing."""
    time.sleep(timeout_ms / 1000)
    raise RuntimeError("Timeout exceeded")


def test_transition_writer_whose_check_outlasts_the_deadline_does_not_wait_for_ever(
    serve, monkeypatch
):
    limits = []

    def check():
        time.sleep(0.3)

    def flush(unconfirmed, timeout_ms):
        limits.append(timeout_ms)
        wait_in_vain(unconfirmed, timeout_ms)

    writer, write, _ = small_writer(serve, check=check)
    write()
    monkeypatch.setattr(transition_writer, "_CHECK_PERIOD_S", 0.05)
    monkeypatch.setattr(writer._writer, "flush", flush)
    with pytest.raises(errors.LearnerGoneError, match="did not confirm transitions within 0.2 s"):
        writer.flush(0.2)
    assert limits and min(limits) >= 1  # Reverb takes 0 ms for no limit.


def test_transition_writer_is_never_far_behind(serve):
    writer, write, count = small_writer(serve, block_size=5, max_delay_s=1000.0)
    for written in range(1, 31):
        write()
        # One block gathers, and the confirmation of the one before is under way.
        assert written - count() <= 9
    writer.flush()
    assert count() == 30
    writer.close()


def test_transition_writer_sends_a_block_that_is_not_full_when_its_time_is_over(
    serve, monkeypatch
):
    now = [50.0]
    monkeypatch.setattr(transition_writer.time, "monotonic", lambda: now[0])
    _, write, count = small_writer(serve, block_size=100, max_delay_s=0.1)
    write()
    assert count() == 1  # The first transition is sent at once.
    for _ in range(3):
        now[0] += 0.03
        write()
    assert count() == 1
    now[0] += 0.03
    write()
    assert count() == 5
    for sent in (6, 7):  # A slow actor writes one transition a second.
        now[0] += 1.0
        write()
        assert count() == sent


def test_transition_writer_close_sends_what_is_left(serve):
    writer, write, count = small_writer(serve, block_size=100, max_delay_s=1000.0)
    for _ in range(11):
        write()
    writer.close()
    assert count() == 11


def test_transition_writer_checks_on_the_server_during_a_long_wait(serve, monkeypatch):
    class Gone(Exception):
        pass

    def check():
        raise Gone

    monkeypatch.setattr(transition_writer, "_CHECK_PERIOD_S", 0.01)
    writer, write, _ = small_writer(serve, block_size=1, max_delay_s=1000.0, check=check)
    write()

    monkeypatch.setattr(writer._writer, "flush", wait_in_vain)
    with pytest.raises(Gone):
        write()


def test_transition_writer_gives_up_in_time_a_server_that_answers(serve, monkeypatch):
    checks = []
    monkeypatch.setattr(transition_writer, "_CHECK_PERIOD_S", 0.01)
    writer, write, _ = small_writer(
        serve, block_size=1, max_delay_s=1000.0, timeout_s=0.05, check=lambda: checks.append(1)
    )
    write()
    monkeypatch.setattr(writer._writer, "flush", wait_in_vain)
    with pytest.raises(errors.LearnerGoneError, match=r"within 0\.05 s: .*--transfer_timeout"):
        write()
    assert checks
    with pytest.raises(errors.LearnerGoneError, match=r"within 0\.02 s\.$"):
        writer.flush(0.02)


@pytest.mark.parametrize("name", ["vector", "pixels"])
def test_transition_writer_sends_no_block_with_what_is_not_finite(serve, name):
    layout, rng = replay.Layout.of(SPECS[name]), np.random.default_rng(0)
    client = serve(transitions_lib.fifo_table(signature_of(layout), "my_table"))
    writer = transition_writer.TransitionWriter(
        client, "my_table", layout, block_size=3, max_delay_s=1000.0
    )
    for _ in range(3):  # The first transition is sent at once.
        writer.write(transitions_lib.random_transition(SPECS[name], rng))
    with np.errstate(over="ignore"), pytest.raises(task_errors.TaskError, match="a return"):
        writer.write(transitions_lib.random_transition(SPECS[name], rng)._replace(reward=1e39))
    assert client.server_info()["my_table"].current_size == 1


def test_transition_writer_wrong_shape_fails_at_once(serve):
    client = serve(transitions_lib.fifo_table(tf.TensorSpec((99,), tf.float32), "my_table"))
    writer = transition_writer.TransitionWriter(
        client, "my_table", replay.Layout.of(DISCRETE), block_size=1
    )
    with pytest.raises(ValueError, match="inconsistent with the table signature"):
        writer.write(transitions_lib.random_transition(DISCRETE, np.random.default_rng(0)))
