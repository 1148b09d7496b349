"""The acting path as a list of layers."""

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common import torch_layers
from stable_baselines3.common import vec_env
import torch
from torch import nn

from actorQ.core import errors
from baseline.agents import finding
from baseline.quantization import acting_path
from tests.baseline import small_agents


def names(network):
    return [name for name, _ in network.layers]


def test_layers_are_those_that_act(zoo):
    load = finding.load
    assert names(load("ppo", "CartPole-v1", zoo.folder).network) == [
        "features_extractor.flatten", "mlp_extractor.policy_net.0", "mlp_extractor.policy_net.1",
        "mlp_extractor.policy_net.2", "mlp_extractor.policy_net.3", "action_net",
    ]
    assert names(load("dqn", "CartPole-v1", zoo.folder).network)[1:] == [
        f"q_net.q_net.{index}" for index in range(5)
    ]
    ddpg = load("ddpg", "Pendulum-v1", zoo.folder).network
    assert [name for name, _ in ddpg.with_weights()] == ["actor.mu.0", "actor.mu.2", "actor.mu.4"]
    assert (ddpg.head, ddpg.low, ddpg.high) == ("scale", [-2.0], [2.0])
    clipped = load("a2c", "Pendulum-v1", zoo.folder).network
    assert (clipped.head, clipped.low.dtype) == ("clip", np.float32)
    squashed = load("ppo", "Pendulum-v1", zoo.folder).network
    assert squashed.head == "scale" and names(squashed)[-1] == "squash"


def test_layers_of_images(atari_zoo):
    for algo, head in (("ppo", "action_net"), ("dqn", "q_net.q_net.0")):
        network = finding.load(algo, "BreakoutNoFrameskip-v4", atari_zoo.folder).network
        prefix = "q_net." if algo == "dqn" else ""
        assert [name for name, _ in network.with_weights()] == [
            f"{prefix}features_extractor.cnn.0", f"{prefix}features_extractor.cnn.2",
            f"{prefix}features_extractor.cnn.4", f"{prefix}features_extractor.linear.0", head,
        ]
        assert network.image and network.head == "argmax"


def test_parameters_are_the_models(zoo):
    agent = finding.load("dqn", "CartPole-v1", zoo.folder)
    parameters = dict(agent.model.policy.named_parameters())
    for name, module in agent.network.with_weights():
        assert module.weight is parameters[f"{name}.weight"]
    batch = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    before = agent.act(batch)
    with torch.no_grad():
        parameters["q_net.q_net.4.weight"].neg_()
        parameters["q_net.q_net.4.bias"].neg_()
    after = agent.model.predict(batch, deterministic=True)[0]
    assert (agent.act(batch) == after).all() and (before != after).all()


class Features(torch_layers.BaseFeaturesExtractor):
    """Not one of SB3's."""

    def __init__(self, space):
        super().__init__(space, 4)

    def forward(self, x):
        return x


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"activation_fn": nn.LeakyReLU}, "Layer .*policy_net.1 is a LeakyReLU, which has no quan"),
        ({"features_extractor_class": Features}, "features extractor Features has no quantized"),
    ],
)
def test_unknown_layers_are_an_error(kwargs, match):
    made = small_agents.model("ppo", small_agents.vector("CartPole-v1"), policy_kwargs=kwargs)
    with pytest.raises(errors.UserError, match=match):
        acting_path.policy_network(made)


@pytest.mark.parametrize(
    "space", [gym.spaces.MultiBinary(2), gym.spaces.MultiDiscrete([2, 3]),
              gym.spaces.Box(-1, 1, (2, 2), np.float32)],
)
def test_unknown_actions_are_an_error(space):
    class Buttons(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
        action_space = space

    made = small_agents.model("ppo", vec_env.DummyVecEnv([Buttons]))
    with pytest.raises(errors.UserError, match="neither discrete nor continuous"):
        acting_path.policy_network(made)


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (gym.spaces.Discrete(5), "Discrete"), (gym.spaces.MultiDiscrete([2, 3]), "MultiDiscrete"),
        (gym.spaces.MultiBinary(4), None),
    ],
)
def test_observations_that_sb3_encodes_are_an_error(space, name):
    class Symbols(gym.Env):
        observation_space = space
        action_space = gym.spaces.Discrete(2)

    made = small_agents.model("a2c", vec_env.DummyVecEnv([Symbols]))
    if name is None:
        observed = np.array([[0, 1, 1, 0], [1, 1, 0, 0]], np.int8)
        outputs = acting_path.forward(acting_path.policy_network(made), observed).numpy()
        expected, _ = made.predict(observed, deterministic=True)
        np.testing.assert_array_equal(outputs.argmax(axis=1), expected)
        return
    with pytest.raises(errors.UserError, match=f"Observations of a {name} space have no"):
        acting_path.policy_network(made)


def test_forward_taps_every_layers_input(zoo):
    network = finding.load("ppo", "CartPole-v1", zoo.folder).network
    batch = np.random.default_rng(0).normal(size=(7, 4))
    seen = {}

    def watch(name, x):
        seen[name] = x.numpy()
        return x

    output = acting_path.forward(network, batch, watch).numpy()
    modules = dict(network.layers)
    assert list(seen) == [name for name, _ in network.with_weights()] + [acting_path.OUTPUT]
    np.testing.assert_array_equal(output, acting_path.forward(network, batch).numpy())
    np.testing.assert_array_equal(seen["output"], output)
    np.testing.assert_allclose(seen["mlp_extractor.policy_net.0"], batch, rtol=1e-6)
    weight, bias = (p.detach().numpy() for p in modules["mlp_extractor.policy_net.0"].parameters())
    hidden = np.tanh(batch @ weight.T + bias)
    np.testing.assert_allclose(seen["mlp_extractor.policy_net.2"], hidden, rtol=1e-4, atol=1e-6)
    doubled = acting_path.forward(network, batch, lambda name, x: 2 * x if name == "output" else x)
    np.testing.assert_allclose(doubled.numpy(), 2 * output)


def test_images_are_divided_by_255():
    layers = (("c", nn.Conv2d(1, 1, 2, bias=False)), ("f", nn.Flatten()))
    with torch.no_grad():
        layers[0][1].weight.fill_(1.0)
    network = acting_path.PolicyNetwork(layers, "argmax", image=True)
    image = np.array([[[[255, 0], [51, 102]]]], np.uint8)
    assert acting_path.forward(network, image).item() == pytest.approx(1.6)


def test_to_actions():
    low, high = np.array([-1, 0], np.float32), np.array([3, 1], np.float32)
    outputs = np.array([[5.0, 0.5], [-4.0, -0.5]], np.float32)

    def act(head):
        return acting_path.to_actions(acting_path.PolicyNetwork((), head, low, high), outputs)

    np.testing.assert_array_equal(act("argmax"), [0, 1])
    np.testing.assert_array_equal(act("clip"), [[3.0, 0.5], [-1.0, 0.0]])
    np.testing.assert_array_equal(act("scale")[1], [-7.0, 0.25])
