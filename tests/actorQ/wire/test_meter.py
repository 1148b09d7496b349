"""The broadcaster's meter on a real server: what it measures, and that nobody else notices."""

import dataclasses
import functools
import math

import numpy as np
import pytest

from actorQ.actor import transition_writer
from actorQ.core import config as config_lib
from actorQ.core import settings
from actorQ.core import telemetry
from actorQ.environments import base
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import figures
from actorQ.policy import forms
from actorQ.policy import model_update
from actorQ.policy import reference
from actorQ.wire import broadcaster as broadcaster_lib
from actorQ.wire import connection as connection_lib
from actorQ.wire import messages
from actorQ.wire import meter as meter_lib
from actorQ.wire import replay
from actorQ.wire import server as server_lib
from tests.actorQ import transitions as transitions_lib
from tests.actorQ.policy import test_figures
from tests.actorQ.policy.native import test_kernels

SPECS = {
    "vector": transitions_lib.VECTOR,
    "discrete": transitions_lib.DISCRETE,
    # The smallest images that the convolutions take.
    "pixels": base.EnvironmentSpec((36, 36, 2), np.dtype(np.uint8), num_actions=4),
}


class Run:
    """A server with transitions in replay, and a connection to it."""

    def __init__(self, spec, tmp_path, **changed):
        self.config = config_lib.RunConfig(
            port=0, min_replay_size=1, logpath=str(tmp_path), model_str="12,10",
            **{"inference_mode": "native", "quantize": 8, "meter_period_s": 0.001, **changed},
        )
        self.spec, self.layout = spec, replay.Layout.of(spec)
        tables = server_lib.make_tables(self.config, self.layout, prioritized=spec.discrete)
        self.server = server_lib.start_server(self.config, tables)
        self.config = dataclasses.replace(
            self.config, server_address=f"localhost:{self.server.port}"
        )
        self.connection = connection_lib.Connection(self.config)
        self.architecture = architecture_lib.make(spec, self.config.model_sizes)
        self.weights = test_kernels.make_weights(self.architecture)

    def insert(self, count, **settings):
        writer = transition_writer.TransitionWriter(
            self.connection.client, self.config.replay_table_name, self.layout, **settings
        )
        rng = np.random.default_rng(0)
        transitions = [
            transitions_lib.random_transition(self.spec, rng) for _ in range(count)
        ]
        for transition in transitions:
            writer.write(transition)
        writer.close()
        return transitions

    def push(self, broadcaster, version):
        variables = test_figures.variables_of(self.weights)
        update = model_update.ModelUpdate(version, forms.LEARNER_SCHEME, variables)
        self.connection.publish(self.config.broadcaster_table_name, messages.encode(update))
        broadcaster._serve_one(self.connection)

    def log(self, name):
        return telemetry.read_csv(f"{self.config.logpath}/{telemetry.BROADCASTER}/{name}")


@pytest.fixture
def start(tmp_path):
    """Starts servers, and stops them after the test."""
    runs = []

    def make(name, **changed):
        runs.append(Run(SPECS[name], tmp_path, **changed))
        return runs[-1]

    yield make
    for run in runs:
        run.server.stop()


@pytest.fixture(autouse=True)
def _with_time_for_all(monkeypatch):
    unlimited = functools.partial(meter_lib.Meter, share=math.inf)
    monkeypatch.setattr(broadcaster_lib.meter_lib, "Meter", unlimited)


@pytest.mark.parametrize("name", SPECS)
def test_figures_are_those_of_observations_in_replay(start, name):
    run = start(name)
    transitions = run.insert(40, block_size=1, thinned_table=settings.OBSERVATION_TABLE)
    run.push(broadcaster_lib.Broadcaster(run.config), 3)
    (row,) = zip(*run.log(telemetry.METER_CSV).values(), strict=True)
    row = dict(zip(run.log(telemetry.METER_CSV), row, strict=True))
    assert (row["model_version"], row["observations"]) == (3, 64)
    seen = np.stack([transition.observation for transition in transitions])
    assert row["observation_low"] < row["observation_high"]
    assert {row["observation_low"], row["observation_high"]} <= {
        float(f"{number:.6g}") for number in seen.ravel().tolist()
    }
    if run.spec.discrete:
        assert 0 <= row["agreement"] <= 1 and row["lost_q"] >= 0
        assert np.isnan(row["action_distance"])
    else:
        assert 0 < row["action_distance"] <= row["action_distance_max"] < 0.5
        assert np.isnan(row["agreement"])
    for layer in run.architecture.layer_names:
        assert row[f"activation_low_{layer}"] < row[f"activation_high_{layer}"]


