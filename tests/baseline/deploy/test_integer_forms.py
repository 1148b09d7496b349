import pathlib

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common import monitor

from actorQ.core import errors
from baseline.agents import agent as agent_lib
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.agents import finding
from baseline.agents import zoo_files
from baseline.deploy import integer_forms
from baseline.deploy import measuring
from baseline.formats import onnx_policy
from baseline.quantization import acting_path
from baseline.quantization import schemes
from tests import trained_agents
from tests.baseline import integer_reference as reference
from tests.baseline import players

SETTINGS = measuring.Settings(
    calibration_episodes=1, episodes=2, states=50, repeats=1
)


class Walk(gym.Env):
    """Shows six random numbers a step, for 40 steps; the reward is the action."""

    observation_space = gym.spaces.Box(-9, 9, (6,), np.float32)

    def __init__(self, continuous):
        self.action_space = (
            gym.spaces.Box(-2, 3, (4,), np.float32) if continuous else gym.spaces.Discrete(4)
        )

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return self._observation(), {}

    def step(self, action):
        self._step += 1
        return self._observation(), float(np.mean(action)), self._step == 40, False, {}

    def _observation(self):
        return self.np_random.normal(1.0, 2.0, 6).astype(np.float32)


class Unsaved(agent_lib.Agent):
    def save(self, folder):
        raise NotImplementedError


def make_agent(head="argmax"):
    network = reference.dense(head=head)
    normalization = zoo_files.Normalization(np.ones(6), 4 * np.ones(6), 1.0, 10.0, 0.0)
    return Unsaved(
        "ppo", "Walk", pathlib.Path("Walk.zip"), network,
        lambda: monitor.Monitor(Walk(head != "argmax")), normalization,
    )


@pytest.mark.parametrize("head", ["argmax", "clip"])
def test_measure_compares_every_form(head):
    agent = make_agent(head)
    measured = integer_forms.measure(agent, SETTINGS)
    assert list(measured) == [integer_forms.TORCH, *integer_forms.EXPORTS]
    full = measured[integer_forms.TORCH]
    assert not full.content and full.facts["weight_bytes"] == 4 * (
        6 * 32 + 32 + 32 * 24 + 24 + 24 * 4 + 4
    )
    for name in integer_forms.EXPORTS:
        form = measured[name]
        simulated = form.agreements["simulated"]
        assert 25 <= simulated.states <= 50 and simulated.alike > 0.9
        assert form.agreements["full_precision"].alike > 0.5
        assert len(form.seconds) == 1 and len(form.returns) == 2
        assert players.onnx_player(form.content).weight_bytes == form.facts["weight_bytes"]
    exact, integers = measured["ORT fp32"], measured["ORT int8"]
    assert exact.agreements["full_precision"].alike == 1.0
    np.testing.assert_allclose(exact.returns, full.returns, rtol=1e-5)
    assert integers.agreements["simulated"].holds
    assert "MatMulIntegerToFloat" in integers.facts["kernels"]
    sizes = [form.facts["weight_bytes"] for form in (measured["ORT int4"], integers, exact)]
    assert sizes == sorted(set(sizes))
    # The agent is as it was.
    assert agent.tap is None and agent.quantization is None


def test_measure_quantized_agent_is_refused():
    agent = make_agent()
    agent.note_quantization(schemes.Scheme("8"), None)
    with pytest.raises(errors.UserError, match="Walk.zip is quantized already"):
        integer_forms.measure(agent, SETTINGS)


@pytest.mark.parametrize("granularity", [schemes.PAPER, schemes.CHANNEL])
def test_simulate_is_what_the_reference_computes(granularity):
    network = reference.dense(head="clip")
    inputs = reference.observations(network)
    ranges = reference.calibrate(network, inputs)
    bits = {"layer_0": 8, "layer_1": 4, "layer_2": 8}
    for given in (None, ranges):
        actions = integer_forms.simulate(network, bits, given, granularity)(inputs)
        outputs = reference.simulate(network, inputs, bits, given, granularity)
        expected = np.clip(outputs, network.low, network.high)
        assert np.mean(np.abs(actions - expected) > 1e-5) < 0.01
    full = acting_path.forward(network, inputs).numpy()
    np.testing.assert_array_equal(
        integer_forms.simulate(network)(inputs), acting_path.to_actions(network, full)
    )


def test_atari_network_acts_as_simulated():
    network = reference.nature_cnn()
    scenes = reference.scenes()
    ranges = reference.calibrate(network, scenes[:50])
    simulated = integer_forms.simulate(
        network, {name: 8 for name, _ in network.with_weights()}, ranges
    )(scenes)
    assert len(np.unique(simulated)) >= 3  # Otherwise agreement would prove nothing.
    model = onnx_policy.export(network, 8, ranges).SerializeToString()
    compared = agreement.compare(simulated, players.onnx_player(model)(scenes))
    assert compared.holds, compared


@pytest.mark.skipif(not trained_agents.FOLDER.is_dir(), reason="the trained agents are not here")
@pytest.mark.parametrize(
    ("algo", "env_id"),
    [
        ("a2c", "CartPole-v1"), ("ppo", "LunarLander-v2"), ("dqn", "LunarLander-v2"),
        ("dqn", "MountainCar-v0"), ("ddpg", "Pendulum-v1"), ("ppo", "BipedalWalker-v3"),
        ("a2c", "MountainCarContinuous-v0"),
    ],
)
def test_trained_agent_acts_as_simulated(algo, env_id):
    agent = finding.load(algo, env_id, trained_agents.FOLDER)
    ranges = calibration.ranges(agent, 1)
    model = onnx_policy.export(agent.network, 8, ranges).SerializeToString()
    states = agent.normalize(agreement.visited_states(agent.make_env, agent.act, 2, 0, 2000))
    network = agent.network
    actions = players.onnx_player(model)(states)
    simulated = integer_forms.simulate(
        network, {name: 8 for name, _ in network.with_weights()}, ranges
    )(states)
    compared = agreement.compare(simulated, actions, network.low, network.high)
    assert compared.holds, compared
