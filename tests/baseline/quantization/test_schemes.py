"""Simulated quantization of weights and activations."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.agents import calibration
from baseline.agents import finding
from baseline.quantization import acting_path
from baseline.quantization import schemes

WIDTHS = ("2", "3", "4", "8", "16", "24", "32")


def make_network(seed=0):
    """A convolution and two linear layers whose output channels differ in range."""
    generator = torch.Generator().manual_seed(seed)
    layers = (
        ("conv", nn.Conv2d(2, 6, 3)), ("relu", nn.ReLU()), ("flatten", nn.Flatten()),
        ("hidden", nn.Linear(6 * 4 * 4, 12)), ("tanh", nn.Tanh()), ("head", nn.Linear(12, 3)),
    )
    with torch.no_grad():
        for _, module in layers:
            for parameter in module.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
            if isinstance(module, acting_path.WITH_WEIGHTS):
                rows = torch.arange(1, len(module.weight) + 1)
                module.weight *= rows.reshape(-1, *[1] * (module.weight.ndim - 1)) / 4
    return acting_path.PolicyNetwork(layers, "argmax", image=True)


def parameters(network):
    return {
        (name, kind): getattr(module, kind).detach().numpy().copy()
        for name, module in network.with_weights() for kind in ("weight", "bias")
    }


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("8", "8"), (" 8 ", "8"), ("08", "8"), ("int8", "8"), ("INT8", "8"), ("8bit", "8"),
        ("8 bits", "8"), ("8-bit", "8"), ("2", "2"), ("32", "32"), ("fp16", "fp16"),
        ("BF16", "bf16"), ("fp32", "fp32"),
    ],
)
def test_parse_bits(text, width):
    assert schemes.parse_bits(text) == width


@pytest.mark.parametrize(
    "text",
    ["1", "33", "0", "-3", "-8", "--8", "fp8", "abc", "", " ", "8.0", "8,4", "1e1", "int", "bits",
     "fp", "float", "16fp", "9" * 5000, "8 8", "int-8"],
)
def test_impossible_widths_are_an_error(text):
    with pytest.raises(errors.UserError, match="possible are 2 to 32, fp16 and bf16") as caught:
        schemes.parse_bits(text[:20])
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize("rounding", quantization.ROUNDINGS)
@pytest.mark.parametrize("granularity", [schemes.PAPER, schemes.CHANNEL])
@pytest.mark.parametrize("bits", WIDTHS)
def test_weights_are_those_of_the_one_quantizer(bits, granularity, rounding):
    network = make_network()
    before = parameters(network)
    scheme = schemes.Scheme(bits, granularity=granularity, rounding=rounding)
    num_bytes = schemes.quantize_weights(network, scheme)
    after = parameters(network)
    expected_bytes = 0
    for name in ("conv", "hidden", "head"):
        weight, quantized = before[name, "weight"], after[name, "weight"]
        np.testing.assert_array_equal(after[name, "bias"], before[name, "bias"])
        by_channel = name == "conv" or granularity == schemes.CHANNEL
        rows = [*weight] if by_channel else [weight]
        results = [*quantized] if by_channel else [quantized]
        for row, result in zip(rows, results, strict=True):
            stored = quantization.quantize_affine(row, int(bits), rounding)
            np.testing.assert_array_equal(result, quantization.dequantize(stored))
            assert len(np.unique(result)) <= 2 ** int(bits)
            step = (max(row.max(), 0) - min(row.min(), 0)) / 2 ** int(bits)
            # Half a step of the number and half of the zero point; the highest level is 2^n - 1.
            assert np.abs(result - row).max() <= 1.51 * step + 1e-6
        assert np.any(quantized != weight) or int(bits) > 22
        # Integers without gaps, a scale of float32 and a zero point of whole bytes each; biases.
        expected_bytes += -(-weight.size * int(bits) // 8) + 4 * len(weight)
        expected_bytes += len(rows) * (4 + -(-int(bits) // 8))
    assert num_bytes == expected_bytes
    if bits == "32":
        for key, array in before.items():
            np.testing.assert_allclose(after[key], array, rtol=1e-6, atol=1e-7)


def test_halves():
    weights = np.array([0.1, -7.3, 1e-8, 65504.0, 70000.0, -1e30, 3e38], np.float32)
    stored = schemes.quantize_array(weights, schemes.Scheme("fp16"), False)
    np.testing.assert_array_equal(stored.reals[:3], weights[:3].astype(np.float16))
    # Beyond its range: the largest, not infinity.
    np.testing.assert_array_equal(stored.reals[3:], [65504.0, 65504.0, -65504.0, 65504.0])
    assert (stored.num_bytes, stored.reals.dtype) == (14, np.float32)
    stored = schemes.quantize_array(weights, schemes.Scheme("bf16"), False)
    expected = torch.from_numpy(weights[:6]).bfloat16().float().numpy()
    np.testing.assert_array_equal(stored.reals[:6], expected)
    assert np.isfinite(stored.reals).all() and stored.num_bytes == 14


@pytest.mark.parametrize("bits", ["fp16", "bf16", "fp32"])
def test_float_widths_of_a_network(bits):
    network = make_network()
    before = parameters(network)
    num_bytes = schemes.quantize_weights(network, schemes.Scheme(bits))
    count = sum(array.size for (_, kind), array in before.items() if kind == "weight")
    biases = sum(array.size for (_, kind), array in before.items() if kind == "bias")
    assert num_bytes == (4 if bits == "fp32" else 2) * count + 4 * biases
    for key, array in parameters(network).items():
        if bits == "fp32" or key[1] == "bias":
            np.testing.assert_array_equal(array, before[key])
        else:
            assert (array != before[key]).any()


@pytest.mark.parametrize("bits", ["8", "32", "fp16", "bf16", "fp32"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_an_error(bits, bad):
    weights = np.array([1.0, bad], np.float32)
    with pytest.raises(errors.UserError, match="NaN or infinity"):
        schemes.quantize_array(weights, schemes.Scheme(bits), False)


def test_layers_without_biases():
    network = acting_path.PolicyNetwork((("a", nn.Linear(3, 2, bias=False)),), "argmax")
    assert schemes.quantize_weights(network, schemes.Scheme("8")) == 6 + 5


def simulated(x, low, high, bits, rounding):
    """Quantizes and dequantizes in float64, from the paper's text alone."""
    low, high = min(low, 0.0), max(high, 0.0)
    delta = (high - low) / 2**bits or 1.0
    to_integer = np.floor if rounding == "floor" else np.round
    zero = min(to_integer(-low / delta), 2**bits - 1)
    return delta * (np.clip(to_integer(x / delta) + zero, 0, 2**bits - 1) - zero)


