import collections
import copy

import numpy as np
from onnx import numpy_helper
import pytest
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import packing
from actorQ.policy import quantization
from baseline.agents import agreement
from baseline.agents import zoo_files
from baseline.formats import names as deploy_formats
from baseline.formats import onnx_policy
from baseline.quantization import acting_path
from baseline.quantization import names
from baseline.quantization import schemes
from tests.baseline import integer_reference as reference
from tests.baseline import players

FLOAT_KINDS = {"Gemm", "FusedGemm", "MatMul", "FusedMatMul", "Conv", "FusedConv"}
POLICIES = {
    "tanh": lambda: reference.dense(nn.Tanh),
    "relu": lambda: reference.dense(nn.ReLU),
    "elu, continuous": lambda: reference.dense(nn.ELU, head="clip"),
    "relu, squashed": lambda: reference.dense(nn.ReLU, (3, 40, 30, 2), head="scale"),
    "images": reference.images,
    "images, padded": lambda: reference.images(padding=1),
    "images, tanh": lambda: reference.images(tail=nn.Tanh),
}


def constants_of(model):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def content(model):
    return model.SerializeToString()


def runner(network, *args, **kwargs):
    return players.onnx_player(content(onnx_policy.export(network, *args, **kwargs)))


def kernels(network, inputs, *args, **kwargs):
    return collections.Counter(runner(network, *args, **kwargs).kernels(inputs))


def levels_off(outputs, expected, ranges):
    """Returns by how many of the output's 256 levels two outputs differ at most."""
    step, _ = reference.affine(*ranges[acting_path.OUTPUT], 8)
    return np.abs(outputs - expected).max() / step


def all_8_bits(network):
    return {name: 8 for name, _ in network.with_weights()}


@pytest.mark.parametrize("granularity", names.GRANULARITIES)
@pytest.mark.parametrize("policy", POLICIES)
def test_export_8_bits_computes_what_the_simulation_does(policy, granularity):
    network = POLICIES[policy]()
    inputs = reference.observations(network)
    ranges = reference.calibrate(network, inputs)
    made = runner(network, 8, ranges, granularity)
    expected = reference.simulate(network, inputs, all_8_bits(network), ranges, granularity)
    outputs = made.output(inputs)
    # Only ties of the last rounding may differ.
    assert levels_off(outputs, expected, ranges) < 1.01
    assert np.mean(np.abs(outputs - expected) > 1e-5) < 0.01
    close = agreement.compare(
        acting_path.to_actions(network, expected.astype(np.float32)), made(inputs),
        network.low, network.high,
    )
    assert close.holds, close


@pytest.mark.parametrize("policy", ["tanh", "relu", "images"])
def test_export_8_bits_agrees_with_the_projects_simulated_form(policy):
    network = POLICIES[policy]()
    inputs = reference.observations(network)
    ranges = reference.calibrate(network, inputs)
    made = runner(network, 8, ranges)
    simulated = copy.deepcopy(network)
    scheme = schemes.Scheme("8", schemes.WEIGHTS_AND_ACTIVATIONS)
    schemes.quantize_weights(simulated, scheme)
    tap = schemes.ActivationQuantizer(scheme, ranges)
    expected = acting_path.forward(simulated, inputs, tap).numpy()
    assert levels_off(made.output(inputs), expected, ranges) < 1.01
    equal = agreement.compare(acting_path.to_actions(network, expected), made(inputs))
    assert equal.holds, equal


def test_export_without_the_outputs_range_leaves_it_in_floats():
    network = reference.dense()
    inputs = reference.observations(network)
    ranges = reference.calibrate(network, inputs)
    del ranges[acting_path.OUTPUT]
    expected = reference.simulate(network, inputs, all_8_bits(network), ranges)
    np.testing.assert_allclose(runner(network, 8, ranges).output(inputs), expected, atol=2e-2)
    assert len(np.unique(runner(network, 8, ranges).output(inputs))) > 256