@pytest.mark.parametrize(
    ("mode", "quantize", "activations"),
    [
        ("native", 8, reference.Activations.SYMMETRIC),
        ("native", 4, reference.Activations.SYMMETRIC),
        ("native", 3, reference.Activations.SYMMETRIC),
        ("pytorch", 8, reference.Activations.AFFINE_7_BITS),
        ("tensorflow", 8, None),
    ],
)
def test_actors_policy_is_that_of_their_backend(start, monkeypatch, mode, quantize, activations):
    run = start("vector", inference_mode=mode, quantize=quantize, envs_per_actor=3)
    run.insert(8, block_size=1, thinned_table=settings.OBSERVATION_TABLE)
    asked = []
    monkeypatch.setattr(
        figures, "compare_policies", lambda *arguments: asked.append(arguments) or {}
    )
    run.push(broadcaster_lib.Broadcaster(run.config), 3)
    ((architecture, weights, tensors, observations, chosen, together),) = asked
    assert architecture == run.architecture
    assert (len(observations), together) == (66, 3)  # Whole calls of an actor.
    np.testing.assert_array_equal(weights["head.weight"], run.weights["head.weight"])
    expected = forms.expand(forms.to_actor_form(run.weights, 3, quantize))
    if activations is None:  # Floats in and out: weights alone are quantized.
        expected = {name: model_update.to_float32(each) for name, each in expected.items()}
    else:
        assert chosen is activations
    for name, tensor in expected.items():
        np.testing.assert_array_equal(
            model_update.stored_values(tensors[name]), model_update.stored_values(tensor)
        )


def test_learner_gets_the_same_samples_whether_the_meter_looks_or_not(start):
    run = start("vector", replay_table_max_times_sampled=2)
    run.insert(32, block_size=8, thinned_table=settings.OBSERVATION_TABLE)
    broadcaster = broadcaster_lib.Broadcaster(run.config)
    before = run.connection.status()
    assert before.replay_size == 32 and before.observations >= 4
    for version in range(1, 6):
        run.push(broadcaster, version)
    assert len(run.log(telemetry.METER_CSV)["seconds"]) == 5
    after = run.connection.status()
    assert (after.replay_size, after.transitions_sampled) == (32, 0)
    # Every transition is still there for two samples, those that the meter has seen as well.
    samples = run.connection.client.sample(
        run.config.replay_table_name, 64, emit_timesteps=False
    )
    assert len(list(samples)) == 64
    assert run.connection.status().replay_size == 0
    assert run.connection.status().observations == before.observations


def test_versions_are_compared_with_the_one_before(start):
    run = start("discrete", quantize=4, meter_period_s=0.0)
    broadcaster = broadcaster_lib.Broadcaster(run.config)
    run.push(broadcaster, 1)
    run.push(broadcaster, 2)
    run.weights["linear_0.weight"] = -run.weights["linear_0.weight"]
    run.push(broadcaster, 3)
    log = run.log(telemetry.UPDATES_CSV)
    share = log["changed_share"]
    assert np.isnan(share[0]) and share[1] == 0.0
    tensors = forms.to_actor_form(run.weights, 1, 4).tensors
    integers = tensors["linear_0.weight"].values
    total = sum(
        tensor.values.size for tensor in tensors.values() if hasattr(tensor, "values")
    )
    assert share[2] == pytest.approx(np.count_nonzero(integers) / total, rel=1e-5)
    assert 0.02 < log["weight_error_linear_0"][2] < 0.2  # 15 levels for each row.
    assert 0 < log["weight_error_head"][2] < 0.02  # The head has 8 bits.
    assert 0 < log["meter_s"][0] < log["meter_s"][2]
    # --meter_period_s=0 compares no policies.
    assert not telemetry.last_row(f"{broadcaster._logger.folder}/{telemetry.METER_CSV}")


def test_meter_without_observations_waits(start):
    run = start("vector")
    broadcaster = broadcaster_lib.Broadcaster(run.config)
    run.push(broadcaster, 1)
    assert not telemetry.last_row(f"{broadcaster._logger.folder}/{telemetry.METER_CSV}")
    run.insert(9, block_size=4)  # An actor that writes none.
    run.push(broadcaster, 2)
    assert run.connection.status().observations == 0
    run.insert(9, block_size=4, thinned_table=settings.OBSERVATION_TABLE)
    run.push(broadcaster, 3)
    assert run.log(telemetry.METER_CSV)["model_version"] == [3]


def test_meter_spends_at_most_a_hundredth_of_the_time(start, monkeypatch):
    monkeypatch.undo()
    run = start("discrete")
    run.insert(40, block_size=1, thinned_table=settings.OBSERVATION_TABLE)
    now, spent = [100.0], [0.0]
    monkeypatch.setattr(meter_lib.time, "monotonic", lambda: now[0])

    def clock():  # Each measurement takes a millisecond.
        spent[0] += 0.001
        return spent[0]

    monkeypatch.setattr(meter_lib.time, "process_time", clock)
    meter = meter_lib.Meter(run.config)
    update = model_update.ModelUpdate(
        1, forms.LEARNER_SCHEME, test_figures.variables_of(run.weights)
    )
    converted = forms.for_actors(update, 8)
    weighed = compared = 0
    for _ in range(1000):  # A version each 10 ms, for 10 s.
        now[0] += 0.01
        weighed += bool(meter.weigh(update, converted))
        compared += bool(meter.compare(run.connection, update, converted))
    assert 40 <= weighed <= 51 and 40 <= compared <= 51
    assert meter.seconds <= 0.0101 * 10


def test_broadcaster_that_starts_again_adds_up_the_meters_time(start):
    run = start("discrete")
    run.push(broadcaster_lib.Broadcaster(run.config), 1)
    again = broadcaster_lib.Broadcaster(dataclasses.replace(run.config, restarts=1))
    run.push(again, 2)
    log = run.log(telemetry.UPDATES_CSV)
    assert log["meter_s"][1] > log["meter_s"][0] > 0
    assert np.isnan(log["changed_share"][1])  # It has not seen the version before.
