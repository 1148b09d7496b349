"""The C conversion: bit for bit what the numpy reference gives."""

import numpy as np
import pytest

from actorQ.policy import forms
from actorQ.policy import model_update
from actorQ.policy import quantization
from actorQ.policy.native import convert
from actorQ.policy.native import library
from actorQ.wire import messages

needs_library = pytest.mark.skipif(not library.available(), reason="kernels are not built")

SHAPES = [(1, 1), (3, 5), (17, 2048), (64, 64), (65, 63), (2048, 6), (130, 4099)]


@pytest.fixture
def without_library(monkeypatch):
    monkeypatch.setattr(convert, "_kernels", lambda: None)


def awkward(shape, seed=0):
    """A matrix with columns of every kind that the quantizer treats apart."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=shape).astype(np.float32)
    kinds = [
        lambda column: np.zeros_like(column),
        lambda column: -np.abs(column),
        lambda column: column * np.float32(1e-44),  # Denormal: the scale would be none.
        lambda column: column * np.float32(1e-38),
        lambda column: column / np.abs(column).max() * np.float32(3.4e38),
        lambda column: np.where(column > 0, np.float32(-0.0), column),
        # Ties: with scale 1 everything and a half, where rounding goes to even.
        lambda column: np.append(
            np.float32(127), (rng.integers(-127, 127, column.size - 1) + 0.5)
        ).astype(np.float32)[: column.size],
    ]
    for index in range(shape[1]):
        if index % 8 < len(kinds):
            matrix[:, index] = kinds[index % 8](matrix[:, index])
    return matrix


@needs_library
@pytest.mark.parametrize("shape", SHAPES)
def test_int8_channels_equals_the_reference_bit_for_bit(shape):
    for matrix in (awkward(shape), np.asfortranarray(awkward(shape, 1)), awkward(shape)[::-1]):
        got = convert.int8_channels(matrix)
        expected = quantization.quantize_int8_channels(np.ascontiguousarray(matrix.T))
        assert got.values.dtype == np.int8 and got.scale.dtype == np.float32
        np.testing.assert_array_equal(got.values, expected.values)
        assert got.scale.tobytes() == expected.scale.tobytes()
        assert got[2:] == expected[2:] == (0, 8)
        assert got.values.flags.c_contiguous


@needs_library
@pytest.mark.parametrize("bits", [4, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_int4_groups_equals_the_reference_bit_for_bit(shape, bits):
    for matrix in (awkward(shape), np.asfortranarray(awkward(shape, 1)), awkward(shape)[::-1]):
        got = convert.int4_groups(matrix, bits)
        expected = quantization.quantize_int4_groups(np.ascontiguousarray(matrix.T), bits)
        assert got.values.dtype == np.int8 and got.scale.dtype == np.float32
        np.testing.assert_array_equal(got.values, expected.values)
        assert got.scale.shape == expected.scale.shape
        assert got.scale.tobytes() == expected.scale.tobytes()
        assert got[2:] == expected[2:] == (0, bits)


@needs_library
@pytest.mark.parametrize("bits", [4, 3])
def test_int4_groups_not_finite_is_refused(bits):
    for bad in (np.nan, np.inf, -np.inf):
        matrix = np.ones((130, 70), np.float32)
        matrix[129, 69] = bad
        with pytest.raises(ValueError, match="NaN"):
            convert.int4_groups(matrix, bits)


@pytest.mark.parametrize("shape", SHAPES)
def test_bfloat16_is_converted_as_the_same_numbers_in_float32(shape):
    upper = quantization.to_bfloat16(awkward(shape))
    matrix, same = model_update.Bfloat16(upper), quantization.from_bfloat16(upper)
    assert convert.transposed(matrix).tobytes() == convert.transposed(same).tobytes()
    got, expected = convert.int8_channels(matrix), convert.int8_channels(same)
    assert got.values.tobytes() == expected.values.tobytes()
    assert got.scale.tobytes() == expected.scale.tobytes()


@pytest.mark.parametrize("quantize", [32, 8])
def test_learner_to_actor_form_takes_bfloat16(quantize):
    upper = {
        name: quantization.to_bfloat16(np.random.default_rng(0).normal(size=shape))
        for name, shape in {"conv_0/w": (3, 3, 2, 4), "conv_0/b": (4,), "head/w": (7, 5)}.items()
    }
    got, expected = (
        forms.learner_to_actor_form({n: form(u) for n, u in upper.items()}, 1, quantize)
        for form in (model_update.Bfloat16, quantization.from_bfloat16)
    )
    for side in zip(messages.encode(got), messages.encode(expected), strict=True):
        np.testing.assert_array_equal(*side)


@needs_library
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (129, 4098), (64, 2048)])
def test_int8_channels_not_finite_is_refused(bad, place):
    matrix = awkward((130, 4099))
    matrix[place] = bad
    with pytest.raises(ValueError, match="NaN or infinity"):
        convert.int8_channels(matrix)


@needs_library
@pytest.mark.parametrize("shape", SHAPES)
def test_transposed_equals_numpy_bit_for_bit(shape):
    for matrix in (awkward(shape), np.asfortranarray(awkward(shape)), awkward(shape)[:, ::-1]):
        got = convert.transposed(matrix)
        assert got.flags.c_contiguous and got.dtype == np.float32
        assert got.tobytes() == np.ascontiguousarray(matrix.T).tobytes()


def test_convert_empty_matrices_have_no_numbers():
    for shape in ((0, 3), (3, 0)):
        assert convert.transposed(np.zeros(shape, np.float32)).shape == shape[::-1]


def test_convert_without_the_library_uses_numpy(without_library):
    matrix = awkward((65, 63))
    assert convert.transposed(matrix).tobytes() == np.ascontiguousarray(matrix.T).tobytes()
    expected = quantization.quantize_int8_channels(np.ascontiguousarray(matrix.T))
    got = convert.int8_channels(matrix)
    np.testing.assert_array_equal(got.values, expected.values)
    np.testing.assert_array_equal(got.scale, expected.scale)


@needs_library
def test_convert_library_is_the_one_in_use():
    assert convert._kernels() is not None


def test_convert_missing_library_is_logged_once(monkeypatch, tmp_path):
    lines = []
    monkeypatch.setattr(convert.logging, "warning", lambda text, *_: lines.append(text))
    monkeypatch.setattr(library.compiling, "library_path", lambda: str(tmp_path / "missing.so"))
    library.load.cache_clear()
    convert._kernels.cache_clear()
    try:
        for _ in range(3):
            convert.transposed(np.ones((2, 3), np.float32))
    finally:
        convert._kernels.cache_clear()
        library.load.cache_clear()
    assert len(lines) == 1 and "numpy" in lines[0]


@pytest.mark.parametrize("quantize", [32, 16, 8, 4, 3])
@pytest.mark.parametrize("communication", [32, 8, 4, 2])
@pytest.mark.parametrize("compress", [False, True])
def test_learner_to_actor_form_equals_its_two_steps(quantize, communication, compress):
    rng = np.random.default_rng(0)
    shapes = {"conv_0/w": (3, 3, 2, 4), "conv_0/b": (4,), "linear_0/w": (70, 90),
              "linear_0/b": (90,), "head/w": (90, 3), "head/b": (3,)}
    variables = {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}
    settings = (9, quantize, communication, compress)
    got = forms.learner_to_actor_form(variables, *settings)
    weights = {}
    for name, array in variables.items():
        layer, kind = name.split("/")
        axes = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}[array.ndim]
        weights[f"{layer}.{'weight' if kind == 'w' else 'bias'}"] = np.ascontiguousarray(
            array.transpose(axes)
        )
    expected = forms.to_actor_form(weights, *settings)
    assert list(got.tensors) == list(expected.tensors)
    for side in zip(messages.encode(got), messages.encode(expected), strict=True):
        np.testing.assert_array_equal(*side)
