"""Tests `actorQ.wire.replay`: n-step sums against Acme's adder, the layout, and a real server."""

import itertools
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from actorQ.environments import base
from actorQ.environments import task_errors

from actorQ.learner import acme_compat  # isort: skip  # noqa: F401  (must come before acme)
from acme import specs
from acme.adders import reverb as adders
import dm_env
import numpy as np
import pytest
import reverb
import tensorflow as tf

from actorQ.actor import n_step_returns
from actorQ.actor import transition_writer
from actorQ.core import errors
from actorQ.wire import replay

TABLE = adders.DEFAULT_PRIORITY_TABLE


def fifo_table(signature, name=TABLE):
    """A table whose samples come in the order of inserts, each one once."""
    return reverb.Table(
        name, reverb.selectors.Fifo(), reverb.selectors.Fifo(), max_size=10_000,
        max_times_sampled=1, rate_limiter=reverb.rate_limiters.MinSize(1), signature=signature,
    )


@pytest.fixture
def serve():
    """Starts servers with given tables; returns clients."""
    servers = []

    def start(*tables):
        servers.append(reverb.Server(list(tables), port=None))
        return reverb.Client(f"localhost:{servers[-1].port}")

    yield start
    for server in servers:
        server.stop()


def take(client, count, table=TABLE):
    """Returns the columns of the `count` items of a table, and checks that there are no more."""
    assert client.server_info()[table].current_size == count
    return [item.data for item in client.sample(table, count, emit_timesteps=False)]


def random_episode(rng, length, end_discount):
    """Observations o_0 ... o_T and steps (action, reward, discount), all float32."""
    observations = rng.normal(size=(length + 1, 3)).astype(np.float32)
    discounts = np.ones(length, np.float32)
    if rng.random() < 0.5:  # Some environments discount on their own.
        discounts = rng.uniform(0.5, 1.0, length).astype(np.float32)
    discounts[-1] = end_discount
    actions = rng.normal(size=(length, 2)).astype(np.float32)
    rewards = (10 * rng.normal(size=length)).astype(np.float32)
    return observations, actions, rewards, discounts


def accumulate(accumulator, episode):
    """Feeds an episode; returns, for each step, the transitions that it completed."""
    observations, actions, rewards, discounts = episode
    accumulator.first(observations[0])
    return [
        accumulator.step(
            actions[t], float(rewards[t]), float(discounts[t]), observations[t + 1],
            t == len(rewards) - 1,
        )
        for t in range(len(rewards))
    ]


@pytest.mark.parametrize("n_step", [1, 3, 5])
def test_n_step_accumulator_equals_acmes_adder_bit_for_bit(serve, n_step):
    spec = specs.EnvironmentSpec(
        observations=specs.Array((3,), np.float32),
        actions=specs.Array((2,), np.float32),
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0.0, 1.0),
    )
    client = serve(fifo_table(adders.NStepTransitionAdder.signature(spec)))
    adder = adders.NStepTransitionAdder(client, n_step=n_step, discount=0.97)
    accumulator = n_step_returns.NStepAccumulator(n_step, 0.97)
    rng = np.random.default_rng(n_step)
    for length, end_discount in itertools.product((1, 2, 3, 4, 5, 6, 7, 23), (0.0, 1.0)):
        observations, actions, rewards, discounts = episode = random_episode(
            rng, length, end_discount
        )
        ours = sum(accumulate(accumulator, episode), [])
        assert len(ours) == length  # Exactly one transition for each environment step.
        adder.add_first(dm_env.restart(observations[0]))
        for t in range(length):
            kind = dm_env.StepType.LAST if t == length - 1 else dm_env.StepType.MID
            adder.add(
                actions[t], dm_env.TimeStep(kind, rewards[t], discounts[t], observations[t + 1])
            )
        # Acme also emits the windows [0, 1], [0, 2], ... that are shorter than n because the
        # episode has only begun; ours has a single one for each first step, of full length.
        beginning = min(n_step, length) - 1
        theirs = take(client, length + beginning)
        for data, transition in zip(theirs[beginning:], ours, strict=True):
            for name, got, by_acme in zip(replay.Transition._fields, transition, data, strict=True):
                assert np.asarray(got).dtype == by_acme.dtype == np.float32
                assert np.asarray(got).tobytes() == by_acme.tobytes(), (name, length)


