"""Properties of the affine quantizer, against exact arithmetic and torch's own quantizers.

The reference is the paper's formula (arXiv:1910.01055, sec. 3) in fractions. Two things are taken
from the implementation's documentation: the clamp to 2^n levels, and that the step is a float32.
"""

from fractions import Fraction
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch

from actorQ.policy import quantization

BITS = tuple(range(2, 33))
ROUNDINGS = ("nearest", "floor")
SMALLEST = Fraction(2) ** -126  # float32's smallest normal number: no smaller steps.
LARGEST = float(np.finfo(np.float32).max)


def half_even(number):
    return round(number)


ROUND = {"nearest": half_even, "floor": math.floor}


class Exact(NamedTuple):
    values: list[int]
    delta: Fraction
    zero_point: int
    ratios: list[Fraction]  # W / delta.
    zero_ratio: Fraction  # -min(W, 0) / delta.


def exact(numbers, bits, rounding):
    """The formula in exact arithmetic, for one range of numbers."""
    numbers = [Fraction(float(number)) for number in np.asarray(numbers).reshape(-1)]
    low, high = min([*numbers, Fraction(0)]), max([*numbers, Fraction(0)])
    delta = Fraction(float(np.float32((high - low) / 2**bits)))
    if delta < SMALLEST:
        delta = Fraction(1)
    top = 2**bits - 1
    zero_point = min(ROUND[rounding](-low / delta), top)
    ratios = [number / delta for number in numbers]
    values = [min(max(ROUND[rounding](ratio) + zero_point, 0), top) for ratio in ratios]
    return Exact(values, delta, zero_point, ratios, -low / delta)


def on_the_edge(ratio, rounding, bits):
    """Whether a quotient is so near to where rounding jumps that floats may take either side."""
    jump = Fraction(1, 2) if rounding == "nearest" else Fraction(0)
    distance = abs((ratio - jump) - round(ratio - jump))
    unit = Fraction(2) ** (-23 if bits <= 16 else -51)
    return 0 < distance <= unit * max(abs(ratio), 1)


def make(kind, seed, shape=(7, 9)):
    """A float32 tensor of a kind that weights or activations can be of."""
    rng = np.random.default_rng([11, seed])
    normal = rng.normal(size=shape)
    tensors = {
        "normal": normal,
        "uniform": rng.uniform(-0.3, 0.7, size=shape),
        "positive": np.abs(normal) + 0.25,
        "negative": -np.abs(normal) - 0.25,
        "relu": np.maximum(normal, 0),
        "heavy": normal / np.maximum(np.abs(rng.normal(size=shape)), 1e-3) ** 2,
        "whole": rng.integers(-5, 6, size=shape),  # Ties abound.
        "huge": np.clip(normal * 1e38, -LARGEST, LARGEST),
        "tiny": normal * 1e-25,
        "one_outlier": np.where(np.arange(normal.size).reshape(shape) == 4, -900.0, normal),
        "mostly_zero": np.where(rng.random(shape) < 0.8, 0.0, normal),
    }
    return tensors[kind].astype(np.float32)


KINDS = (
    "normal", "uniform", "positive", "negative", "relu", "heavy", "whole", "huge", "tiny",
    "one_outlier", "mostly_zero",
)


def quantize(tensor, bits, rounding, per_channel=False):
    quantized = quantization.quantize_affine(tensor, bits, rounding, per_channel)
    return quantized, quantization.dequantize(quantized)


def ranges(tensor):
    """Low and high of the formula, float64."""
    tensor = tensor.astype(np.float64)
    return min(tensor.min(initial=0), 0.0), max(tensor.max(initial=0), 0.0)


