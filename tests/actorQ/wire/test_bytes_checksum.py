"""Tests the checksum of messages' bytes: damage of every kind changes it."""

import numpy as np
import pytest

from actorQ.wire import messages

ROW = 8 * 2048  # Bytes.


def make_data(size=40 * ROW + 37, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


@pytest.mark.parametrize("size", [0, 1, ROW - 1, ROW, ROW + 1, 33 * ROW + 5])
def test_checksum_is_a_function_of_the_bytes_alone(size):
    data = make_data(size)
    shifted = np.append(np.uint8(1), data)[1:]  # The address suits no word.
    assert messages.bytes_checksum(data) == messages.bytes_checksum(shifted) < 2**32


def test_checksum_any_flipped_bit_changes_it():
    data = make_data()
    expected = messages.bytes_checksum(data)
    rng = np.random.default_rng(1)
    places = np.concatenate([rng.integers(0, data.size, 300), [0, 40 * ROW - 1, data.size - 1]])
    for place in places:
        data[place] ^= np.uint8(1 << rng.integers(8))
        assert messages.bytes_checksum(data) != expected
        data = make_data()


def test_checksum_two_flipped_bits_change_it():
    # Both bits lie in one row, in one column, or in neither. The same bit flipped in opposite
    # directions cancels in one sum.
    original = np.zeros(4 * ROW, np.uint8)
    original[:: 8 * 2] = 1
    expected = messages.bytes_checksum(original)
    for first, second in ((0, 8), (0, ROW + 8), (16, ROW + 16), (0, 3 * ROW + 8)):
        data = original.copy()
        data[first] ^= 1
        data[second] ^= 1
        assert messages.bytes_checksum(data) != expected


@pytest.mark.parametrize("size", [1, 7, 8, 100, 4096, ROW, 2 * ROW, 5 * ROW + 3])
def test_checksum_swapped_blocks_change_it(size):
    data = make_data()
    expected = messages.bytes_checksum(data)
    rng = np.random.default_rng(size)
    for _ in range(30):
        first, second = np.sort(rng.integers(0, (data.size - size) // size + 1, 2)) * size
        if first == second or np.array_equal(data[first:][:size], data[second:][:size]):
            continue
        swapped = data.copy()
        swapped[first : first + size] = data[second : second + size]
        swapped[second : second + size] = data[first : first + size]
        assert messages.bytes_checksum(swapped) != expected


def test_checksum_moved_and_cut_data_changes_it():
    data = make_data()
    cuts = (0, 1, 8, 37, 38, ROW, 9 * ROW)
    sums = {messages.bytes_checksum(data[: data.size - cut]) for cut in cuts}
    assert len(sums) == 7
    assert messages.bytes_checksum(np.roll(data, 8)) != messages.bytes_checksum(data)
    assert messages.bytes_checksum(np.roll(data, ROW)) != messages.bytes_checksum(data)


def test_checksum_zeros_of_other_lengths_differ():
    sizes = (0, 1, 2, ROW, ROW + 1, 2 * ROW, 64 * ROW)
    assert len({messages.bytes_checksum(np.zeros(size, np.uint8)) for size in sizes}) == len(sizes)


def test_checksum_bursts_within_a_row_length_change_it():
    data = make_data()
    expected = messages.bytes_checksum(data)
    rng = np.random.default_rng(5)
    for _ in range(50):
        length = int(rng.integers(1, ROW - 8))
        start = int(rng.integers(0, data.size - length))
        damaged = data.copy()
        damaged[start : start + length] = 0
        assert messages.bytes_checksum(damaged) != expected
