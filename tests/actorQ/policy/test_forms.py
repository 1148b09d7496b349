"""Tests `actorQ.policy.forms`: which coding travels, and what actors compute with."""

import itertools

import numpy as np
import pytest

from actorQ.core import errors
from actorQ.policy import forms
from actorQ.policy import model_update
from actorQ.policy import quantization
from actorQ.wire import messages

WIDTHS = (2, 4, 7, 8, 12, 16, 32)
GRID = list(itertools.product((32, 16, 8), WIDTHS, (0, 1)))

# (quantize, quantize_communication, weight_compress): how a matrix travels, written out by hand.
# Bits are those of affine coding; a string is the scheme's own form.
TRAVELS = {
    (32, 2, 0): 2, (32, 4, 0): 4, (32, 7, 0): 7, (32, 8, 0): 8,
    (32, 12, 0): 12, (32, 16, 0): 16, (32, 32, 0): "float32",
    (16, 2, 0): 2, (16, 4, 0): 4, (16, 7, 0): 7, (16, 8, 0): 8,
    (16, 12, 0): 12, (16, 16, 0): "float16", (16, 32, 0): "float16",
    (8, 2, 0): 2, (8, 4, 0): 4, (8, 7, 0): 7, (8, 8, 0): "int8",
    (8, 12, 0): "int8", (8, 16, 0): "int8", (8, 32, 0): "int8",
    (32, 2, 1): 2, (32, 4, 1): 4, (32, 7, 1): 7, (32, 8, 1): 8,
    (32, 12, 1): 8, (32, 16, 1): 8, (32, 32, 1): 8,
    (16, 2, 1): 2, (16, 4, 1): 4, (16, 7, 1): 7, (16, 8, 1): 8,
    (16, 12, 1): 8, (16, 16, 1): 8, (16, 32, 1): 8,
    (8, 2, 1): 2, (8, 4, 1): 4, (8, 7, 1): 7, (8, 8, 1): "int8",
    (8, 12, 1): "int8", (8, 16, 1): "int8", (8, 32, 1): "int8",
}  # fmt: skip