def float_slack(tensor):
    """What float32 steps and float32 results may add to an error: a few units of the range.

    In steps that is 2^(bits - 22): nothing at 8 bits, and more than the steps themselves beyond 24
    bits, where float32 cannot hold the levels apart.
    """
    low, high = ranges(tensor)
    return (high - low) * 2.0**-22


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", BITS)
def test_per_tensor_equals_exact_arithmetic(bits, rounding):
    for kind in KINDS:
        tensor = make(kind, bits)
        quantized, _ = quantize(tensor, bits, rounding)
        expected = exact(tensor, bits, rounding)
        assert Fraction(float(quantized.scale[0])) == expected.delta, kind
        check_values(
            quantized.values.reshape(-1), quantized.zero_point, expected, bits, rounding
        )


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", BITS)
def test_per_channel_equals_exact_arithmetic(bits, rounding):
    # Rows of very different ranges, one of zeros, one constant, and a kernel's four axes.
    tensor = make("normal", 100 + bits, shape=(6, 2, 3, 2))
    tensor *= np.float32([1, 1e-6, 1e6, 0, 1, 1]).reshape(6, 1, 1, 1)
    tensor[4] = -0.5
    quantized, _ = quantize(tensor, bits, rounding, per_channel=True)
    assert quantized.scale.shape == quantized.zero_point.shape == (6,)
    for row in range(6):
        expected = exact(tensor[row], bits, rounding)
        assert Fraction(float(quantized.scale[row])) == expected.delta
        check_values(
            quantized.values[row].reshape(-1), quantized.zero_point[row], expected, bits, rounding
        )


def check_values(values, zero_point, expected, bits, rounding):
    same_zero = int(zero_point) == expected.zero_point
    assert same_zero or on_the_edge(expected.zero_ratio, rounding, bits)
    assert abs(int(zero_point) - expected.zero_point) <= 1
    for got, value, ratio in zip(values.tolist(), expected.values, expected.ratios, strict=True):
        if same_zero and not on_the_edge(ratio, rounding, bits):
            assert got == value
        else:
            assert abs(got - value) <= (1 if same_zero else 2)


@pytest.mark.parametrize("per_channel", (False, True))
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_at_most_two_to_the_bits_levels(kind, rounding, per_channel):
    for bits in range(2, 9):
        tensor = make(kind, bits, shape=(3, 3000))
        quantized, back = quantize(tensor, bits, rounding, per_channel)
        assert 0 <= quantized.values.min() and quantized.values.max() <= 2**bits - 1
        for rows in back if per_channel else [back]:
            assert len(np.unique(rows)) <= 2**bits


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", BITS)
def test_error_is_within_its_bound(bits, rounding):
    # Between the ends: half a step to either side, or with floor less than one, downwards. At
    # the ends the clamp costs up to one step more, and the zero point's rounding is in it.
    for kind in KINDS:
        tensor = make(kind, 200 + bits, shape=(40, 5))
        quantized, back = quantize(tensor, bits, rounding)
        delta, slack = float(quantized.scale[0]), float_slack(tensor)
        error = tensor.astype(np.float64) - back.astype(np.float64)
        inside = (quantized.values > 0) & (quantized.values < 2**bits - 1)
        if rounding == "nearest":
            assert np.all(np.abs(error[inside]) <= delta / 2 + slack), kind
            assert np.all(np.abs(error) <= 1.5 * delta + slack), kind
        else:
            assert np.all(error[inside] >= -slack), kind
            assert np.all(error[inside] < delta + slack), kind
            assert np.all(np.abs(error) <= delta + slack), kind


@pytest.mark.parametrize("bits", (2, 4, 8))
def test_error_bound_at_the_ends_is_not_loose(bits):
    # z = round(x.5) upwards takes half a step off the top, the clamp another whole one.
    steps = 2**bits
    tensor = np.float32([-(1 + 0.5), 0.0, steps - 1.5])  # delta 1, z = round(1.5) = 2.
    quantized, back = quantize(tensor, bits, "nearest")
    assert (float(quantized.scale[0]), quantized.zero_point) == (1.0, 2)
    assert tensor[2] - back[2] == 1.5


@pytest.mark.parametrize("per_channel", (False, True))
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", BITS)
def test_zero_is_exact(bits, rounding, per_channel):
    for kind in KINDS:
        tensor = make(kind, 300 + bits)
        tensor[:, 2] = 0.0
        tensor[0, 3] = -0.0
        quantized, back = quantize(tensor, bits, rounding, per_channel)
        assert np.all(back[:, 2] == 0.0) and back[0, 3] == 0.0
        assert np.all(quantized.values[:, 2] == np.asarray(quantized.zero_point))
        assert np.all(np.asarray(quantized.zero_point) <= 2**bits - 1)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", BITS)
def test_order_is_kept(bits, rounding):
    for kind in KINDS:
        tensor = np.sort(make(kind, 400 + bits, shape=(500,)))
        quantized, back = quantize(tensor, bits, rounding)
        assert np.all(np.diff(quantized.values.astype(np.int64)) >= 0)
        assert np.all(np.diff(back) >= 0)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", BITS)
