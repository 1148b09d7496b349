"""Packs N-bit integers densely into bytes, and unpacks them. Imports numpy only."""

import numpy as np

_WHOLE_BYTES: dict[int, np.dtype] = {8: np.dtype("u1"), 16: np.dtype("<u2"), 32: np.dtype("<u4")}


def packed_bytes(count: int, bits: int) -> int:
    """Returns how many bytes `count` integers of `bits` bits take when packed."""
    if bits in _WHOLE_BYTES:
        return count * bits // 8
    if bits in (2, 4):
        return -(-count // (8 // bits))
    return bits * (-(-count // 8))


def pack(values: np.ndarray, bits: int) -> np.ndarray:
    """Packs unsigned integers.

    * 8, 16 and 32 bits: little-endian integers.
    * 2 and 4 bits: parts of a byte, the first value lowest.
    * All others: `bits` planes of one bit per value, the most significant plane first.

    Each layout needs a few passes over whole arrays and no loop over values.

    Args:
      values: [M] unsigned integers below 2**bits.
      bits: 2 to 32.

    Returns:
      uint8 [packed_bytes(M, bits)].
    """
    if bits in _WHOLE_BYTES:
        return np.ascontiguousarray(values, _WHOLE_BYTES[bits]).view(np.uint8)
    if bits in (2, 4):
        per_byte = 8 // bits
        padded = np.zeros(packed_bytes(values.size, bits) * per_byte, np.uint8)
        padded[: values.size] = values
        packed = padded[::per_byte].copy()
        for place in range(1, per_byte):
            packed |= padded[place::per_byte] << np.uint8(place * bits)
        return packed
    one = values.dtype.type(1)
    planes = [
        np.packbits((values >> values.dtype.type(place)) & one)
        for place in reversed(range(bits))
    ]
    return np.concatenate(planes)


def unpack(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Unpacks the result of `pack`.

    Args:
      packed: uint8 [packed_bytes(count, bits)].
      bits: 2 to 32.
      count: Number of integers.

    Returns:
      Integers [count] as uint8, uint16 or uint32: the narrowest type that holds `bits` bits.

    Raises:
      ValueError: `packed` has another size than `count` integers need.
    """
    if packed.size != packed_bytes(count, bits):
        raise ValueError(
            f"{count} integers of {bits} bits take {packed_bytes(count, bits)} bytes, "
            f"not {packed.size}."
        )
    if bits in _WHOLE_BYTES:
        return np.frombuffer(packed.tobytes(), _WHOLE_BYTES[bits])
    if bits in (2, 4):
        per_byte = 8 // bits
        values = np.empty(packed.size * per_byte, np.uint8)
        mask = np.uint8(2**bits - 1)
        for place in range(per_byte):
            values[place::per_byte] = (packed >> np.uint8(place * bits)) & mask
        return values[:count]
    dtype = np.uint8 if bits < 8 else np.uint16 if bits < 16 else np.uint32
    values = np.zeros(count, dtype)
    for plane in packed.reshape(bits, -1):
        values <<= dtype(1)
        values |= np.unpackbits(plane, count=count)
    return values
