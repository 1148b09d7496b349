"""Pushing weights: one in flight, the newest wins, failures surface."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from actorQ import conversion
from actorQ import messages
from actorQ import publishing


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


def _publisher(connection, period_s=0.0):
    variable = tf.Variable([1.0, 2.0])
    return variable, publishing.VariablePublisher({"l/b": variable}, connection, "box", period_s)


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
    assert connection.published[0][1].scheme == conversion.LEARNER_SCHEME
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