def test_sign_is_kept_or_becomes_zero(bits, rounding):
    for kind in KINDS:
        tensor = make(kind, 500 + bits)
        _, back = quantize(tensor, bits, rounding)
        if rounding == "nearest":
            assert np.all(np.sign(back) * np.sign(tensor) >= 0)
        else:  # Floor takes what is just below zero one step down, never what is above it.
            assert np.all(back[tensor >= 0] >= 0)
            assert np.all(back[tensor <= 0] <= 0)


@pytest.mark.parametrize("bits", BITS)
def test_quantizing_again_with_the_same_map_changes_nothing(bits):
    for kind in KINDS:
        tensor = make(kind, 600 + bits)
        quantized, back = quantize(tensor, bits, "nearest")
        affine = quantization.AffineMap(quantized.scale[0], np.asarray(quantized.zero_point))
        again = quantization.affine_values(back, affine, bits)
        if bits <= 16:
            assert np.array_equal(again, quantized.values)
        twice = quantization.dequantize(quantized._replace(values=again))
        # Above 24 bits float32 holds several levels as one number, which stays that number.
        assert np.array_equal(twice, back)


@pytest.mark.parametrize("bits", BITS)
def test_quantizing_again_with_floor_moves_by_one_step_at_most(bits):
    # A level's float32 may lie just below the level: floor then takes the one beneath.
    for kind in KINDS:
        tensor = make(kind, 700 + bits)
        quantized, back = quantize(tensor, bits, "floor")
        affine = quantization.AffineMap(quantized.scale[0], np.asarray(quantized.zero_point))
        again = quantization.affine_values(back, affine, bits, "floor")
        twice = quantization.dequantize(quantized._replace(values=again))
        allowed = 1.01 * quantized.scale[0] + np.abs(back) * 2.0**-23
        assert np.all(np.abs(twice.astype(np.float64) - back) <= allowed)


@pytest.mark.parametrize("per_channel", (False, True))
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", (2, 5, 8, 13, 16, 21, 32))
def test_powers_of_two_scale_the_step_and_nothing_else(bits, rounding, per_channel):
    tensor = make("normal", 800 + bits)
    quantized, back = quantize(tensor, bits, rounding, per_channel)
    for power in (-40, -1, 3, 60):
        factor = np.float32(2.0**power)
        scaled, scaled_back = quantize(tensor * factor, bits, rounding, per_channel)
        assert np.array_equal(scaled.values, quantized.values)
        assert np.array_equal(scaled.zero_point, quantized.zero_point)
        assert np.array_equal(scaled.scale, quantized.scale * factor)
        assert np.array_equal(scaled_back, back * factor)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", BITS)
def test_per_channel_is_per_tensor_of_every_channel(bits, rounding):
    for kind in KINDS:
        tensor = make(kind, 900 + bits, shape=(5, 2, 3))
        quantized, back = quantize(tensor, bits, rounding, per_channel=True)
        for row in range(5):
            alone, alone_back = quantize(tensor[row], bits, rounding)
            assert np.array_equal(quantized.values[row], alone.values)
            assert quantized.zero_point[row] == alone.zero_point
            assert np.array_equal(back[row], alone_back)


@pytest.mark.parametrize("per_channel", (False, True))
def test_places_in_memory_and_order_of_numbers_do_not_matter(per_channel):
    tensor = make("normal", 1)
    before = tensor.copy()
    quantized, _ = quantize(tensor, 6, "nearest", per_channel)
    assert np.array_equal(tensor, before)
    across, _ = quantize(np.asfortranarray(tensor), 6, "nearest", per_channel)
    backwards, _ = quantize(tensor[:, ::-1], 6, "nearest", per_channel)
    assert np.array_equal(across.values, quantized.values)
    assert np.array_equal(backwards.values[:, ::-1], quantized.values)
    tensor.setflags(write=False)
    quantize(tensor, 6, "nearest", per_channel)


def test_more_bits_never_cost_more_than_the_bound_of_fewer():
    for kind in KINDS:
        tensor = make(kind, 2, shape=(400,))
        worst = []
        for bits in BITS:
            _, back = quantize(tensor, bits, "nearest")
            worst.append(np.max(np.abs(tensor.astype(np.float64) - back)))
        low, high = ranges(tensor)
        for bits, error in zip(BITS, worst, strict=True):
            assert error <= 1.5 * (high - low) / 2**bits + float_slack(tensor)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch has plans for its quantized tensors.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "huge"])