def test_n_step_accumulator_hand_computed_returns():
    accumulator = n_step_returns.NStepAccumulator(3, 0.5)
    rewards, length = [1.0, 2.0, 4.0, 8.0, 16.0], 5
    observations = [np.float32([t]) for t in range(length + 1)]
    accumulator.first(observations[0])
    complete = [
        accumulator.step(t, rewards[t], 0.0 if t == 4 else 1.0, observations[t + 1], t == 4)
        for t in range(length)
    ]
    assert [len(transitions) for transitions in complete] == [0, 0, 1, 1, 3]
    table = [
        (float(t.observation[0]), t.action, float(t.reward), float(t.discount),
         float(t.next_observation[0]))
        for transitions in complete for t in transitions
    ]
    assert table == [
        (0.0, 0, 1 + 2 / 2 + 4 / 4, 0.25, 3.0),
        (1.0, 1, 2 + 4 / 2 + 8 / 4, 0.25, 4.0),
        (2.0, 2, 4 + 8 / 2 + 16 / 4, 0.0, 5.0),
        (3.0, 3, 8 + 16 / 2, 0.0, 5.0),
        (4.0, 4, 16.0, 0.0, 5.0),
    ]


def test_n_step_accumulator_time_limit_keeps_the_discount():
    accumulator = n_step_returns.NStepAccumulator(3, 0.5)
    accumulator.first(np.zeros(1))
    accumulator.step(0, 1.0, 1.0, np.zeros(1), False)
    rest = accumulator.step(0, 1.0, 1.0, np.zeros(1), True)
    # Windows of 2 and 1 steps: g^(n-1) times ones, never 0.
    assert [float(t.discount) for t in rest] == [0.5, 1.0]
    assert [float(t.reward) for t in rest] == [1.5, 1.0]


def test_n_step_accumulator_environments_discount_weighs_later_rewards():
    accumulator = n_step_returns.NStepAccumulator(2, 0.5)
    accumulator.first(np.zeros(1))
    accumulator.step(0, 1.0, 0.25, np.zeros(1), False)
    (transition,) = accumulator.step(0, 8.0, 0.5, np.zeros(1), False)
    assert float(transition.reward) == 1 + 0.5 * 0.25 * 8
    assert float(transition.discount) == 0.5 * 0.25 * 0.5


def test_n_step_accumulator_first_forgets_an_unfinished_episode():
    accumulator = n_step_returns.NStepAccumulator(2, 1.0)
    accumulator.first(np.float32([1]))
    accumulator.step(0, 100.0, 1.0, np.float32([2]), False)
    accumulator.first(np.float32([7]))
    assert accumulator.step(0, 1.0, 1.0, np.float32([8]), False) == []
    (transition,) = accumulator.step(0, 2.0, 1.0, np.float32([9]), False)
    assert (transition.observation[0], transition.reward) == (7.0, 3.0)


# --- Layout ---

VECTOR = base.EnvironmentSpec(
    (3,), np.dtype(np.float32), None, np.full(2, -1, np.float32), np.full(2, 1, np.float32)
)
DISCRETE = base.EnvironmentSpec((3,), np.dtype(np.float32), num_actions=4)
PIXELS = base.EnvironmentSpec((6, 5, 2), np.dtype(np.uint8), num_actions=4)
PIXELS_CONTINUOUS = base.EnvironmentSpec(
    (6, 5, 2), np.dtype(np.uint8), None, np.full(2, -1, np.float32), np.full(2, 1, np.float32)
)
SPECS = {"vector": VECTOR, "discrete": DISCRETE, "pixels": PIXELS,
         "pixels_continuous": PIXELS_CONTINUOUS}


