"""Integer forms at their limits: sums in int32, ranges that nothing uses, ranges of NaN."""

import numpy as np
import pytest
import torch
from torch import nn

from actorQ.core import errors
from baseline.agents import calibration
from baseline.agents import finding
from baseline.formats import onnx_policy
from baseline.quantization import acting_path
from tests.baseline import integer_reference as reference
from tests.baseline import players

MOST_INPUTS = (2**31 - 1) // 255**2  # 33025, whose largest products an int32 just holds.


def convolution(inputs, bias_steps=0, kernel=1):
    """A policy whose convolution has the largest sums that there can be, and its ranges."""
    weight_step, pixel = 1 / 256, 1 / 255
    layers = (
        ("conv", nn.Conv2d(inputs, 1, kernel)), ("relu", nn.ReLU()), ("flatten", nn.Flatten()),
        ("layer", nn.Linear(1, 2)),
    )
    with torch.no_grad():
        layers[0][1].weight.fill_(1.0)
        layers[0][1].bias.fill_(bias_steps * weight_step * pixel)
        layers[3][1].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        layers[3][1].bias.zero_()
    network = acting_path.PolicyNetwork(layers, "argmax", image=True)
    return network, {"conv": (0.0, 256 / 255), "layer": (0.0, 50_000.0)}


@pytest.mark.parametrize("calibrated", [False, True])
def test_more_inputs_than_sums_can_hold_are_refused(calibrated):
    ranges = {"layer_0": (-1.0, 1.0)} if calibrated else None
    assert onnx_policy.export(reference.dense(sizes=(MOST_INPUTS, 2)), 8, ranges).graph.node
    with pytest.raises(errors.UserError, match="layer_0 has 33026 inputs: int32 cannot hold their"):
        onnx_policy.export(reference.dense(sizes=(MOST_INPUTS + 1, 2)), 8, ranges)


def test_more_inputs_of_a_convolution_than_sums_can_hold_are_refused():
    for inputs, kernel in ((MOST_INPUTS + 1, 1), (8257, 2)):
        network, ranges = convolution(inputs, kernel=kernel)
        message = f"conv has {inputs * kernel**2} inputs: int32 cannot hold their sums"
        with pytest.raises(errors.UserError, match=message):
            onnx_policy.export(network, 8, ranges)


@pytest.mark.parametrize(("bias_steps", "kind"), [(8e8, "QLinearConv"), (1e9, "ConvInteger")])
def test_biases_leave_room_for_the_products_in_int32(bias_steps, kind):
    # 20640 inputs come to 1.34e9 at most: with a bias of 1e9, below 2^30, sums would wrap.
    network, ranges = convolution(20640, bias_steps)
    model = onnx_policy.export(network, 8, ranges)
    kinds = {node.op_type for node in model.graph.node}
    assert kinds & {"QLinearConv", "ConvInteger"} == {kind}
    pixels = np.full((1, 20640, 1, 1), 255, np.uint8)
    found = players.onnx_player(model.SerializeToString()).output(pixels)
    expected = reference.simulate(network, pixels, {"conv": 8, "layer": 8}, ranges)
    assert expected[0, 0] > 30_000
    np.testing.assert_allclose(found, expected, rtol=0.01)


def test_ranges_that_no_layer_uses_leave_activations_dynamic():
    # 4 bits: layers of that width take none; convolutions keep to 8 bits, and take theirs.
    for make, activations in ((reference.dense, "dynamic"), (reference.images, "calibrated")):
        network = make()
        ranges = reference.calibrate(network, reference.observations(network))
        made = players.onnx_player(onnx_policy.export(network, 4, ranges).SerializeToString())
        assert made.metadata["activations"] == activations


def test_nan_once_seen_stays_in_the_ranges_and_is_refused(zoo):
    agent = finding.load("ppo", "CartPole-v1", zoo.folder)
    calls = []

    def normalize(observations):
        calls.append(len(observations))
        return observations * (np.nan if len(calls) == 2 else 1.0)

    agent.normalize = normalize
    ranges = calibration.ranges(agent, 2)
    assert len(calls) > 5
    for ends in ranges.values():
        assert np.isnan(ends).all()
    with pytest.raises(errors.UserError, match="NaN"):
        onnx_policy.export(agent.network, 8, ranges)