@pytest.mark.parametrize("granularity", names.GRANULARITIES)
def test_export_8_bits_holds_exactly_the_integers_of_the_formula(granularity):
    network = reference.images()
    model = onnx_policy.export(network, 8, None, granularity)
    constants = constants_of(model)
    for name, module in network.with_weights():
        convolution = isinstance(module, nn.Conv2d)
        weights = module.weight.detach().numpy()
        expected = quantization.quantize_affine(
            weights, 8, per_channel=convolution or granularity == "channel"
        )
        stored = constants[f"{name}.weight"]
        assert stored.dtype == np.uint8
        np.testing.assert_array_equal(stored if convolution else stored.T, expected.values)
        np.testing.assert_array_equal(constants[f"{name}.weight_scale"].ravel(), expected.scale)
        np.testing.assert_array_equal(
            constants[f"{name}.weight_zero_point"].ravel(), np.ravel(expected.zero_point)
        )


@pytest.mark.parametrize("granularity", names.GRANULARITIES)
@pytest.mark.parametrize("inputs", [3, 16, 40, 300])
def test_export_4_bits_holds_exactly_the_integers_of_the_formula(inputs, granularity):
    network = reference.dense(sizes=(inputs, 17, 4))
    constants = constants_of(onnx_policy.export(network, 4, None, granularity))
    for name, module in network.with_weights():
        expected = quantization.quantize_affine(
            module.weight.detach().numpy(), 4, "nearest", granularity == "channel"
        )
        packed = constants[f"{name}.weight"]
        values = packing.unpack(packed.ravel(), 4, 2 * packed.size).reshape(len(packed), -1)
        np.testing.assert_array_equal(values[:, : module.in_features], expected.values)
        # The padding stands for zero.
        padding = values[:, module.in_features :] - np.reshape(expected.zero_point, (-1, 1))
        assert not padding.any()


@pytest.mark.parametrize(
    ("policy", "kinds"),
    [
        ("tanh", {"MatMulIntegerToFloat"}),
        ("relu", {"MatMulIntegerToFloat"}),
        ("images", {"QLinearConv", "MatMulIntegerToFloat"}),
        ("images, tanh", {"QLinearConv", "ConvInteger", "MatMulIntegerToFloat"}),
    ],
)
def test_export_8_bits_runs_on_integer_kernels(policy, kinds):
    network = POLICIES[policy]()
    inputs = reference.observations(network, 2)
    ran = kernels(network, inputs, 8, reference.calibrate(network, inputs))
    products = {"QGemm", "QLinearMatMul", "QLinearConv", "ConvInteger", "MatMulIntegerToFloat"}
    assert products & set(ran) == kinds
    assert sum(ran[kind] for kind in kinds) == len(network.with_weights())
    assert not FLOAT_KINDS & set(ran), ran


@pytest.mark.parametrize(
    ("policy", "bits", "kinds"),
    [
        ("relu", 8, {"DynamicQuantizeMatMul": 3}),
        ("images", 8, {"ConvInteger": 2, "DynamicQuantizeMatMul": 2}),
        ("relu", 4, {"MatMulNBits": 3}),
        ("images", 4, {"ConvInteger": 2, "MatMulNBits": 2}),
    ],
)
def test_export_without_ranges_runs_on_integer_kernels(policy, bits, kinds):
    network = POLICIES[policy]()
    ran = kernels(network, reference.observations(network, 2), bits)
    assert {kind: ran[kind] for kind in kinds} == kinds
    assert not FLOAT_KINDS & set(ran), ran


def test_kernels_sees_float_kernels_where_they_are():
    # The tests above would hold for ever if it saw nothing.
    network = reference.images()
    ran = kernels(network, reference.observations(network, 2), 32)
    assert ran["Conv"] + ran["FusedConv"] == 2 and ran["Gemm"] + ran["FusedGemm"] == 2


@pytest.mark.parametrize("policy", POLICIES)
def test_export_32_bits_computes_what_torch_does(policy):
    network = POLICIES[policy]()
    inputs = reference.observations(network)
    made = runner(network, 32)
    expected = acting_path.forward(network, inputs).numpy()
    np.testing.assert_allclose(made.output(inputs), expected, atol=2e-6)
    actions = acting_path.to_actions(network, made.output(inputs))
    np.testing.assert_array_equal(made(inputs), actions)
    assert made(inputs).dtype == actions.dtype


