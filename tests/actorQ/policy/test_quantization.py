"""Tests `actorQ.policy.quantization` against plain Python and against torch."""

from fractions import Fraction
import math
import warnings

import numpy as np
import pytest
import torch

from actorQ.policy import quantization

BITS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 20, 24, 25, 31, 32)




def reference_affine(tensor, bits):
    """The documented formula in exact arithmetic, but for delta, which is a float32.

    Returns:
      Integers, delta, zero point, and the numbers W / delta before rounding.
    """
    numbers = [Fraction(float(x)) for x in np.asarray(tensor).reshape(-1)]
    low = min([*numbers, Fraction(0)])
    high = max([*numbers, Fraction(0)])
    delta = Fraction(float(np.float32(float((high - low) / 2**bits))))
    if delta < Fraction(2) ** -126:
        delta = Fraction(1)
    zero_point = min(round(-low / delta), 2**bits - 1)
    ratios = [number / delta for number in numbers]
    values = [
        min(max(round(ratio) + zero_point, 0), 2**bits - 1) for ratio in ratios
    ]
    return values, delta, zero_point, ratios


def random_tensor(seed, kind="normal", size=101):
    """A float32 tensor of a kind that weights can be of."""
    rng = np.random.default_rng([7, seed])
    tensor = rng.normal(size=size)
    tensor = {
        "normal": tensor,
        "positive": np.abs(tensor) + 0.5,
        "negative": -np.abs(tensor) - 0.5,
        "offset": tensor + 3.0,
        "huge": tensor * 1e30,
        "small": tensor * 1e-30,
        "outlier": np.where(np.arange(size) == 3, 500.0, tensor),
    }[kind]
    return tensor.astype(np.float32)


KINDS = ("normal", "positive", "negative", "offset", "huge", "small", "outlier")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", BITS)
def test_quantize_affine_any_tensor_equals_exact_arithmetic(bits, kind):
    tensor = random_tensor(bits, kind)
    quantized = quantization.quantize_affine(tensor, bits)
    values, delta, zero_point, ratios = reference_affine(tensor, bits)
    assert quantized.bits == bits
    assert float(quantized.scale[0]) == delta
    # Where exact arithmetic stands on the edge between two integers, floats may take either.
    assert abs(quantized.zero_point - zero_point) <= (0 if bits <= 16 else 1)
    work_error = (2.0**-23 if bits <= 16 else 2.0**-52) * 2**bits
    for got, expected, ratio in zip(quantized.values.tolist(), values, ratios, strict=True):
        edge = abs(float(ratio - math.floor(ratio)) - 0.5)
        if edge > work_error and quantized.zero_point == zero_point:
            assert got == expected
        else:
            assert abs(got - expected) <= 1


@pytest.mark.parametrize("bits", BITS)
def test_quantize_affine_then_dequantize_is_within_the_error_bound(bits):
    for kind in KINDS:
        tensor = random_tensor(100 + bits, kind)
        quantized = quantization.quantize_affine(tensor, bits)
        back = quantization.dequantize(quantized)
        assert back.dtype == np.float32
        assert back.shape == tensor.shape
        delta = float(quantized.scale[0])
        error = np.abs(back.astype(np.float64) - tensor)
        float_error = np.abs(tensor.astype(np.float64)) * 2.0**-23 + delta * 2.0**-10
        inside = (quantized.values > 0) & (quantized.values < 2**bits - 1)
        assert np.all(error[inside] <= (0.5 * delta + float_error)[inside])
        # The clamp costs the ends up to one level more (2^n levels, not 2^n + 1).
        assert np.all(error <= 1.5 * delta + float_error)


@pytest.mark.parametrize("bits", range(2, 11))
def test_quantize_affine_uses_at_most_two_to_the_bits_levels(bits):
    for kind in KINDS:
        tensor = random_tensor(bits, kind, size=5000)
        values = quantization.quantize_affine(tensor, bits).values
        assert len(np.unique(values)) <= 2**bits
        assert values.max() <= 2**bits - 1


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("kind", KINDS)
def test_dequantize_zero_stays_exactly_zero(bits, kind):
    tensor = random_tensor(bits, kind)
    tensor[5] = 0.0
    quantized = quantization.quantize_affine(tensor, bits)
    assert quantized.values[5] == quantized.zero_point
    assert quantization.dequantize(quantized)[5] == 0.0


