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
from baseline.tasks import environments
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


class Extractor(torch_layers.BaseFeaturesExtractor):
    """An own features extractor; its subclasses say what it computes."""

    def __init__(self, space):
        super().__init__(space, 4)
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm, self.act = nn.LayerNorm(4), nn.SiLU()
        self.scale = nn.Parameter(torch.full((4,), 2.0))
        self.memory = nn.LSTMCell(4, 4)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))


class Residual(Extractor):
    def forward(self, x):
        x = torch.relu(self.one(x.view(x.size(0), -1) / 2.0))
        return self.act(x + self.act(self.norm(self.two(x))))


class Functions(Extractor):
    def forward(self, x):
        x = nn.functional.leaky_relu(self.one(x.flatten(1)), 0.2)
        self.two(x)  # Nothing needs it.
        x = nn.functional.gelu(x, approximate="tanh") * 3 - 1
        return nn.functional.dropout(torch.clamp(1.0 - x, -0.5, 0.5), training=self.training)


class Branches(Extractor):
    def forward(self, x):
        x = torch.cat([x[:, 1:], x[:, :1].to(torch.float32)], dim=-1)
        left, right = torch.tanh(self.one(x)), torch.sigmoid(self.two(x))
        return nn.functional.elu(left - right * left, 0.7)


@pytest.mark.parametrize("extractor", [Residual, Functions, Branches])
def test_own_extractors_of_known_layers_are_traced(extractor):
    kwargs = {"features_extractor_class": extractor, "activation_fn": nn.Mish}
    made = small_agents.model("ppo", small_agents.vector("CartPole-v1"), policy_kwargs=kwargs)
    made.policy.set_training_mode(False)
    network = acting_path.policy_network(made)
    observed = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    with torch.no_grad():
        expected = made.policy.get_distribution(torch.from_numpy(observed)).distribution.logits
    outputs = acting_path.forward(network, observed)
    np.testing.assert_allclose(
        outputs.log_softmax(1).numpy(), expected.numpy(), rtol=1e-4, atol=1e-4
    )
    assert network.num_inputs == 4 and network.num_outputs == 2
    assert "features_extractor.one" in names(network)


class Remembers(Extractor):
    def forward(self, x):
        return self.memory(x)[0]


class Chooses(Extractor):
    def forward(self, x):
        return self.one(x) if x.sum() > 0 else self.two(x)


class Sorts(Extractor):
    def forward(self, x):
        return torch.sort(self.one(x), dim=1)[0]


class Scales(Extractor):
    def forward(self, x):
        return self.one(x) * self.scale


class Twice(Extractor):
    def forward(self, x):
        return self.one(torch.relu(self.one(x)))


class Parametrized(Extractor):
    def forward(self, x):
        return self.normed(x)


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"activation_fn": nn.PReLU}, "Layer .*policy_net.1 is a PReLU, which has no quan"),
        ({"features_extractor_class": Remembers}, "memory is a LSTMCell, which has no quantized"),
        ({"features_extractor_class": Chooses}, "cannot be traced.* extractor Chooses.*control"),
        ({"features_extractor_class": Sorts}, "calls sort, which has no quantized form.*in Sorts"),
        ({"features_extractor_class": Scales}, "calls mul, which has no quantized form.*in Scales"),
        ({"features_extractor_class": Twice}, "extractor.one computes twice in one pass"),
        ({"features_extractor_class": Parametrized}, "normed .*a parametrization.*no quantized"),
    ],
)
def test_unknown_layers_are_an_error(kwargs, match):
    made = small_agents.model("ppo", small_agents.vector("CartPole-v1"), policy_kwargs=kwargs)
    with pytest.raises(errors.UserError, match=match) as caught:
        acting_path.policy_network(made)
    assert len(str(caught.value).splitlines()) == 1


def test_unknown_actions_are_an_error():
    class Grid(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
        action_space = gym.spaces.Box(-1, 1, (2, 2), np.float32)

    made = small_agents.model("ppo", vec_env.DummyVecEnv([Grid]))
    with pytest.raises(errors.UserError, match="Actions of Box.* have no quantized form here"):
        acting_path.policy_network(made)


def test_bits_as_observations_are_numbers():
    class Bits(gym.Env):
        observation_space = gym.spaces.MultiBinary(4)
        action_space = gym.spaces.Discrete(2)

    made = small_agents.model("a2c", vec_env.DummyVecEnv([Bits]))
    observed = np.array([[0, 1, 1, 0], [1, 1, 0, 0]], np.int8)
    outputs = acting_path.forward(acting_path.policy_network(made), observed).numpy()
    expected, _ = made.predict(observed, deterministic=True)
    np.testing.assert_array_equal(outputs.argmax(axis=1), expected)


@pytest.mark.parametrize(
    ("space", "match"),
    [
        (gym.spaces.Tuple([gym.spaces.Discrete(2)]), "of a Tuple space have no quantized form"),
        (
            gym.spaces.Dict({"a": gym.spaces.Dict({"b": gym.spaces.Discrete(2)})}),
            "of a Dict space inside a Dict space have no quantized form",
        ),
        (gym.spaces.Dict({"a": gym.spaces.Text(3)}), "of a Text space inside a Dict space"),
    ],
)
def test_unknown_observations_are_an_error(space, match):
    with pytest.raises(errors.UserError, match=match):
        environments.check_observations(space)


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
    several = acting_path.PolicyNetwork((), "argmaxes", sizes=(2, 3))
    scores = np.array([[0, 1, 5, 4, 6], [2, 1, 0, 3, 3]], np.float32)
    np.testing.assert_array_equal(acting_path.to_actions(several, scores), [[1, 2], [0, 1]])
    np.testing.assert_array_equal(act("positive"), [[1, 1], [0, 0]])
    np.testing.assert_array_equal(act("clip"), [[3.0, 0.5], [-1.0, 0.0]])
    np.testing.assert_array_equal(act("scale")[1], [-7.0, 0.25])