def random_transition(spec, rng):
    shape = spec.observation_shape
    if spec.observation_dtype == np.uint8:
        observations = rng.integers(0, 256, (2, *shape), np.uint8)
    else:
        observations = rng.normal(size=(2, *shape)).astype(np.float32)
    action = (
        int(rng.integers(spec.num_actions)) if spec.discrete
        else rng.normal(size=spec.action_size).astype(np.float32)
    )
    reward, discount = rng.normal(size=2).astype(np.float32)
    return replay.Transition(observations[0], action, reward, discount, observations[1])


def assert_equal_batch(batch, transitions):
    """Compares an unpacked batch with the transitions it was packed from, bit for bit."""
    for name in replay.Transition._fields:
        expected = np.stack([np.asarray(getattr(t, name)) for t in transitions])
        np.testing.assert_array_equal(np.asarray(getattr(batch, name)), expected)


def test_layout_vector_order_is_as_documented():
    layout = replay.Layout.of(VECTOR)
    packed = layout.pack(
        replay.Transition(np.float32([1, 2, 3]), np.float32([4, 5]), 6.0, 7.0,
                          np.float32([8, 9, 10]))
    )
    assert packed.dtype == np.float32
    assert packed.tolist() == list(range(1, 11))
    assert layout.vector_size == 10


def test_layout_pixels_keep_their_bytes():
    layout = replay.Layout.of(PIXELS)
    transition = random_transition(PIXELS, np.random.default_rng(0))
    frames, vector = layout.pack(transition)
    assert frames.dtype == np.uint8
    assert frames.shape == (2, 6, 5, 2)
    assert vector.tolist() == [transition.action, transition.reward, transition.discount]
    assert (layout.observation_size, layout.vector_size) == (0, 3)


@pytest.mark.parametrize("name", list(SPECS))
@pytest.mark.parametrize("as_tensors", [False, True])
def test_layout_unpack_undoes_pack(name, as_tensors):
    layout = replay.Layout.of(SPECS[name])
    rng = np.random.default_rng(1)
    transitions = [random_transition(SPECS[name], rng) for _ in range(5)]
    packed = [layout.pack(transition) for transition in transitions]
    stack = tf.stack if as_tensors else np.stack
    data = tuple(map(stack, zip(*packed, strict=True))) if layout.pixels else stack(packed)
    assert_equal_batch(layout.unpack(data), transitions)


def test_layout_large_discrete_action_is_exact():
    spec = base.EnvironmentSpec((1,), np.dtype(np.float32), num_actions=2**24)
    layout = replay.Layout.of(spec)
    packed = layout.pack(
        replay.Transition(np.zeros(1), 2**24 - 1, 0.0, 0.0, np.zeros(1))
    )
    assert int(layout.unpack(packed[None]).action[0]) == 2**24 - 1


@pytest.mark.parametrize(
    ("part", "name"),
    [("observation", "an observation"), ("action", "an action"), ("reward", "a return"),
     ("discount", "a discount"), ("next_observation", "a next observation")],
)
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_layout_names_the_first_part_that_is_not_finite(part, name, number):
    layout, rng = replay.Layout.of(VECTOR), np.random.default_rng(1)
    transitions = [random_transition(VECTOR, rng) for _ in range(4)]
    layout.require_finite(np.stack([layout.pack(transition) for transition in transitions]))
    for at, what in ((1, part), (3, "observation")):
        value = number * getattr(transitions[at], what)
        transitions[at] = transitions[at]._replace(**{what: value})
    with pytest.raises(task_errors.TaskError, match=f"a transition has {name}"):
        layout.require_finite(np.stack([layout.pack(transition) for transition in transitions]))


