"""Pushes of weights: one at a time, the newest wins, failures surface."""

import threading

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from actorQ.core import errors
from actorQ.learner import publisher as publisher_lib
from actorQ.policy import forms
from actorQ.policy import model_update
from actorQ.wire import messages
from tests.actorQ import harness


class _SlowConnection:
    """Stands in for a server whose inserts take until the test lets them go."""

    def __init__(self):
        self.published = []
        self.started = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.error = None

    def publish(self, table, message):
        self.started.release()
        assert self.go.acquire(timeout=10)
        if self.error:
            raise self.error
        self.published.append((table, messages.decode(*message)))


def _publisher(connection, period_s=0.0, precision="float32", share=0.0):
    variable = tf.Variable([1.0, 2.0])
    publisher = publisher_lib.VariablePublisher(
        {"l/b": variable}, connection, "box", period_s, precision, share
    )
    return variable, publisher


def test_publisher_one_push_in_flight_and_a_snapshot_of_one_step():
    connection = _SlowConnection()
    variable, publisher = _publisher(connection)
    assert publisher.publish(1)
    assert connection.started.acquire(timeout=10)
    variable.assign([3.0, 4.0])
    # The first push is still under way: the learner goes on at once.
    assert not publisher.publish(2)
    connection.go.release(2)
    publisher.publish(3, wait=True)
    versions = [update.version for _, update in connection.published]
    assert versions == [1, 3]
    first, second = (update.tensors["l/b"] for _, update in connection.published)
    np.testing.assert_array_equal(first, [1.0, 2.0])
    np.testing.assert_array_equal(second, [3.0, 4.0])
    assert connection.published[0][1].scheme == forms.LEARNER_SCHEME
    assert (publisher.pushes, publisher.version) == (2, 3)


def test_publisher_waits_for_its_period():
    connection = _SlowConnection()
    connection.go.release(10)
    _, publisher = _publisher(connection, period_s=1000.0)
    publisher.publish(0, wait=True)
    assert not publisher.publish(1)
    assert publisher.pushes == 1


def test_publisher_failure_is_raised_on_the_learners_thread():
    connection = _SlowConnection()
    connection.error = RuntimeError("server gone")
    connection.go.release(10)
    _, publisher = _publisher(connection)
    with pytest.raises(RuntimeError, match="server gone"):
        publisher.publish(0, wait=True)
    with pytest.raises(RuntimeError, match="server gone"):
        publisher.publish(1)


def test_publisher_bfloat16_halves_the_bytes_and_rounds_to_nearest_even():
    connection = _SlowConnection()
    connection.go.release(10)
    variable, publisher = _publisher(connection, precision="bfloat16")
    # Halves between neighbours 2^-7 apart go to the even one. The others are exact in bfloat16.
    variable.assign([1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8])
    publisher.publish(0, wait=True)
    ((_, update),) = connection.published
    arrived = model_update.to_float32(update.tensors["l/b"])
    np.testing.assert_array_equal(arrived, [1.0, 1.0 + 2.0**-6])
    assert update.scheme == forms.LEARNER_SCHEME


def test_publisher_weights_not_finite_are_refused():
    for precision in ("float32", "bfloat16"):
        connection = _SlowConnection()
        connection.go.release(10)
        variable, publisher = _publisher(connection, precision=precision)
        variable.assign([1.0, float("nan")])
        with pytest.raises(ValueError, match="l/b.*NaN or infinity"):
            publisher.publish(0, wait=True)
        assert not connection.published


class _CountingVariable:
    """Fails the test when a snapshot copies."""

    def __init__(self, variable):
        self._variable = variable
        self.reads = 0

    def read_value(self):
        self.reads += 1
        return self._variable.read_value()


@pytest.mark.parametrize("update", ["optimizer", "assign", "assign_sub"])
def test_publisher_snapshot_is_of_one_step_whatever_the_learner_does_meanwhile(update):
    """The snapshot shares TensorFlow's buffers, which later steps must not write to."""
    variable = tf.Variable(np.arange(1000, dtype=np.float32).reshape(10, 100))
    optimizer = snt.optimizers.Adam(0.1)

    @tf.function(autograph=False)
    def learn():
        if update == "optimizer":
            optimizer.apply([tf.ones_like(variable)], [variable])
        elif update == "assign":
            variable.assign(variable * 2.0 + 1.0)
        else:
            variable.assign_sub(tf.ones_like(variable))

    learn()
    expected = variable.numpy()
    counted, connection = _CountingVariable(variable), _SlowConnection()
    publisher = publisher_lib.VariablePublisher({"l/w": counted}, connection, "box", 0.0)
    # The background thread stands still with the snapshot in its hands.
    encode, at_encode, go = messages.encode, threading.Event(), threading.Event()

    def slow_encode(update):
        at_encode.set()
        assert go.wait(10)
        return encode(update)

    publisher_lib.messages.encode = slow_encode
    try:
        publisher.publish(1)
        assert at_encode.wait(10)
        for _ in range(5):
            learn()
        assert np.any(variable.numpy() != expected)
        go.set()
        assert connection.started.acquire(timeout=10)
    finally:
        publisher_lib.messages.encode = encode
    connection.go.release()
    harness.poll(lambda: connection.published, 10, 0.001)
    np.testing.assert_array_equal(connection.published[0][1].tensors["l/w"], expected)
    assert counted.reads == 1