def test_export_16_bits_stores_halves():
    network = reference.dense(sizes=(6, 256, 128, 4))
    inputs = reference.observations(network)
    full, half = runner(network, 32), runner(network, 16)
    assert half.weight_bytes < 0.52 * full.weight_bytes
    np.testing.assert_allclose(half.output(inputs), full.output(inputs), atol=2e-3)
    with torch.no_grad():
        network.layers[1][1].weight.mul_(1e6)  # Halves cannot hold these.
    assert np.all(np.isfinite(runner(network, 16).output(inputs)))


@pytest.mark.parametrize("policy", POLICIES)
def test_export_8_bits_dynamic_quantizes_inputs_by_what_it_meets(policy):
    network = POLICIES[policy]()
    inputs = reference.observations(network, 20)
    made = runner(network, 8)
    full = acting_path.forward(network, inputs).numpy()
    weights_only = reference.simulate(network, inputs, all_8_bits(network))
    assert np.abs(made.output(inputs) - weights_only).max() < 0.03 * np.ptp(full)
    assert not np.allclose(made.output(inputs), weights_only, atol=1e-7)
    # Other observations of a call change nothing.
    one_by_one = np.concatenate([made.output(inputs[i : i + 1]) for i in range(len(inputs))])
    np.testing.assert_array_equal(made.output(inputs), one_by_one)


