"""An agent's weights are checked, and its quantization is noted beside it."""

import json

import numpy as np
import pytest

from actorQ.core import errors
from baseline.agents import finding
from baseline.quantization import schemes
from tests.baseline import small_agents


def test_nan_in_weights_or_biases_is_an_error(tmp_path):
    made = small_agents.model("ppo", small_agents.vector("CartPole-v1"))
    made.policy.action_net.bias.data[1] = float("nan")
    path = small_agents.save(tmp_path, "ppo", "CartPole-v1", made)
    with pytest.raises(errors.UserError, match=r"NaN or infinity \(layer action_net\)"):
        finding.load("ppo", "CartPole-v1", tmp_path)
    # The value function is not played.
    made.policy.action_net.bias.data[1] = 0.0
    made.policy.value_net.bias.data[0] = float("inf")
    made.save(path)
    finding.load("ppo", "CartPole-v1", tmp_path)


def quantized(zoo, tmp_path):
    agent = finding.load("ppo", "CartPole-v1", zoo.folder)
    scheme = schemes.Scheme("4", schemes.WEIGHTS_AND_ACTIVATIONS)
    names = [name for name, _ in agent.network.with_weights()]
    agent.note_quantization(scheme, {name: (-2.0, 2.0) for name in [*names, "output"]})
    path = agent.save(tmp_path)
    return agent, path.parent / "CartPole-v1" / schemes.FILENAME


def test_quantization_is_noted_and_restored(zoo, tmp_path):
    agent, _ = quantized(zoo, tmp_path)
    again = finding.load("ppo", "CartPole-v1", tmp_path)
    assert again.quantization == agent.quantization
    batch = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    np.testing.assert_array_equal(again.act(batch), agent.act(batch))
    plain = finding.load("ppo", "CartPole-v1", zoo.folder)
    assert (plain.act(batch) != agent.act(batch)).any()
    # Quantizing the weights once more, alone, ends the quantization of activations.
    again.note_quantization(schemes.Scheme("4"), None)
    np.testing.assert_array_equal(again.act(batch), plain.act(batch))


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: "{", lambda facts: "[]", lambda facts: json.dumps({**facts, "bits": "99"}),
        lambda facts: json.dumps({**facts, "bits": 8}),
        lambda facts: json.dumps({**facts, "rounding": "up"}),
        lambda facts: json.dumps({**facts, "granularity": "row"}),
        lambda facts: json.dumps({**facts, "ranges": None}),
        lambda facts: json.dumps({**facts, "ranges": {"output": [1]}}),
        lambda facts: json.dumps({**facts, "ranges": {"output": [0, float("nan")]}}),
        lambda facts: json.dumps({**facts, "ranges": {"nothing": [0, 1]}}),
        lambda facts: json.dumps({**facts, "ranges": {"output": [0, 10**400]}}),
        lambda facts: "[" * 100_000,
    ],
)
def test_damaged_quantization_is_an_error(zoo, tmp_path, change):
    _, path = quantized(zoo, tmp_path)
    path.write_text(change(json.loads(path.read_text())))
    with pytest.raises(errors.UserError, match="quantization.json") as caught:
        finding.load("ppo", "CartPole-v1", tmp_path)
    assert len(str(caught.value).splitlines()) == 1


def test_policy_weights_are_copies(zoo):
    agent = finding.load("ppo", "CartPole-v1", zoo.folder)
    weights = agent.weights()
    assert {name: array.shape for name, array in weights.items()} == {
        "mlp_extractor.policy_net.0.weight": (16, 4),
        "mlp_extractor.policy_net.2.weight": (16, 16),
        "action_net.weight": (2, 16),
    }
    before = agent.act(np.ones((1, 4), np.float32))
    weights["action_net.weight"][:] = np.nan
    assert agent.act(np.ones((1, 4), np.float32)) == before
