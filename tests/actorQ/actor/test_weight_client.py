"""The actor's weights: when they are transferred and loaded, and on which thread."""

import threading

import numpy as np
import pytest

from actorQ.actor import weight_client as weight_client_lib
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.wire import connection as connection_lib
from actorQ.wire import messages
from tests.actorQ import harness

ARCHITECTURE = architecture_lib.PolicyArchitecture((3,), (4,), 1, architecture_lib.TANH_HEAD)


def make_weights(value):
    return {
        name: np.full(shape, value, np.float32)
        for name, shape in ARCHITECTURE.parameter_shapes.items()
    }


class FakeConnection:
    """A model table that the test fills; it counts transfers."""

    def __init__(self):
        self.published = 0
        self.sampled = 0
        self.message = None
        self.fetches = 0
        self.looks = 0

    def put(self, version, quantize=32, architecture_weights=None):
        weights = architecture_weights or make_weights(version)
        update = forms.to_actor_form(weights, version, quantize)
        self.message = messages.encode(update)
        self.published += 1

    def status(self):
        self.looks += 1
        return connection_lib.ServerStatus(self.published, 0, 0, 0, self.sampled, False, 0, 1, 1, 0)

    def fetch(self, table):
        assert table == "model_table"
        self.fetches += 1
        return self.message


class FakeBackend:
    def __init__(self):
        self.loaded = []

    def prepare(self, tensors):
        self.prepared_by = threading.current_thread()
        return tensors["head.bias"][0]

    def load(self, prepared):
        self.loaded_by = threading.current_thread()
        self.loaded.append(float(prepared))


@pytest.fixture
def parts():
    connection, backend = FakeConnection(), FakeBackend()
    config = config_lib.RunConfig(quantize=32, batch_size=10)
    client = weight_client_lib.WeightClient(
        connection, config, ARCHITECTURE, backend, telemetry.no_seconds()
    )
    return connection, backend, client


def test_weight_client_transfers_only_what_is_newer(parts):
    connection, backend, client = parts
    client.update()
    assert (connection.fetches, client.version) == (0, -1)
    connection.put(3)
    for _ in range(5):
        client.update()
    assert (connection.fetches, client.version, backend.loaded) == (1, 3, [3.0])
    connection.put(8)
    client.update()
    assert (connection.fetches, client.version, backend.loaded) == (2, 8, [3.0, 8.0])
    assert client.pulls == 2


def test_weight_client_staleness_counts_learner_steps(parts):
    connection, _, client = parts
    connection.put(5)
    connection.sampled = 70  # These are seven batches of ten.
    client.update()
    assert client.staleness == 2
    connection.sampled = 120
    client.update()
    assert client.staleness == 7
    connection.put(12)
    client.update()
    assert client.staleness == 0
    # The values before and after each look are (-, 2), (7) and (7, 0).
    assert client.mean_staleness() == pytest.approx((2 + 7 + 7 + 0) / 4)


def test_weight_client_message_between_two_looks_is_loaded_once(parts):
    connection, backend, client = parts
    connection.put(3)
    fetch = connection.fetch

    def fetch_while_a_newer_one_arrives(table):
        connection.put(4)
        connection.fetch = fetch
        return fetch(table)

    connection.fetch = fetch_while_a_newer_one_arrives
    client.update()
    assert (client.version, client.pulls) == (4, 1)
    client.update()
    assert (client.version, client.pulls, backend.loaded) == (4, 1, [4.0])


def test_weight_client_refuses_other_models_and_schemes(parts):
    connection, backend, client = parts
    connection.put(1, quantize=8)
    with pytest.raises(errors.MessageError, match="--quantize"):
        client.update()
    other = {"head.weight": np.zeros((1, 3), np.float32), "head.bias": np.zeros(1, np.float32)}
    connection.put(1, architecture_weights=other)
    with pytest.raises(errors.MessageError, match="--model_str"):
        client.update()
    assert not backend.loaded


def collect(client):
    """Waits for the look under way and takes its result, as an actor would between two steps."""
    harness.poll(lambda: client.ready, 10, 0.001)
    return client.collect()