def random_weights(seed=0):
    """A convolution, a matrix and their biases."""
    rng = np.random.default_rng(seed)
    shapes = {"conv_0.weight": (4, 3, 2, 2), "conv_0.bias": (4,), "head.weight": (5, 6),
              "head.bias": (5,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def travelling_form(tensor):
    """Names the coding of a tensor as `TRAVELS` does."""
    if not isinstance(tensor, quantization.QuantizedTensor):
        return tensor.dtype.name
    if tensor.values.dtype == np.int8:
        assert tensor.scale.shape == tensor.values.shape[:1]
        return "int8"
    assert tensor.scale.shape == (1,)
    return tensor.bits


def numbers_of(tensor):
    """What a tensor stands for, worked out here."""
    if not isinstance(tensor, quantization.QuantizedTensor):
        return tensor.astype(np.float64)
    scale = tensor.scale.astype(np.float64)
    if scale.size > 1:
        scale = scale.reshape((-1,) + (1,) * (tensor.values.ndim - 1))
    return scale * (tensor.values.astype(np.float64) - tensor.zero_point)


@pytest.mark.parametrize(("quantize", "communication", "compress"), GRID)
def test_to_actor_form_grid_sends_the_documented_coding(quantize, communication, compress):
    weights = random_weights()
    update = forms.to_actor_form(weights, 9, quantize, communication, bool(compress))
    expected = TRAVELS[quantize, communication, compress]
    assert update.version == 9
    assert update.scheme == {32: "float32", 16: "float16", 8: "int8"}[quantize]
    assert list(update.tensors) == list(weights)
    for name in ("conv_0.weight", "head.weight"):
        assert travelling_form(update.tensors[name]) == expected
    for name in ("conv_0.bias", "head.bias"):
        assert travelling_form(update.tensors[name]) == (8 if compress else "float32")


def test_to_actor_form_travelling_width_is_the_narrowest_asked_for():
    for (quantize, communication, compress), form in TRAVELS.items():
        widths = {"float32": 32, "float16": 16, "int8": 8}
        narrowest = min(quantize, communication, 8 if compress else 32)
        assert widths.get(form, form) == narrowest


@pytest.mark.parametrize(("quantize", "communication", "compress"), GRID)
def test_expand_grid_gives_what_the_scheme_computes_with(quantize, communication, compress):
    weights = random_weights(1)
    update = forms.to_actor_form(weights, 9, quantize, communication, bool(compress))
    received = messages.decode(*messages.encode(update))
    expanded = forms.expand(received)
    assert list(expanded) == list(weights)
    for name, tensor in expanded.items():
        sent = numbers_of(update.tensors[name])
        assert model_update.shape_of(tensor) == weights[name].shape
        if name.endswith("bias") or quantize == 32:
            assert tensor.dtype == np.float32
            np.testing.assert_allclose(tensor, sent, rtol=2e-7, atol=1e-9)
        elif quantize == 16:
            assert tensor.dtype == np.float16
            # Rounding to fp16 on top of what travelled: 11 bits of precision.
            np.testing.assert_allclose(tensor.astype(np.float64), sent, rtol=2.0**-11, atol=1e-7)
        else:
            assert tensor.values.dtype == np.int8
            assert tensor.scale.shape == weights[name].shape[:1]
            # Exactly what travelled: per channel int8, or up to 7 bits of affine integers.
            np.testing.assert_allclose(numbers_of(tensor), sent, rtol=1e-12)


@pytest.mark.parametrize("bits", range(2, 8))
def test_expand_narrow_integers_for_int8_actors_lose_nothing(bits):
    weights = random_weights(bits)
    narrow = forms.expand(forms.to_actor_form(weights, 0, 8, bits))
    wide = forms.expand(forms.to_actor_form(weights, 0, 32, bits))
    for name in ("conv_0.weight", "head.weight"):
        np.testing.assert_array_equal(model_update.to_float32(narrow[name]), wide[name])


def group_weights():
    """A convolution, a matrix that is computed in groups, and a head."""
    rng = np.random.default_rng(5)
    shapes = {"conv_0.weight": (4, 3, 2, 2), "linear_0.weight": (9, 130), "head.weight": (5, 9)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(("quantize", "scheme", "levels"), [(4, "int4", 7), (3, "int3", 3)])
@pytest.mark.parametrize("communication", [32, 8, 4])
def test_4_and_3_bits_travel_and_arrive_as_groups(quantize, scheme, levels, communication):
    update = forms.to_actor_form(group_weights(), 9, quantize, communication)
    assert update.scheme == scheme
    expanded = forms.expand(messages.decode(*messages.encode(update)))
    for name, tensor in expanded.items():
        in_groups = name == "linear_0.weight"
        assert tensor.bits == (quantize if in_groups else 8)
        assert tensor.scale.shape == ((9, 3) if in_groups else tensor.values.shape[:1])
        assert np.abs(tensor.values).max() == (levels if in_groups else 127)
        np.testing.assert_array_equal(tensor.values, update.tensors[name].values)
        np.testing.assert_array_equal(tensor.scale, update.tensors[name].scale)


@pytest.mark.parametrize(("quantize", "communication"), [(4, 3), (4, 2), (3, 2)])
def test_expand_narrower_integers_for_groups_keep_their_values(quantize, communication):
    update = forms.to_actor_form(group_weights(), 9, quantize, communication)
    expanded = forms.expand(messages.decode(*messages.encode(update)))
    for name, tensor in expanded.items():
        sent = update.tensors[name]
        assert sent.bits == communication and sent.scale.shape == (1,)
        np.testing.assert_array_equal(
            tensor.values, sent.values.astype(int) - sent.zero_point
        )
        in_groups = name == "linear_0.weight"
        assert tensor.scale.shape == ((9, 3) if in_groups else tensor.values.shape[:1])
        # bfloat16 has 8 bits of precision.
        np.testing.assert_allclose(tensor.scale, sent.scale[0], rtol=2.0**-8 if in_groups else 0)


def test_expand_groups_of_another_width_are_quantized_again():
    for bits, scheme, found in ((4, "int3", 3), (3, "int4", 4)):
        tensors = forms.to_actor_form(group_weights(), 0, bits).tensors
        tensor = forms.expand(model_update.ModelUpdate(0, scheme, tensors))["linear_0.weight"]
        numbers = quantization.dequantize(tensors["linear_0.weight"])
        expected = quantization.quantize_int4_groups(numbers, found)
        assert tensor.bits == found
        np.testing.assert_array_equal(tensor.values, expected.values)


def test_expand_float_weights_for_int8_actors_are_quantized_on_arrival():
    weights = random_weights()
    expanded = forms.expand(model_update.ModelUpdate(0, "int8", weights))
    expected = np.abs(weights["head.weight"]).max(axis=1) / 127
    np.testing.assert_allclose(expanded["head.weight"].scale, expected, rtol=1e-6)
    assert expanded["head.weight"].values.dtype == np.int8


@pytest.mark.parametrize(("quantize", "error"), [(32, 0.0), (16, 2.0**-11), (8, 0.5 / 127)])
def test_to_actor_form_own_form_is_within_its_precision(quantize, error):
    weights = random_weights(3)
    update = forms.to_actor_form(weights, 0, quantize)
    largest = np.abs(weights["head.weight"]).max(axis=1, keepdims=True)
    difference = np.abs(numbers_of(update.tensors["head.weight"]) - weights["head.weight"])
    assert np.all(difference <= 1.0001 * error * largest)
    np.testing.assert_array_equal(update.tensors["head.bias"], weights["head.bias"])


def test_to_actor_form_fp16_saturates_instead_of_overflowing():
    weights = {"head.weight": np.array([[1e6, -1e6], [65504, 65519]], np.float32)}
    sent = forms.to_actor_form(weights, 0, 16).tensors["head.weight"]
    assert sent.tolist() == [[65504.0, -65504.0], [65504.0, 65504.0]]
    assert forms.expand(forms.to_actor_form(weights, 0, 16))["head.weight"].tolist() == (
        sent.tolist()
    )


def test_expand_integers_beyond_fp16_saturate_for_fp16_actors():
    weights = {"head.weight": np.array([[1e6, -1e6], [0.0, 1.0]], np.float32)}
    expanded = forms.expand(forms.to_actor_form(weights, 0, 16, 8))["head.weight"]
    assert expanded.tolist() == [[65504.0, -65504.0], [0.0, 0.0]]


@pytest.mark.parametrize("quantize", [32, 16, 8])
@pytest.mark.parametrize("compress", [False, True])
def test_to_actor_form_nan_never_reaches_the_wire(quantize, compress):
    for name in ("head.weight", "head.bias"):
        weights = random_weights()
        weights[name].reshape(-1)[2] = np.nan
        with pytest.raises(ValueError, match="NaN or infinity"):
            messages.encode(forms.to_actor_form(weights, 0, quantize, 32, compress))


@pytest.mark.parametrize("quantize", [32, 16, 8])
def test_to_actor_form_infinity_never_reaches_the_wire(quantize):
    weights = random_weights()
    weights["head.weight"][0, 0] = np.inf
    with pytest.raises(ValueError, match="NaN or infinity"):
        messages.encode(forms.to_actor_form(weights, 0, quantize))


def test_to_actor_form_leaves_the_weights_alone():
    weights = random_weights()
    before = {name: array.copy() for name, array in weights.items()}
    for quantize, communication, compress in GRID:
        forms.to_actor_form(weights, 0, quantize, communication, bool(compress))
    for name, array in before.items():
        np.testing.assert_array_equal(weights[name], array)


def test_from_sonnet_transposes_linear_and_convolution():
    linear = np.arange(6, dtype=np.float32).reshape(2, 3)
    conv = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)  # Height, width, in, out.
    converted = forms.from_sonnet({
        "linear_0/w": linear, "linear_0/b": np.ones(3, np.float32), "conv_0/w": conv,
        "conv_0/b": np.zeros(5, np.float32),
    })
    assert converted["linear_0.weight"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert converted["linear_0.bias"].tolist() == [1, 1, 1]
    assert converted["conv_0.weight"].shape == (5, 4, 2, 3)
    for out, inp, row, column in itertools.product(range(5), range(4), range(2), range(3)):
        assert converted["conv_0.weight"][out, inp, row, column] == conv[row, column, inp, out]
    assert all(array.flags.c_contiguous for array in converted.values())


def test_from_sonnet_order_does_not_matter():
    rng = np.random.default_rng(0)
    variables = {
        f"linear_{index}/{kind}": rng.normal(size=(4, 4) if kind == "w" else 4)
        for index in range(3) for kind in "wb"
    }
    backwards = dict(reversed(variables.items()))
    first, second = forms.from_sonnet(variables), forms.from_sonnet(backwards)
    assert set(first) == {f"linear_{i}.{kind}" for i in range(3) for kind in ("weight", "bias")}
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


@pytest.mark.parametrize(
    ("name", "shape"),
    [("linear_0/w", (3,)), ("linear_0/w", (2, 2, 2)), ("linear_0/b", (3, 1)), ("linear_0", (3,)),
     ("linear_0/gamma", (3,)), ("w_linear", (3, 3))],
)
def test_from_sonnet_unknown_weights_are_named(name, shape):
    with pytest.raises(errors.MessageError, match=f"Cannot convert the weights '{name}'"):
        forms.from_sonnet({name: np.zeros(shape, np.float32)})


@pytest.mark.parametrize("quantize", [32, 8])
def test_learner_to_actor_form_quantized_weights_are_refused(quantize):
    quantized = quantization.quantize_int8_channels(np.ones((3, 4), np.float32))
    with pytest.raises(errors.MessageError, match="'head/w' are quantized"):
        forms.learner_to_actor_form({"head/w": quantized}, 0, quantize)


@pytest.mark.parametrize("scheme", ["float32", "float16", "int8", "int4", "int3"])
def test_expand_bfloat16_weights_are_taken_as_float32(scheme):
    upper = quantization.to_bfloat16(random_weights()["head.weight"])
    got, expected = (
        forms.expand(model_update.ModelUpdate(0, scheme, {"head.weight": tensor}))["head.weight"]
        for tensor in (model_update.Bfloat16(upper), quantization.from_bfloat16(upper))
    )
    np.testing.assert_array_equal(numbers_of(got), numbers_of(expected))