@pytest.mark.parametrize("bits", BITS)
def test_quantize_affine_maximum_does_not_wrap(bits):
    # The original has no clamp: an all-positive tensor's maximum becomes its minimum there.
    tensor = np.array([0.0, 0.25, 0.5, 1.0], np.float32)
    quantized = quantization.quantize_affine(tensor, bits)
    top = 2**bits - 1
    assert quantized.zero_point == 0
    assert quantized.values.tolist() == [0, 2**bits // 4, 2**bits // 2, top]
    back = quantization.dequantize(quantized)
    assert back[3] == pytest.approx(1.0 - 2.0**-bits)


def test_quantize_affine_hand_computed_values():
    # delta = (1 + 3) / 2^2 = 1, z = 1: -1 -> 0, 0.4 -> 1, 1.6 -> 3, 3 -> clamp(4) = 3.
    quantized = quantization.quantize_affine(np.array([-1, 0.4, 1.6, 3], np.float32), 2)
    assert quantized.scale.tolist() == [1.0]
    assert quantized.zero_point == 1
    assert quantized.values.tolist() == [0, 1, 3, 3]
    assert quantization.dequantize(quantized).tolist() == [-1.0, 0.0, 2.0, 2.0]


def test_quantize_affine_all_negative_tensor_keeps_zero_at_the_top():
    quantized = quantization.quantize_affine(np.array([-4, -2, -1], np.float32), 3)
    # delta = 0.5; z = 8 is clamped to 7; -4 -> -8 + 7, clamped to 0.
    assert quantized.zero_point == 7
    assert quantized.values.tolist() == [0, 3, 5]
    assert quantization.dequantize(quantized).tolist() == [-3.5, -2.0, -1.0]


@pytest.mark.parametrize("bits", [2, 8, 16, 32])
@pytest.mark.parametrize("number", [5.0, -5.0, 1e30, -1e30, 1e-25])
def test_quantize_affine_constant_tensor_stays_within_one_level(bits, number):
    tensor = np.full((3, 2), number, np.float32)
    back = quantization.dequantize(quantization.quantize_affine(tensor, bits))
    assert np.all(np.abs(back - tensor) <= abs(number) * (2.0**-bits + 2.0**-22))
    assert len(np.unique(back)) == 1


@pytest.mark.parametrize("bits", [2, 8, 16, 32])
@pytest.mark.parametrize("number", [0.0, -0.0, 1e-40, -1e-45])
def test_quantize_affine_nothing_above_float32s_smallest_becomes_zero(bits, number):
    quantized = quantization.quantize_affine(np.full(3, number, np.float32), bits)
    assert quantized.scale.tolist() == [1.0]
    assert quantization.dequantize(quantized).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("bits", [2, 8, 16, 24, 32])
def test_quantize_affine_whole_float32_range_stays_finite(bits):
    largest = np.finfo(np.float32).max
    tensor = np.array([-largest, 0.0, largest], np.float32)
    quantized = quantization.quantize_affine(tensor, bits)
    back = quantization.dequantize(quantized)
    assert np.all(np.isfinite(back))
    assert back[0] == pytest.approx(-largest, rel=2.0**-22)
    assert back[1] == 0.0


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_quantize_affine_single_element_keeps_its_shape(shape):
    tensor = np.full(shape, 2.0, np.float32)
    quantized = quantization.quantize_affine(tensor, 8)
    assert quantized.values.shape == shape
    assert quantization.dequantize(quantized) == pytest.approx(2.0 * 255 / 256)


def test_quantize_affine_empty_tensor_stays_empty():
    quantized = quantization.quantize_affine(np.zeros((0, 3), np.float32), 4)
    assert quantization.dequantize(quantized).shape == (0, 3)


@pytest.mark.parametrize(("bits", "dtype"), [(2, "u1"), (8, "u1"), (9, "u2"), (16, "u2"),
                                             (17, "u4"), (32, "u4")])
def test_quantize_affine_values_have_the_narrowest_type(bits, dtype):
    values = quantization.quantize_affine(random_tensor(0), bits).values
    assert values.dtype == np.dtype(dtype)


@pytest.mark.parametrize("bits", [-1, 0, 1, 33, 64])
def test_quantize_affine_impossible_width_raises(bits):
    with pytest.raises(ValueError, match=f"{bits} bits: possible are 2 to 32"):
        quantization.quantize_affine(random_tensor(0), bits)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_quantizers_number_not_finite_raises(bad):
    for place in (0, 5, 11):
        tensor = random_tensor(0, size=12).reshape(3, 4)
        tensor.reshape(-1)[place] = bad
        with pytest.raises(ValueError, match="NaN or infinity"):
            quantization.quantize_affine(tensor, 8)
        with pytest.raises(ValueError, match="NaN or infinity"):
            quantization.quantize_int8_channels(tensor)


def test_quantizers_leave_their_argument_alone():
    tensor = random_tensor(0, size=12).reshape(3, 4)
    before = tensor.copy()
    quantization.quantize_affine(tensor, 8)
    quantization.quantize_affine(tensor, 20)
    quantization.quantize_int8_channels(tensor)
    np.testing.assert_array_equal(tensor, before)


@pytest.mark.parametrize("shape", [(7, 13), (1, 1), (5, 3, 4, 4)])
@pytest.mark.parametrize("seed", range(5))
def test_quantize_int8_channels_equals_torch(shape, seed):
    rng = np.random.default_rng(seed)
    spread = 10.0 ** rng.integers(-6, 7, (shape[0],) + (1,) * (len(shape) - 1))
    tensor = (rng.normal(size=shape) * spread).astype(np.float32)
    quantized = quantization.quantize_int8_channels(tensor)
    scales = np.abs(tensor).reshape(shape[0], -1).max(axis=1) / np.float32(127)
    np.testing.assert_array_equal(quantized.scale, scales)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces the end of its quantized tensors.
        reference = torch.quantize_per_channel(
            torch.from_numpy(tensor), torch.from_numpy(scales.astype(np.float64)),
            torch.zeros(shape[0], dtype=torch.int64), 0, torch.qint8,
        )
    # torch multiplies by the reciprocal of the scale: on a rounding edge it may differ by one.
    difference = quantized.values.astype(int) - reference.int_repr().numpy()
    edge = np.abs(np.abs(tensor / scales.reshape((-1,) + (1,) * (len(shape) - 1))) % 1 - 0.5)
    assert np.all((difference == 0) | ((np.abs(difference) == 1) & (edge < 1e-4)))
    same = difference == 0
    back = quantization.dequantize(quantized)
    np.testing.assert_array_equal(back[same], reference.dequantize().numpy()[same])
    assert quantized.values.dtype == np.int8
    assert quantized.values.min() >= -127
    largest = np.abs(quantized.values.reshape(shape[0], -1).astype(int)).max(axis=1)
    assert np.all(largest == 127)


def test_quantize_int8_channels_hand_computed_values():
    tensor = np.array([[127, -1, 0.4], [0, 0, 0], [-2.54, 0.02, 1.27], [1e-42, 0, 0]], np.float32)
    quantized = quantization.quantize_int8_channels(tensor)
    assert quantized.scale == pytest.approx([1.0, 1.0, 0.02, 1.0])
    # 1.27 / 0.02 = 63.5 is an edge: either neighbour is right.
    assert quantized.values[2, 2] in (63, 64)
    assert np.delete(quantized.values, 8).tolist() == [127, -1, 0, 0, 0, 0, -127, 1, 0, 0, 0]
    assert quantized.zero_point == 0
    assert quantized.bits == 8


@pytest.mark.parametrize(("bits", "levels"), [(4, 7), (3, 3)])
@pytest.mark.parametrize("shape", [(1, 1), (3, 64), (2, 70), (5, 130)])
def test_quantize_int4_groups_equals_a_plain_loop(shape, bits, levels):
    tensor = np.random.default_rng(bits).normal(size=shape).astype(np.float32)
    tensor[-1, :64] = 0.0
    quantized = quantization.quantize_int4_groups(tensor, bits)
    assert (quantized.values.dtype, quantized.zero_point, quantized.bits) == (np.int8, 0, bits)
    assert quantized.scale.shape == (shape[0], -(-shape[1] // 64))
    for row, group in np.ndindex(quantized.scale.shape):
        numbers = tensor[row, 64 * group : 64 * group + 64]
        step = torch.tensor(np.abs(numbers).max() / np.float32(levels)).bfloat16().item() or 1.0
        assert quantized.scale[row, group] == step
        expected = [round(float(number / np.float32(step))) for number in numbers]
        assert quantized.values[row, 64 * group : 64 * group + 64].tolist() == expected


def test_quantize_int4_groups_of_3_bits_hand_computed_values():
    tensor = np.array([[3, -1, 0.4, 1.5, 2.5, -0.5], [-0.75, 0.2, 0.6, 0, 0, 0.37]], np.float32)
    quantized = quantization.quantize_int4_groups(tensor, 3)
    assert quantized.scale.tolist() == [[1.0], [0.25]]
    assert quantized.values.tolist() == [[3, -1, 0, 2, 2, 0], [-3, 1, 2, 0, 0, 1]]


@pytest.mark.parametrize(("narrow", "bits"), [(2, 3), (2, 4), (3, 4)])
@pytest.mark.parametrize("kind", KINDS)
def test_to_int4_groups_keeps_the_integers_and_rounds_the_scale(narrow, bits, kind):
    tensor = random_tensor(bits, kind, size=5 * 130).reshape(5, 130)
    affine = quantization.quantize_affine(tensor, narrow)
    groups = quantization.to_int4_groups(affine, bits)
    assert (groups.values.dtype, groups.zero_point, groups.bits) == (np.int8, 0, bits)
    integers = affine.values.astype(int) - affine.zero_point
    np.testing.assert_array_equal(groups.values, integers)
    assert np.abs(integers).max() <= 2 ** (bits - 1) - 1
    step = torch.tensor(affine.scale).bfloat16().float().numpy()
    np.testing.assert_array_equal(groups.scale, np.full((5, 3), step))


@pytest.mark.parametrize("bits", range(2, 8))
@pytest.mark.parametrize("kind", KINDS)
def test_to_int8_channels_up_to_seven_bits_loses_nothing(bits, kind):
    tensor = random_tensor(bits, kind, size=60).reshape(5, 12)
    narrow = quantization.quantize_affine(tensor, bits)
    int8 = quantization.to_int8_channels(narrow)
    assert int8.values.dtype == np.int8
    assert int8.scale.shape == (5,)
    assert int8.zero_point == 0
    np.testing.assert_array_equal(quantization.dequantize(int8), quantization.dequantize(narrow))


@pytest.mark.parametrize("bits", [8, 9, 16, 32])
def test_to_int8_channels_eight_bits_or_more_raises(bits):
    quantized = quantization.quantize_affine(random_tensor(0, size=12).reshape(3, 4), bits)
    with pytest.raises(ValueError, match=f"{bits}-bit integers do not fit"):
        quantization.to_int8_channels(quantized)


def test_dequantize_hand_computed_values():
    affine = quantization.QuantizedTensor(
        np.array([[0, 3], [5, 255]], np.uint8), np.array([0.5], np.float32), 3, 8
    )
    assert quantization.dequantize(affine).tolist() == [[-1.5, 0.0], [1.0, 126.0]]
    channels = quantization.QuantizedTensor(
        np.array([[-127, 2], [1, 0]], np.int8), np.array([1.0, 0.25], np.float32), 0, 8
    )
    assert quantization.dequantize(channels).tolist() == [[-127.0, 2.0], [0.25, 0.0]]


def test_bfloat16_rounds_as_tensorflow_does():
    import tensorflow as tf

    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 2**32, 100_000, np.uint32).view(np.float32)
    numbers = numbers[np.isfinite(numbers) & (np.abs(numbers) < 3e38)]
    halves = np.array([1.00390625, 1.01171875, 0.0, -0.0, 1e-45], np.float32)  # Ties, and edges.
    numbers = np.concatenate([numbers, halves])
    expected = tf.cast(tf.cast(numbers, tf.bfloat16), tf.float32).numpy()
    rounded = quantization.from_bfloat16(quantization.to_bfloat16(numbers))
    keep = np.abs(numbers) > 1e-37  # TensorFlow may flush subnormals.
    np.testing.assert_array_equal(rounded[keep], expected[keep])
    assert np.isfinite(quantization.from_bfloat16(
        quantization.to_bfloat16(np.array([np.finfo(np.float32).max], np.float32))
    )).all()
