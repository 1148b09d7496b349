"""Agents quantized by methods that calibrate, on states of their own."""

import json

import numpy as np
import pytest

from baseline.agents import agreement
from baseline.agents import finding
from baseline.agents import post_training
from baseline.quantization import acting_path
from baseline.quantization import recipes
from baseline.quantization import schemes
from baseline.quantization.methods import distill

SETTINGS = post_training.Settings(states=200, range_episodes=1)
AGENTS = [("dqn", "CartPole-v1"), ("ddpg", "Pendulum-v1"), ("a2c", "Pendulum-v1")]


@pytest.fixture(scope="module")
def collected(zoo):
    """Returns an agent, loaded anew, and its states."""
    states = {}

    def load(algo, env):
        agent = finding.load(algo, env, str(zoo.folder))
        if (algo, env) not in states:
            states[algo, env] = post_training.collect(agent, SETTINGS)
        return agent, states[algo, env]

    return load


def quantize(agent, states, method, bits="4", **kwargs):
    scheme = schemes.Scheme(bits, method=method, **kwargs)
    return post_training.quantize(agent, scheme, SETTINGS, states)


@pytest.mark.parametrize(("algo", "env"), AGENTS)
def test_states_repeat_and_are_held_apart(collected, algo, env):
    agent, states = collected(algo, env)
    again = post_training.collect(agent, SETTINGS)
    for first, second in zip(states, again, strict=True):
        np.testing.assert_array_equal(first, second)
        assert 100 <= len(first) <= 200
    assert not np.array_equal(states.calibration[:50], states.held_out[:50])
    if agent.normalization is not None:  # They are as the network takes them.
        assert np.abs(states.calibration.mean(axis=0)).max() < 3


@pytest.fixture(autouse=True)
def short_distillation(monkeypatch):
    monkeypatch.setattr(distill, "ROUNDS", 2)
    monkeypatch.setattr(distill, "STEPS", 60)


@pytest.mark.parametrize(("algo", "env"), AGENTS)
@pytest.mark.parametrize(
    "method", ["mse,gptq,bias-correction", "smooth", "bias-correction,action", "smooth,distill"]
)
def test_the_agreement_is_that_of_the_agent(collected, algo, env, method):
    agent, states = collected(algo, env)
    full, _ = collected(algo, env)
    outcome = quantize(agent, states, method)
    assert outcome.method == method and outcome.tried == {}

    def actions(one):
        outputs = acting_path.forward(one.network, states.held_out, one.tap).numpy()
        return acting_path.to_actions(one.network, outputs)

    expected = agreement.compare(
        actions(full), actions(agent), full.network.low, full.network.high
    )
    assert outcome.agreement == expected
    assert agent.quantization == (schemes.Scheme("4", method=method), None)


def test_auto_keeps_the_closest_candidate(collected):
    agent, states = collected("ddpg", "Pendulum-v1")
    outcome = quantize(agent, states, "auto", "3")
    assert list(outcome.tried) == list(recipes.CANDIDATES)
    closest = min(outcome.tried, key=lambda method: outcome.tried[method].mean)
    assert outcome.method == closest
    again, _ = collected("ddpg", "Pendulum-v1")
    assert quantize(again, states, closest, "3").agreement == outcome.agreement
    for name, weight in again.weights().items():
        np.testing.assert_array_equal(weight, agent.weights()[name])
    assert agent.quantization[0].method == closest


def test_of_equals_the_first_is_best():
    alike = agreement.Agreement(10, 0.5)
    assert post_training.best({"a": agreement.Agreement(10, 0.4), "b": alike, "c": alike}) == "b"
    near, far = agreement.Agreement(10, 0.2, 0.5, 0.1, 0.4), agreement.Agreement(10, 0.3, 1, 0.2, 1)
    assert post_training.best({"far": far, "near": near}) == "near"


@pytest.mark.parametrize(
    "method", ["mse", "percentile", "gptq", "bias-correction,action", "distill"]
)
def test_activations_are_quantized_too(collected, method):
    agent, states = collected("dqn", "CartPole-v1")
    scheme = schemes.Scheme("8", schemes.WEIGHTS_AND_ACTIVATIONS, method=method)
    outcome = post_training.quantize(agent, scheme, SETTINGS, states)
    ranges = agent.quantization[1]
    assert set(ranges) == {name for name, _ in agent.network.with_weights()}
    first = agent.network.with_weights()[0][0]
    extremes = states.calibration.min(), states.calibration.max()
    if method == "percentile":
        low, high = np.percentile(states.calibration, [0.1, 99.9])
        assert ranges[first] == pytest.approx((min(low, 0), max(high, 0)))
    elif method != "mse":  # Whole episodes have wider extremes than the states.
        assert ranges[first][0] < 0 < ranges[first][1]
        assert np.abs(ranges[first]).max() > 0.5 * np.abs(extremes).max()
    assert outcome.agreement.alike > 0.5


def test_auto_leaves_out_what_cannot_fold_with_activations(collected):
    scheme = schemes.Scheme("8", schemes.WEIGHTS_AND_ACTIVATIONS, method="auto")
    names = post_training.candidates(scheme)
    assert names == ["gptq,bias-correction", "action", "bias-correction,action"]


@pytest.mark.parametrize("method", ["mse,gptq,bias-correction", "distill"])
def test_a_saved_agent_acts_the_same(collected, zoo, tmp_path, method):
    agent, states = collected("dqn", "CartPole-v1")
    quantize(agent, states, method, granularity="channel", group_size=5)
    path = agent.save(tmp_path)
    again = finding.load("dqn", "CartPole-v1", str(tmp_path))
    np.testing.assert_array_equal(
        agent.act(states.held_out), again.act(states.held_out)
    )
    assert again.quantization == agent.quantization
    noted = json.loads((path.parent / "CartPole-v1" / schemes.FILENAME).read_text())
    assert (noted["method"], noted["group_size"]) == (method, 5)


def test_agents_of_earlier_versions_tell_no_method():
    facts = {"bits": "8", "scheme": "weights", "granularity": "paper", "rounding": "nearest"}
    assert schemes.from_json({**facts, "ranges": None}) == (schemes.Scheme("8"), None)