# --- The writer ---


def signature_of(layout):
    vector = tf.TensorSpec((layout.vector_size,), tf.float32)
    frames = tf.TensorSpec((2, *layout.observation_shape), tf.uint8)
    return (frames, vector) if layout.pixels else vector


def reward_of(item, layout):
    """The reward in the columns of one item, which are float32 numbers without ties."""
    return item[-1][layout.observation_size + layout.action_size]


@pytest.mark.parametrize("block_size", [1, 2, 4, 20, None])
@pytest.mark.parametrize("name", list(SPECS))
def test_transition_writer_inserts_read_back_equal(serve, name, block_size):
    layout = replay.Layout.of(SPECS[name])
    client = serve(fifo_table(signature_of(layout), "my_table"))
    rng = np.random.default_rng(2)
    transitions = [random_transition(SPECS[name], rng) for _ in range(45)]
    writer = transition_writer.TransitionWriter(client, "my_table", layout, block_size=block_size)
    for transition in transitions:
        writer.write(transition)
    writer.close()
    # A block's items are in no order of their own.
    order = np.argsort([transition.reward for transition in transitions])
    items = sorted(take(client, 45, "my_table"), key=lambda item: reward_of(item, layout))
    columns = tuple(map(np.stack, zip(*items, strict=True)))
    assert len(columns) == (2 if layout.pixels else 1)
    data = columns if layout.pixels else columns[0]
    assert_equal_batch(layout.unpack(data), [transitions[i] for i in order])


def test_transition_writer_items_have_priority_one(serve):
    layout = replay.Layout.of(DISCRETE)
    client = serve(fifo_table(signature_of(layout), "my_table"))
    writer = transition_writer.TransitionWriter(client, "my_table", layout)
    writer.write(random_transition(DISCRETE, np.random.default_rng(0)))
    writer.close()
    (item,) = client.sample("my_table", 1, emit_timesteps=False)
    assert item.info.priority == 1.0


def small_writer(serve, **settings):
    """A writer, a function that writes one random transition, and one that counts the table."""
    layout = replay.Layout.of(DISCRETE)
    client = serve(fifo_table(signature_of(layout), "my_table"))
    writer = transition_writer.TransitionWriter(client, "my_table", layout, **settings)
    rng = np.random.default_rng(0)

    def write():
        writer.write(random_transition(DISCRETE, rng))

    return writer, write, lambda: client.server_info()["my_table"].current_size


def wait_in_vain(unconfirmed, timeout_ms):
    """As Reverb's `flush` where the server confirms nothing."""
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
        # The block that gathers, and the one before it, whose confirmation is under way.
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
    assert count() == 1  # The first one goes at once.
    for _ in range(3):
        now[0] += 0.03
        write()
    assert count() == 1
    now[0] += 0.03
    write()
    assert count() == 5
    for sent in (6, 7):  # A slow actor: one transition a second.
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
    client = serve(fifo_table(signature_of(layout), "my_table"))
    writer = transition_writer.TransitionWriter(
        client, "my_table", layout, block_size=3, max_delay_s=1000.0
    )
    for _ in range(3):  # The first one goes at once.
        writer.write(random_transition(SPECS[name], rng))
    with np.errstate(over="ignore"), pytest.raises(task_errors.TaskError, match="a return"):
        writer.write(random_transition(SPECS[name], rng)._replace(reward=1e39))
    assert client.server_info()["my_table"].current_size == 1


def test_transition_writer_wrong_shape_fails_at_once(serve):
    client = serve(fifo_table(tf.TensorSpec((99,), tf.float32), "my_table"))
    writer = transition_writer.TransitionWriter(
        client, "my_table", replay.Layout.of(DISCRETE), block_size=1
    )
    with pytest.raises(ValueError, match="inconsistent with the table signature"):
        writer.write(random_transition(DISCRETE, np.random.default_rng(0)))
