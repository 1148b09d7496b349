"""The whole path of weights on a real server, from the learner's variables to a policy."""

import numpy as np
import pytest
import tensorflow as tf

from actorQ.actor import weight_client as weight_client_lib
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.learner import publisher
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import inference
from actorQ.policy import sonnet_policy
from actorQ.wire import broadcaster as broadcaster_lib
from actorQ.wire import connection
from actorQ.wire import replay
from actorQ.wire import server
from tests.actorQ import harness

ARCHITECTURE = architecture_lib.PolicyArchitecture((17,), (64, 48), 6, architecture_lib.TANH_HEAD)


class Path:
    """Publisher, broadcaster and an actor's client, each with a connection of its own."""

    def __init__(self, tmp_path, **settings):
        settings = {
            "port": 0, "model_str": "64,48", "push_period_s": 0.0, "logpath": str(tmp_path),
            "inference_mode": "pytorch", **settings,
        }
        config = config_lib.RunConfig(**settings)
        layout = replay.Layout((17,), False, 6, False)
        self.server = server.start_server(config, server.make_tables(config, layout, False))
        settings["server_address"] = f"localhost:{self.server.port}"
        self.config = config = config_lib.RunConfig(**settings)
        self.policy = sonnet_policy.Policy(ARCHITECTURE)
        for variable in self.policy.variables:
            variable.assign(tf.random.stateless_normal(variable.shape, (3, variable.shape[0])))
        self.publisher = publisher.VariablePublisher(
            self.policy.named_variables(), connection.Connection(config),
            config.broadcaster_table_name, 0.0, config.push_precision,
        )
        self.broadcaster = broadcaster_lib.Broadcaster(config)
        self.connection = connection.Connection(config)
        self.backend = inference.make_backend(
            ARCHITECTURE, config.quantize, config.inference_mode
        )
        self.client = weight_client_lib.WeightClient(
            self.connection, config, ARCHITECTURE, self.backend, telemetry.no_seconds()
        )

    def send(self, version):
        self.publisher.publish(version, wait=True)
        self.broadcaster._serve_one(self.broadcaster.connection)

    def look(self):
        self.client.ask()
        harness.poll(lambda: self.client.ready, 20, 0.001)
        return self.client.collect()

    def transfers(self):
        info = self.connection.client.server_info(5)[self.config.model_table_name]
        return info.rate_limiter_info.sample_stats.completed


@pytest.fixture
def path(tmp_path):
    made = []

    def make(**settings):
        made.append(Path(tmp_path, **settings))
        return made[-1]

    yield make
    for one in made:
        one.server.stop()


@pytest.mark.parametrize("push_precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("quantize", [32, 16, 8])
def test_weights_reach_the_actor_as_the_quantizers_say(path, quantize, push_precision):
    made = path(quantize=quantize, push_precision=push_precision)
    made.send(7)
    assert not made.look()
    assert (made.client.version, made.client.pulls) == (7, 1)
    weights = {}
    for name, variable in made.policy.named_variables().items():
        array = variable.numpy()
        if push_precision == "bfloat16":
            array = tf.cast(tf.cast(array, tf.bfloat16), tf.float32).numpy()
        layer, kind = name.split("/")
        weights[f"{layer}.{'weight' if kind == 'w' else 'bias'}"] = array.T.copy()
    expected = inference.make_backend(ARCHITECTURE, quantize, "pytorch")
    inference.load_weights(expected, weights, quantize)
    observation = np.random.default_rng(0).normal(size=(1, 17)).astype(np.float32)
    np.testing.assert_array_equal(made.backend(observation), expected(observation))


def test_nothing_is_transferred_without_a_newer_version(path):
    made = path(quantize=8)
    made.send(1)
    made.look()
    assert made.transfers() == 1
    for _ in range(10):
        made.look()
    assert (made.transfers(), made.client.pulls) == (1, 1)
    made.send(2)
    for _ in range(10):
        made.look()
    assert (made.transfers(), made.client.pulls, made.client.version) == (2, 2, 2)


def test_newest_wins_on_both_hops(path):
    made = path(quantize=32)
    for version in (1, 2, 3):
        made.publisher.publish(version, wait=True)
    made.broadcaster._serve_one(made.broadcaster.connection)
    for version in (4, 5):
        made.send(version)
    made.look()
    assert (made.client.version, made.client.pulls, made.transfers()) == (5, 1, 1)


@pytest.mark.parametrize(("quantize", "communication", "most"), [(8, 32, 0.28), (8, 4, 0.15)])
def test_message_bytes_beside_fp32(path, tmp_path, quantize, communication, most):
    made = path(quantize=quantize, quantize_communication=communication)
    made.send(1)
    row = telemetry.last_row(str(tmp_path / "broadcaster" / telemetry.UPDATES_CSV))
    # In a tiny network, biases, scales and header weigh more than in one of 3x2048.
    assert row["message_bytes"] - 2000 <= most * row["fp32_bytes"]
    made.look()
    assert made.client.version == 1


def test_push_in_bfloat16_has_half_the_bytes(path):
    sizes = {}
    for precision in ("float32", "bfloat16"):
        made = path(push_precision=precision)
        made.publisher.publish(1, wait=True)
        header, blob = made.connection.take(made.config.broadcaster_table_name)
        sizes[precision] = blob.size
        assert header.size < 2000
    assert sizes["bfloat16"] == sizes["float32"] / 2


def test_server_that_is_gone_is_raised_on_the_actors_thread(path):
    made = path()
    made.send(1)
    made.look()
    made.server.stop()
    with pytest.raises(errors.LearnerGoneError):
        made.look()
