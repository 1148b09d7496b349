"""Tests `actorQ.policy.packing` against plain-Python integers."""

import numpy as np
import pytest

from actorQ.policy import packing

COUNTS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 255)


def dtype_of(bits):
    """The type that `quantization` gives to integers of so many bits."""
    return np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32


def random_values(bits, count, seed=0):
    """Random integers with both extremes among them."""
    values = np.random.default_rng([seed, bits, count]).integers(0, 2**bits, count, np.uint64)
    values[:1] = 2**bits - 1
    values[1:2] = 0
    return values.astype(dtype_of(bits))


def ceil_bytes(count, bits):
    """Bytes of `count` integers: each of their bit planes is filled up to whole bytes."""
    if bits in (8, 16, 32):
        return count * (bits // 8)
    if bits == 2:
        return (count + 3) // 4
    if bits == 4:
        return (count + 1) // 2
    return ((count + 7) // 8) * bits


def reference_pack(values, bits):
    """The documented layout, by Python's integers alone."""
    values = [int(value) for value in values]
    if bits in (8, 16, 32):
        return b"".join(value.to_bytes(bits // 8, "little") for value in values)
    if bits in (2, 4):
        number = sum(value << (bits * place) for place, value in enumerate(values))
        return number.to_bytes(ceil_bytes(len(values), bits), "little")
    packed = b""
    for plane in reversed(range(bits)):
        text = "".join(str(value >> plane & 1) for value in values)
        text += "0" * (-len(text) % 8)
        packed += bytes(int(text[i : i + 8], 2) for i in range(0, len(text), 8))
    return packed


@pytest.mark.parametrize("bits", range(2, 33))
def test_pack_then_unpack_gives_the_values_back(bits):
    for count in COUNTS:
        values = random_values(bits, count)
        packed = packing.pack(values, bits)
        assert packed.dtype == np.uint8
        back = packing.unpack(packed, bits, count)
        assert back.dtype == dtype_of(bits)
        np.testing.assert_array_equal(back, values)


@pytest.mark.parametrize("bits", range(2, 33))
def test_packed_bytes_is_the_size_of_what_pack_returns(bits):
    for count in COUNTS:
        size = packing.pack(random_values(bits, count), bits).size
        assert size == packing.packed_bytes(count, bits) == ceil_bytes(count, bits)
        # Never more than a bit plane's filling above the dense minimum.
        assert count * bits <= 8 * size < count * bits + 8 * bits


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 7, 8, 11, 16, 17, 31, 32])
def test_pack_lays_bits_out_as_documented(bits):
    for count in (1, 5, 8, 21):
        values = random_values(bits, count, seed=1)
        assert packing.pack(values, bits).tobytes() == reference_pack(values, bits)


def test_pack_hand_computed_bytes():
    values = np.array([1, 2, 3, 0, 3], np.uint8)
    # 2 bits, first value lowest: 00 11 10 01 and then 11.
    assert packing.pack(values, 2).tolist() == [0b00111001, 0b00000011]
    assert packing.pack(values, 4).tolist() == [0x21, 0x03, 0x03]
    # 3 bits in planes: fours 00000, twos 01101, ones 10101, first value highest.
    assert packing.pack(values, 3).tolist() == [0, 0b01101000, 0b10101000]
    assert packing.pack(np.array([0x1234], np.uint16), 16).tolist() == [0x34, 0x12]


@pytest.mark.parametrize("bits", [2, 3, 4, 8, 12, 16, 32])
def test_unpack_wrong_size_raises(bits):
    packed = packing.pack(random_values(bits, 9), bits)
    for wrong in (packed[:-1], np.append(packed, np.uint8(0)), packed[:0]):
        with pytest.raises(ValueError, match=f"9 integers of {bits} bits take"):
            packing.unpack(wrong, bits, 9)


def test_pack_leaves_its_argument_alone():
    for bits in (2, 3, 8):
        values = random_values(bits, 13)
        before = values.copy()
        packing.pack(values, bits)
        np.testing.assert_array_equal(values, before)