def expected_output(network, inputs, scheme, ranges):
    """Computes a network of flat inputs, activations quantized, in float64."""
    def tap(name, x):
        if scheme.bits == "fp16":
            return np.clip(x, -65504, 65504).astype(np.float16).astype(np.float64)
        if scheme.bits == "bf16":
            tensor = torch.from_numpy(x.astype(np.float32))
            return tensor.bfloat16().double().numpy()
        return simulated(x, *ranges[name], int(scheme.bits), scheme.rounding)

    x = inputs.astype(np.float64)
    for name, module in network.layers:
        if isinstance(module, nn.Linear):
            weight, bias = (p.detach().double().numpy() for p in module.parameters())
            x = tap(name, x) @ weight.T + bias
        elif isinstance(module, nn.Tanh):
            x = np.tanh(x)
    return tap(acting_path.OUTPUT, x)


@pytest.mark.parametrize("rounding", quantization.ROUNDINGS)
@pytest.mark.parametrize("bits", ["2", "4", "8", "16", "24", "fp16", "bf16"])
def test_activations_are_those_of_an_independent_simulation(zoo, bits, rounding):
    agent = finding.load("ppo", "CartPole-v1", zoo.folder)
    inputs = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    ranges = {"mlp_extractor.policy_net.0": (-1.5, 2.0), "mlp_extractor.policy_net.2": (-0.9, 0.8),
              "action_net": (-0.5, 0.9), acting_path.OUTPUT: (0.5, 3.0)}
    scheme = schemes.Scheme(bits, schemes.WEIGHTS_AND_ACTIVATIONS, rounding=rounding)
    schemes.quantize_weights(agent.network, scheme)
    tap = schemes.ActivationQuantizer(scheme, ranges)
    actual = acting_path.forward(agent.network, inputs, tap).numpy()
    expected = expected_output(agent.network, inputs, scheme, ranges)
    assert actual.dtype == np.float32
    # Where float32 and float64 round to two neighbours, outputs differ by a step.
    close = np.isclose(actual, expected, rtol=1e-4, atol=1e-5)
    assert close.mean() > 0.98
    if bits.isdecimal() and int(bits) <= 8:
        assert len(np.unique(actual)) <= 2 ** int(bits)
        assert actual.min() >= -1e-6 and actual.max() <= 3.0


def test_activations_outside_of_their_range_are_clamped():
    scheme = schemes.Scheme("8", schemes.WEIGHTS_AND_ACTIVATIONS)
    tap = schemes.ActivationQuantizer(scheme, {"a": (-1.0, 1.0), "zero": (0.0, 0.0)})
    x = torch.tensor([-9.0, -1.0, 0.0, 0.004, 1.0, 9.0])
    step = 2 / 256
    expected = [-128 * step, -128 * step, 0.0, step, 127 * step, 127 * step]
    np.testing.assert_allclose(tap("a", x).numpy(), expected, rtol=1e-6)
    np.testing.assert_array_equal(tap("zero", torch.zeros(2)).numpy(), [0.0, 0.0])
    assert tap("of no range", x) is x
    half = schemes.ActivationQuantizer(
        schemes.Scheme("fp16", schemes.WEIGHTS_AND_ACTIVATIONS), {}
    )
    assert half("a", torch.tensor([1e6])).item() == 65504.0


def test_activations_without_a_range_are_an_error():
    scheme = schemes.Scheme("8", schemes.WEIGHTS_AND_ACTIVATIONS)
    with pytest.raises(errors.UserError, match="Activations of a: .*NaN or infinity"):
        schemes.ActivationQuantizer(scheme, {"a": (0.0, float("nan"))})


@pytest.mark.parametrize("bits", ["8", "fp16"])
@pytest.mark.parametrize("scheme", schemes.SCHEMES)
def test_json_round_trip(zoo, bits, scheme):
    agent = finding.load("ppo", "CartPole-v1", zoo.folder)
    ranges = calibration.ranges(agent, 1) if scheme == schemes.WEIGHTS_AND_ACTIVATIONS else None
    facts = schemes.Scheme(bits, scheme, schemes.CHANNEL, "floor")
    text = json.dumps(schemes.to_json(facts, ranges))
    assert schemes.from_json(json.loads(text)) == (facts, ranges)


def test_scheme_says_what_it_is():
    assert schemes.Scheme("8").width == 8 and schemes.Scheme("fp16").width is None
    assert not schemes.Scheme("8").activations
    assert schemes.Scheme("8", schemes.WEIGHTS_AND_ACTIVATIONS).activations