def test_weight_client_look_transfers_beside_the_steps_only_what_is_newer(parts):
    connection, backend, client = parts
    for _ in range(3):
        client.ask()
        assert not collect(client)
    assert (connection.looks, connection.fetches, client.version) == (3, 0, -1)
    connection.put(3)
    for _ in range(3):
        client.ask()
        assert not collect(client)
    assert (connection.fetches, client.version, backend.loaded) == (1, 3, [3.0])
    # Steps go on during everything but the swap.
    assert backend.prepared_by is not threading.current_thread()
    assert backend.loaded_by is threading.current_thread()


def test_weight_client_takes_again_over_another_connection_what_was_not_loaded(parts):
    connection, backend, client = parts
    connection.put(3)
    client.ask()
    harness.poll(lambda: client.ready, 10, 0.001)
    client.use(connection, stop=lambda: False)  # The learner did not answer for a while.
    client.update()
    assert (client.version, backend.loaded) == (3, [3.0])


def test_weight_client_at_most_one_look_in_flight_and_nothing_loaded_unasked(parts):
    connection, backend, client = parts
    connection.put(3)
    started, go = threading.Event(), threading.Event()
    fetch = connection.fetch

    def slow_fetch(table):
        started.set()
        assert go.wait(10)
        return fetch(table)

    connection.fetch = slow_fetch
    client.ask()
    assert started.wait(10)
    for _ in range(5):
        client.ask()
        assert not client.ready
    with pytest.raises(RuntimeError, match="A look is under way"):
        client.update()
    go.set()
    harness.poll(lambda: client.ready, 10, 0.001)
    client.ask()  # A result waits, so no new look begins.
    assert (connection.looks, connection.fetches, backend.loaded) == (1, 1, [])
    client.collect()
    assert (client.version, backend.loaded, client.ready) == (3, [3.0], False)
    client.ask()
    collect(client)
    assert connection.looks == 2


@pytest.mark.parametrize("error", [errors.LearnerGoneError("gone"), ValueError("a bug")])
def test_weight_client_error_of_the_thread_is_raised_on_the_actors(parts, error):
    connection, _, client = parts

    def status():
        raise error

    working, connection.status = connection.status, status
    client.ask()
    with pytest.raises(type(error), match=str(error)):
        collect(client)
    # The thread lives on.
    connection.status = working
    connection.put(2)
    client.ask()
    collect(client)
    assert client.version == 2


def test_weight_client_message_of_another_model_is_raised_on_the_actors_thread(parts):
    connection, backend, client = parts
    connection.put(1, quantize=8)
    client.ask()
    with pytest.raises(errors.MessageError, match="--quantize"):
        collect(client)
    connection.put(2)
    header, blob = connection.message
    damaged = blob.copy()
    damaged[-1] ^= 1
    connection.message = (header, damaged)
    client.ask()
    with pytest.raises(errors.MessageError, match="checksum"):
        collect(client)
    assert client.version == -1 and not backend.loaded


def test_weight_client_bad_message_after_good_ones_is_refused_and_counted(parts, caplog):
    connection, backend, client = parts
    connection.put(2)
    client.update()
    connection.put(3)
    good = connection.message
    header, blob = good
    connection.message = (header, np.append(blob, np.uint8(0)))
    for _ in range(2):
        client.ask()
        assert not collect(client)
    # The message is looked at once, and the weights in use stay.
    assert (client.refused, client.version, backend.loaded) == (1, 2, [2.0])
    assert "checksum" in caplog.text and "goes on with version 2" in caplog.text
    connection.put(4, quantize=8)  # The message is whole, but for other actors.
    client.update()
    assert (client.refused, client.version) == (2, 2)
    connection.message = good
    connection.published += 1
    client.update()
    assert (client.refused, client.version, backend.loaded) == (2, 3, [2.0, 3.0])


def test_weight_client_announced_end_is_told(parts):
    connection, _, client = parts
    status = connection.status
    connection.status = lambda: status()._replace(shutdown=True)
    client.ask()
    assert collect(client)


def test_weight_client_phases_are_counted(parts):
    connection, _, client = parts
    connection.put(1)
    client.ask()
    collect(client)
    seconds = client._timings
    assert all(seconds[name] > 0 for name in ("pull_s", "deserialize_s", "load_state_dict_s"))
    before = dict(seconds)
    client.ask()
    collect(client)
    assert seconds["pull_s"] > before["pull_s"]
    assert seconds["deserialize_s"] == before["deserialize_s"]