@pytest.mark.parametrize("bits", (2, 3, 4, 6, 8))
def test_nearest_agrees_with_torchs_quantized_tensors(bits, kind):
    tensor = make(kind, 1000 + bits)
    quantized, back = quantize(tensor, bits, "nearest")
    # quint8 has no narrower clamp: ours is put on the numbers that torch made.
    theirs = torch.quantize_per_tensor(
        torch.from_numpy(tensor), float(quantized.scale[0]), quantized.zero_point, torch.quint8
    )
    values = np.clip(theirs.int_repr().numpy(), 0, 2**bits - 1)
    agree = compare_unless_on_the_edge(values, quantized, tensor, bits)
    if bits == 8:
        assert np.array_equal(theirs.dequantize().numpy()[agree], back[agree])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "huge"])
@pytest.mark.parametrize("bits", (2, 4, 8, 11, 16))
def test_nearest_agrees_with_torchs_fake_quantization(bits, kind):
    tensor = make(kind, 1100 + bits)
    quantized, back = quantize(tensor, bits, "nearest", per_channel=True)
    theirs = torch.fake_quantize_per_channel_affine(
        torch.from_numpy(tensor), torch.from_numpy(quantized.scale),
        torch.from_numpy(quantized.zero_point.astype(np.int32)), 0, 0, 2**bits - 1,
    ).numpy()
    step = quantized.scale[:, None]
    values = np.rint(theirs / step).astype(np.int64) + quantized.zero_point[:, None]
    agree = compare_unless_on_the_edge(values, quantized, tensor, bits)
    assert np.array_equal(theirs[agree], back[agree])
    per_tensor, back = quantize(tensor, bits, "nearest")
    theirs = torch.fake_quantize_per_tensor_affine(
        torch.from_numpy(tensor), float(per_tensor.scale[0]), per_tensor.zero_point, 0, 2**bits - 1
    ).numpy()
    assert np.mean(theirs == back) > 0.9
    assert np.all(np.abs(theirs - back) <= per_tensor.scale[0] * 1.001)


def compare_unless_on_the_edge(values, quantized, tensor, bits):
    """Checks values [rows, columns]; returns where they agree.

    torch multiplies by 1 / step where we divide: quotients at a tie may fall to either side.
    """
    step = np.broadcast_to(quantized.scale[:, None], tensor.shape).astype(np.float64)
    ratio = tensor / step
    edge = np.abs(np.abs(ratio - np.floor(ratio)) - 0.5) < 2.0**-22 * np.maximum(abs(ratio), 1)
    difference = np.abs(values.astype(np.int64) - quantized.values.astype(np.int64))
    assert np.all(difference[~edge] == 0)
    assert np.all(difference <= 1)
    return difference == 0


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", BITS)
def test_constant_tensors_stay_one_number_within_a_step(bits, rounding):
    for number in (1.0, -1.0, 0.3, -0.3, 1e38, -1e38, LARGEST, -LARGEST, 1e-25, -1e-25):
        tensor = np.full((3, 4), number, np.float32)
        for per_channel in (False, True):
            _, back = quantize(tensor, bits, rounding, per_channel)
            assert len(np.unique(back)) == 1
            # The range reaches from zero to the number: it is 2^bits steps away from zero.
            assert abs(float(back[0, 0]) - float(tensor[0, 0])) <= abs(number) * (
                2.0**-bits + 2.0**-22
            )


@pytest.mark.parametrize("per_channel", (False, True))
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", BITS)
def test_zeros_and_denormal_numbers_become_zeros(bits, rounding, per_channel):
    for number in (0.0, -0.0, 1e-40, -1e-40, 1e-45, -1e-45):
        tensor = np.full((2, 3), number, np.float32)
        quantized, back = quantize(tensor, bits, rounding, per_channel)
        # Floor puts what is negative one step of 1 down; the clamp at 0 takes it back.
        assert np.all(back == 0.0)
        assert np.all(quantized.scale == 1.0)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", BITS)
def test_ranges_about_the_smallest_step_are_right_or_zeros(bits, rounding):
    for factor in (0.25, 0.99, 1.0, 1.01, 4.0):
        top = 2.0**bits * 2.0**-126 * factor
        tensor = np.float32([0.0, top / 2, top])
        quantized, back = quantize(tensor, bits, rounding)
        if factor < 0.999:
            assert np.all(back == 0)
        else:
            delta = float(quantized.scale[0])
            assert delta == pytest.approx(top / 2**bits)
            assert np.all(np.abs(back.astype(np.float64) - tensor) <= 1.01 * delta + top * 2.0**-22)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", BITS)