@pytest.fixture(name="timed")
def _timed(monkeypatch):
    """Returns a publisher whose pushes take `cost[0]` seconds of `clock[0]`, on two cores."""
    monkeypatch.setattr(publisher_lib.provenance, "usable_cores", lambda: 2)
    connection = _SlowConnection()
    connection.go.release(20)
    publish = connection.publish
    clock, cost = [100.0], [0.1]
    monkeypatch.setattr(publisher_lib.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(publisher_lib.time, "perf_counter", lambda: clock[0])

    def publish_for_a_while(table, message):
        clock[0] += cost[0]
        publish(table, message)

    connection.publish = publish_for_a_while
    return connection, clock, cost


def test_publisher_spaces_pushes_that_cost_much(timed):
    connection, clock, _ = timed
    _, publisher = _publisher(connection, period_s=0.5, share=0.02)
    publisher.publish(0, wait=True)
    publisher.publish(1, wait=True)
    # A push takes 0.1 s, and half as much for the server: 2 % of two cores in 3.75 s.
    clock[0] = publisher.last_push + 3.7
    assert not publisher.publish(2)
    clock[0] = publisher.last_push + 3.8
    assert publisher.publish(3)
    # A period of zero asks for every step, and a share of zero for every period.
    _, eager = _publisher(connection, period_s=0.0, share=0.02)
    eager.publish(0, wait=True)
    assert eager.publish(1)
    _, unlimited = _publisher(connection, period_s=0.5)
    unlimited.publish(0, wait=True)
    clock[0] += 0.5
    assert unlimited.publish(1)


def test_publisher_first_push_beside_starting_processes_spaces_nothing(timed):
    connection, clock, cost = timed
    _, publisher = _publisher(connection, period_s=0.5, share=0.02)
    cost[0] = 0.8  # This price alone would mean 30 s.
    publisher.publish(0, wait=True)
    cost[0] = 0.1
    clock[0] = publisher.last_push + 0.4
    assert not publisher.publish(1)
    clock[0] = publisher.last_push + 0.9
    publisher.publish(1, wait=True)
    clock[0] = publisher.last_push + 3.7
    assert not publisher.publish(2)
    clock[0] = publisher.last_push + 3.8
    assert publisher.publish(3)


def test_publisher_takes_a_push_for_as_dear_as_the_cheapest_of_late(timed):
    # One push that shared its core must not keep actors on old weights for a minute.
    connection, clock, cost = timed
    _, publisher = _publisher(connection, period_s=0.5, share=0.02)
    for step in (0, 0.5):
        publisher.publish(step, wait=True)
    cost[0] = 2.0
    start = clock[0] = 110.0
    publisher.publish(1, wait=True)
    clock[0] = start + 3.7
    assert not publisher.publish(2)
    clock[0] = start + 3.8
    assert publisher.publish(3)
    for step in range(4, 8):  # A price that stays high does count.
        publisher.publish(step, wait=True)
    clock[0] = publisher.last_push + 74.0
    assert not publisher.publish(8)
    clock[0] = publisher.last_push + 76.0
    assert publisher.publish(9)


def test_publisher_a_push_that_was_not_sent_says_nothing_of_what_pushes_cost(timed):
    connection, clock, cost = timed
    _, publisher = _publisher(connection, period_s=0.5, share=0.02)
    for step in (0, 0.5):
        publisher.publish(step, wait=True)
    cost[0] = 0.0
    connection.error = errors.WriteError("no space")
    clock[0] = 110.0
    publisher.publish(1, wait=True)
    clock[0] = publisher.last_push + 3.7
    assert not publisher.publish(2)
    clock[0] = publisher.last_push + 3.8
    assert publisher.publish(3)
    publisher.publish(4, wait=True)  # Its thread would warn while another test runs.