@pytest.mark.parametrize("granularity", names.GRANULARITIES)
def test_export_8_bits_dynamic_computes_with_the_formulas_weights(granularity):
    # The input has 255 equal steps, so that quantizing it loses nothing.
    network = reference.dense(sizes=(16, 9), head="clip")
    inputs = np.random.default_rng(0).integers(0, 256, (1, 16)).astype(np.float32)
    inputs[0, :2] = 0, 255
    expected = reference.simulate(network, inputs, {"layer_0": 8}, None, granularity)
    made = runner(network, 8, None, granularity)
    np.testing.assert_allclose(made.output(inputs), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("granularity", names.GRANULARITIES)
def test_export_4_bits_computes_with_the_formulas_weights(granularity):
    # Inputs are whole numbers with the extremes of int8 in every block: rounding loses nothing.
    network = reference.dense(sizes=(64, 9), head="clip")
    inputs = np.random.default_rng(0).integers(-127, 128, (3, 64)).astype(np.float32)
    inputs[:, ::16] = 127
    expected = reference.simulate(network, inputs, {"layer_0": 4}, None, granularity)
    made = runner(network, 4, None, granularity)
    np.testing.assert_allclose(made.output(inputs), expected, rtol=1e-4, atol=1e-3)


def test_export_4_bits_keeps_convolutions_at_8():
    network = reference.images()
    inputs = reference.observations(network)
    model = onnx_policy.export(network, 4, reference.calibrate(network, inputs))
    made = players.onnx_player(content(model))
    assert made.metadata["layer_bits"] == {"conv_0": 8, "conv_1": 8, "layer_0": 4, "layer_1": 4}
    expected = reference.simulate(network, inputs, made.metadata["layer_bits"])
    assert np.abs(made.output(inputs) - expected).max() < 0.05 * np.ptp(expected)
    constants = constants_of(model)
    assert constants["conv_0.weight"].nbytes == network.layers[0][1].weight.numel()


def test_export_biases_too_large_for_int32_stay_floats():
    network = reference.images()
    with torch.no_grad():
        network.layers[2][1].weight.mul_(1e-12)
    inputs = reference.observations(network)
    ranges = reference.calibrate(network, inputs)
    made = runner(network, 8, ranges)
    expected = reference.simulate(network, inputs, all_8_bits(network), ranges)
    assert levels_off(made.output(inputs), expected, ranges) < 1.01
    ran = kernels(network, inputs, 8, ranges)
    assert (ran["QLinearConv"], ran["ConvInteger"]) == (1, 1)


def test_export_relu_where_the_range_goes_below_zero():
    network = reference.dense(nn.ReLU)
    inputs = reference.observations(network)
    ranges = reference.calibrate(network, inputs)
    ranges["layer_1"] = (-0.7, ranges["layer_1"][1])  # A user set it by hand.
    made = runner(network, 8, ranges)
    expected = reference.simulate(network, inputs, all_8_bits(network), ranges)
    assert levels_off(made.output(inputs), expected, ranges) < 1.01


@pytest.mark.parametrize("ranged", [True, False])
def test_export_convolution_zero_points_at_both_ends(ranged):
    # Channels all positive, all negative and mixed have the zero points 0, 255 and between.
    network = reference.images()
    with torch.no_grad():
        for name, module in network.with_weights():
            if name.startswith("conv"):
                module.weight[0].abs_().add_(0.01)
                module.weight[1].abs_().mul_(-1).sub_(0.01)
                module.weight[2].zero_()
    zero_points = quantization.quantize_affine(
        network.layers[0][1].weight.detach().numpy(), 8, per_channel=True
    ).zero_point
    assert {0, 255} <= set(zero_points.tolist())
    inputs = reference.observations(network)
    ranges = reference.calibrate(network, inputs)
    made = runner(network, 8, ranges if ranged else None)
    expected = reference.simulate(
        network, inputs, all_8_bits(network), ranges if ranged else None
    )
    if ranged:
        assert levels_off(made.output(inputs), expected, ranges) < 1.01
    else:
        assert np.abs(made.output(inputs) - expected).max() < 0.03 * np.ptp(expected)


def test_export_extreme_products_do_not_saturate():
    # All inputs are 255 and all weights extremes, so that sums of pairs exceed 16 bits.
    network = reference.dense(nn.ReLU, sizes=(64, 8, 2))
    with torch.no_grad():
        network.layers[1][1].weight[:4] = 1.0
        network.layers[1][1].weight[4:] = -1.0
    inputs = np.ones((2, 64), np.float32)
    ranges = {"layer_0": (0.0, 1.0), "layer_1": (0.0, 70.0), acting_path.OUTPUT: (-30.0, 30.0)}
    made = runner(network, 8, ranges)
    expected = reference.simulate(network, inputs, all_8_bits(network), ranges)
    assert levels_off(made.output(inputs), expected, ranges) < 1.01


@pytest.mark.parametrize("value", [0.0, 0.3, -2.0])
def test_export_constant_weights(value):
    network = reference.dense(nn.ReLU)
    with torch.no_grad():
        network.layers[3][1].weight.fill_(value)
    inputs = reference.observations(network)
    ranges = reference.calibrate(network, inputs)
    for bits, given in ((8, ranges), (8, None), (4, None)):
        outputs = runner(network, bits, given).output(inputs)
        expected = reference.simulate(
            network, inputs, {name: bits for name in all_8_bits(network)}, given
        )
        assert np.abs(outputs - expected).max() < 0.05 * max(np.ptp(expected), 0.1)


def test_export_pixels_enter_as_they_are_where_the_range_says_so():
    network = reference.images()
    inputs = reference.observations(network)
    ranges = reference.calibrate(network, inputs)
    converted = kernels(network, inputs, 8, ranges)
    ranges["conv_0"] = (0.0, 256 / 255)  # Its steps are a 255th.
    direct = kernels(network, inputs, 8, ranges)
    assert (converted["QuantizeLinear"], direct["QuantizeLinear"]) == (3, 2)
    made = runner(network, 8, ranges)
    expected = reference.simulate(network, inputs, all_8_bits(network), ranges)
    assert levels_off(made.output(inputs), expected, ranges) < 1.01


def test_export_normalization_inside_gives_the_actions_of_normalization_outside():
    network = reference.dense()
    inputs = reference.observations(network)
    rng = np.random.default_rng(0)
    normalization = zoo_files.Normalization(
        rng.standard_normal(6), rng.uniform(0.1, 9, 6), 100.0, 1.5, 1e-8
    )
    outside = runner(network, 32)
    inside = runner(network, 32, normalization=normalization)
    assert inside.metadata["normalizes"] and not outside.metadata["normalizes"]
    np.testing.assert_allclose(
        inside.output(inputs), outside.output(normalization(inputs)), atol=1e-5
    )


def test_export_normalization_of_observations_that_are_flattened():
    network = reference.dense()
    inputs = reference.observations(network)
    rng = np.random.default_rng(0)
    stacked = zoo_files.Normalization(
        rng.standard_normal((3, 2)), rng.uniform(0.1, 9, (3, 2)), 100.0, 1.5, 1e-8
    )
    outside = runner(network, 32).output(stacked.flat()(inputs))
    inside = runner(network, 32, normalization=stacked).output(inputs)
    np.testing.assert_allclose(inside, outside, atol=1e-5)


def test_export_takes_integers_from_elsewhere():
    network = reference.dense()
    weights = {
        name: quantization.quantize_affine(module.weight.detach().numpy() * 2, 8)
        for name, module in network.with_weights()
    }
    constants = constants_of(onnx_policy.export(network, 8, weights=weights))
    for name, given in weights.items():
        np.testing.assert_array_equal(constants[f"{name}.weight"].T, given.values)
        assert constants[f"{name}.weight_scale"] == given.scale[0]
    with pytest.raises(ValueError, match="layer_0: 8 bits.* instead of 4 bits"):
        onnx_policy.export(network, 4, weights=weights)


def test_export_is_deterministic_and_leaves_the_network_alone():
    network = reference.images()
    before = [module.weight.detach().clone() for _, module in network.with_weights()]
    assert content(onnx_policy.export(network, 4)) == content(onnx_policy.export(network, 4))
    for (_, module), weight in zip(network.with_weights(), before, strict=True):
        assert torch.equal(module.weight, weight)


def test_export_sizes_shrink_with_the_width():
    network = reference.dense(sizes=(8, 256, 256, 4))
    widths = deploy_formats.WIDTHS["onnx"]
    sizes = [len(content(onnx_policy.export(network, bits))) for bits in widths]
    full = sizes[0]
    for size, share in zip(sizes, (1.0, 0.5, 0.25, 0.125), strict=True):
        assert size / full == pytest.approx(share, abs=0.03)


def test_export_says_what_it_is():
    network = reference.dense(head="clip")
    ranges = reference.calibrate(network, reference.observations(network))
    metadata = runner(network, 8, ranges, "channel").metadata
    assert metadata["bits"] == 8 and metadata["granularity"] == "channel"
    assert metadata["activations"] == "calibrated" and metadata["head"] == "clip"
    np.testing.assert_allclose(metadata["low"], network.low)
    assert runner(network, 8).metadata["activations"] == "dynamic"
    assert runner(reference.dense(), 32).metadata["low"] is None


def not_finite():
    network = reference.dense()
    with torch.no_grad():
        network.layers[1][1].weight[0, 0] = float("nan")
    return network


def with_layer(module):
    network = reference.dense()
    return network._replace(layers=(*network.layers, ("odd", module)))


@pytest.mark.parametrize(
    ("make", "kwargs", "message"),
    [
        (reference.dense, {"bits": 7}, "no onnx file of 7 bits. Possible are onnx: 32, 16, 8, 4"),
        (reference.dense, {"bits": 16, "ranges": {}}, "for 8 or 4 bits, not for 16"),
        (reference.dense, {"bits": 8, "ranges": {}}, "no range for the input of layer_0"),
        (
            reference.dense, {"bits": 8, "ranges": {"layer_0": (0.0, float("inf"))}},
            "Activations of layer_0: .*infinity",
        ),
        (not_finite, {"bits": 8}, "Weights of layer_0: .*NaN"),
        (lambda: with_layer(nn.PReLU()), {"bits": 8}, "odd, a PReLU, has no integer form"),
        (lambda: with_layer(nn.Flatten(2)), {"bits": 8}, "odd flattens other axes"),
        (
            lambda: acting_path.PolicyNetwork((("f", nn.Flatten()),), "argmax"), {"bits": 8},
            "no layer with weights",
        ),
        (
            lambda: acting_path.PolicyNetwork(
                (("c", nn.Conv2d(4, 4, 3, groups=2)), ("f", nn.Flatten()), ("l", nn.Linear(4, 2))),
                "argmax", image=True,
            ),
            {"bits": 8}, "no integer form of Conv2d.*groups=2",
        ),
    ],
)
def test_export_impossible_says_why(make, kwargs, message):
    with pytest.raises(errors.UserError, match=message):
        onnx_policy.export(make(), **kwargs)