def test_whole_range_of_float32_stays_finite(bits, rounding):
    for tensor in (
        np.float32([-LARGEST, LARGEST]),
        np.float32([-LARGEST, 0, LARGEST / 3]),
        np.float32([1e38, 3e38]),
        np.float32([-1e38, -3.4e38]),
    ):
        for per_channel in (False, True):
            quantized, back = quantize(tensor, bits, rounding, per_channel)
            assert np.all(np.isfinite(back))
            worst = np.max(np.abs(back.astype(np.float64) - tensor))
            # Per channel a one-axis tensor has a step for each number.
            assert worst <= 1.5 * float(quantized.scale.max()) + float_slack(tensor)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("per_channel", (False, True))
def test_shapes_and_types_are_kept(per_channel, rounding):
    for shape in ((1,), (5,), (1, 1), (4, 3), (2, 3, 3, 3), (3, 0), (0,)):
        for bits, dtype in ((2, np.uint8), (8, np.uint8), (9, np.uint16), (32, np.uint32)):
            tensor = make("normal", 3, shape=(1, *shape))[0]
            quantized, back = quantize(tensor, bits, rounding, per_channel)
            assert quantized.values.shape == back.shape == shape
            assert (quantized.values.dtype, back.dtype) == (dtype, np.float32)
            assert quantized.scale.dtype == np.float32
            assert quantized.scale.shape == (shape[:1] if per_channel else (1,))


@pytest.mark.parametrize("shape", ((0, 3), ()))
def test_tensors_without_rows_keep_their_shape(shape):
    for per_channel in (False, True):
        tensor = np.full(shape, -2.0, np.float32)
        quantized, back = quantize(tensor, 8, "nearest", per_channel and bool(shape))
        assert quantized.values.shape == back.shape == shape
        assert np.all(back == -2.0 * 255 / 256)


@pytest.mark.parametrize("per_channel", (False, True))
@pytest.mark.parametrize("bits", (2, 8, 16, 17, 32))
@pytest.mark.parametrize("bad", (np.nan, np.inf, -np.inf))
def test_numbers_that_are_not_finite_are_refused(bad, bits, per_channel):
    for place in (0, 13, 62):
        tensor = make("normal", 4)
        tensor.reshape(-1)[place] = bad
        for rounding in ROUNDINGS:
            with pytest.raises(ValueError, match="NaN or infinity"):
                quantization.quantize_affine(tensor, bits, rounding, per_channel)


@pytest.mark.parametrize(
    "low, high", ((np.nan, 1), (0, np.inf), (-np.inf, 0), ([0, 0], [1, np.nan]))
)
def test_ranges_that_are_not_finite_are_refused(low, high):
    with pytest.raises(ValueError, match="NaN or infinity"):
        quantization.affine_map(low, high, 8)


@pytest.mark.parametrize("bits", (-3, 0, 1, 33))
def test_impossible_widths_are_refused(bits):
    with pytest.raises(ValueError, match="possible are 2 to 32"):
        quantization.affine_map(-1.0, 1.0, bits)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", BITS)
def test_maps_of_given_ranges_cover_them(bits, rounding):
    rng = np.random.default_rng(bits)
    low, high = np.sort(rng.normal(size=(2, 50)), axis=0) * 10.0 ** rng.integers(-10, 10, size=50)
    affine = quantization.affine_map(low, high, bits, rounding)
    bottom = -affine.delta.astype(np.float64) * affine.zero_point
    top = bottom + affine.delta.astype(np.float64) * (2.0**bits - 1)
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    slack = (high - low) * 2.0**-22
    reach = 1.5 * affine.delta + slack
    assert np.all(np.abs(bottom - low) <= reach) and np.all(np.abs(top - high) <= reach)
    assert np.all((affine.zero_point >= 0) & (affine.zero_point <= 2**bits - 1))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("bits", (2, 8, 16, 20, 32))
def test_numbers_outside_of_a_given_range_are_clamped_to_its_ends(bits, rounding):
    affine = quantization.affine_map(-1.0, 3.0, bits, rounding)
    numbers = np.float32([-LARGEST, -1e10, -1.5, 3.5, 1e10, LARGEST])
    values = quantization.affine_values(numbers, affine, bits, rounding)
    assert values.tolist() == [0] * 3 + [2**bits - 1] * 3
