"""The actor's weights: what is transferred and loaded, and when."""

import numpy as np
import pytest

from actorQ import architecture as architecture_lib
from actorQ import config as config_lib
from actorQ import conversion
from actorQ import errors
from actorQ import messages
from actorQ import telemetry
from actorQ import weights as weights_lib
from actorQ import wire

ARCHITECTURE = architecture_lib.PolicyArchitecture((3,), (4,), 1, architecture_lib.TANH_HEAD)


def make_weights(value):
    return {
        name: np.full(shape, value, np.float32)
        for name, shape in ARCHITECTURE.parameter_shapes.items()
    }


class FakeConnection:
    """A model table that the test fills; counts what is transferred."""

    def __init__(self):
        self.published = 0
        self.sampled = 0
        self.message = None
        self.fetches = 0
        self.looks = 0

    def put(self, version, quantize=32, architecture_weights=None):
        weights = architecture_weights or make_weights(version)
        update = conversion.to_actor_form(weights, version, quantize)
        self.message = messages.encode(update)
        self.published += 1

    def status(self):
        self.looks += 1
        return wire.ServerStatus(self.published, 0, 0, 0, self.sampled, False, 0)

    def fetch(self, table):
        assert table == "model_table"
        self.fetches += 1
        return self.message


class FakeBackend:
    def __init__(self):
        self.loaded = []

    def prepare(self, tensors):
        return tensors["head.bias"][0]

    def load(self, prepared):
        self.loaded.append(float(prepared))


@pytest.fixture
def parts():
    connection, backend = FakeConnection(), FakeBackend()
    config = config_lib.RunConfig(quantize=32, batch_size=10)
    client = weights_lib.WeightClient(
        connection, config, ARCHITECTURE, backend, telemetry.Timings()
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
    connection.sampled = 70  # Seven batches of ten.
    client.update()
    assert client.staleness == 2
    connection.sampled = 120
    client.update()
    assert client.staleness == 7
    connection.put(12)
    client.update()
    assert client.staleness == 0
    # Before and after each look: (-, 2), (7), (7, 0).
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
