"""The quantizers, defined once in numpy: every other implementation is tested against these.

* Uniform affine quantization to N bits is for weights on the wire and after training.
* Symmetric int8 per output channel, and symmetric int4 per group of inputs, are the forms in which
  actors compute. Those of 3 bits are int4 with fewer levels.

`reference` defines how a policy computes with these weights. Imports numpy only.
"""

from typing import Literal
from typing import NamedTuple

import numpy as np

MIN_BITS = 2
MAX_BITS = 32
INT8_LEVELS = 127  # Symmetric, -127 to 127: negation is exact and zero stays zero.
INT4_GROUP = 64  # Inputs that share a scale, which takes a quarter of a bit for each weight.

Rounding = Literal["nearest", "floor"]
ROUNDINGS: tuple[Rounding, ...] = ("nearest", "floor")
_ROUND: dict[Rounding, np.ufunc] = {"nearest": np.rint, "floor": np.floor}


class QuantizedTensor(NamedTuple):
    """Integers with the affine map back to reals: `scale * (values - zero_point)`.

    Attributes:
      values: Integers of any dtype, in the tensor's shape.
      scale: float32, shape [1] (one for the tensor), [rows] (one for each index of axis 0), or
        [rows, groups] (one for every `INT4_GROUP` columns of a matrix).
      zero_point: The integer that stands for 0.0, which is 0 in symmetric schemes. It is an int64
        array [rows] where each index of axis 0 has its own.
      bits: Width of the integers, 2 to 32.
    """

    values: np.ndarray
    scale: np.ndarray
    zero_point: int | np.ndarray
    bits: int


class AffineMap(NamedTuple):
    """Steps and zero points that cover ranges of reals with 2^bits integers.

    Attributes:
      delta: float32 steps between two levels, in the shape of the ranges.
      zero_point: int64 numbers from 0 to 2^bits - 1, in the same shape.
    """

    delta: np.ndarray
    zero_point: np.ndarray


def affine_map(
    low: np.ndarray | float, high: np.ndarray | float, bits: int, rounding: Rounding = "nearest"
) -> AffineMap:
    """Returns the uniform affine map of the paper for ranges of reals.

        delta = (|min(low, 0)| + |max(high, 0)|) / 2^n
        z     = round(-min(low, 0) / delta)

    The source is arXiv:1910.01055, sec. 3, which rounds with floor. A range that holds nothing but
    zero gets the step 1.

    Args:
      low: Smallest numbers, any shape. Numbers above zero count as zero.
      high: Largest numbers, the same shape. Numbers below zero count as zero.
      bits: 2 to 32.
      rounding: Rounding of the zero point.

    Raises:
      ValueError: The width is not possible, or a range holds NaN or infinity.
    """
    if not MIN_BITS <= bits <= MAX_BITS:
        raise ValueError(f"Cannot quantize to {bits} bits: possible are {MIN_BITS} to {MAX_BITS}.")
    low = np.minimum(np.asarray(low, np.float64), 0.0)
    high = np.maximum(np.asarray(high, np.float64), 0.0)
    if not np.all(np.isfinite(low)) or not np.all(np.isfinite(high)):
        raise ValueError("Cannot quantize a tensor that holds NaN or infinity.")
    levels = 2**bits
    with np.errstate(over="ignore"):
        delta = np.asarray((high - low) / levels, np.float32)
    if not np.all(np.isfinite(delta)):
        raise ValueError("Cannot quantize a tensor whose numbers exceed float32's.")
    # A tensor of zeros (or of numbers too small for float32 scales) has no range to divide.
    delta = np.where(delta < np.finfo(np.float32).tiny, np.float32(1.0), delta)
    zero_point = np.minimum(_ROUND[rounding](-low / delta.astype(np.float64)), levels - 1)
    return AffineMap(delta, zero_point.astype(np.int64))


def quantize_affine(
    tensor: np.ndarray, bits: int, rounding: Rounding = "nearest", per_channel: bool = False
) -> QuantizedTensor:
    """Quantizes to unsigned N-bit integers.

    This is the paper's formula (arXiv:1910.01055, sec. 3). W is the tensor; delta and z come from
    `affine_map`:

        Q(W) = clamp(round(W / delta) + z, 0, 2^n - 1)

    The paper prints it with floor and without the clamp, which gives 2^n + 1 levels. We keep to 2^n
    levels and round to nearest by default, as the original code does. Zero is represented exactly.

    Args:
      tensor: Finite float array of any shape.
      bits: 2 to 32.
      rounding: "nearest" (ties to even) or "floor" (as the paper prints).
      per_channel: Whether each index of axis 0 has its own scale and zero point.

    Returns:
      Values as uint8, uint16 or uint32: the narrowest type that holds them.

    Raises:
      ValueError: The width is not possible, or the tensor holds NaN or infinity.
    """
    if per_channel:
        axes = tuple(range(1, tensor.ndim))
        low, high = tensor.min(axis=axes, initial=0.0), tensor.max(axis=axes, initial=0.0)
    else:
        low, high = tensor.min(initial=0.0), tensor.max(initial=0.0)
    delta, zero_point = affine_map(low, high, bits, rounding)
    return QuantizedTensor(
        affine_values(tensor, AffineMap(delta, zero_point), bits, rounding),
        np.atleast_1d(delta),
        zero_point if per_channel else int(zero_point),
        bits,
    )


def affine_values(
    tensor: np.ndarray, affine: AffineMap, bits: int, rounding: Rounding = "nearest"
) -> np.ndarray:
    """Returns Q(W) for a given map, and clamps numbers that exceed its ranges.

    Args:
      tensor: Finite floats, any shape.
      affine: Scalars for the whole tensor, or arrays [rows] for axis 0.
      bits: The width that the map was made for.
      rounding: "nearest" or "floor".
    """
    # More than 16 bits need float64: float32 cannot tell 2^24 neighbours apart.
    work = np.float32 if bits <= 16 else np.float64
    delta, zero_point = (_along_axis_0(part, tensor.ndim) for part in affine)
    with np.errstate(over="ignore"):  # Numbers far outside of the range are clamped below.
        values = np.asarray(tensor, work) / delta.astype(work)
    values = np.asarray(_ROUND[rounding](values))
    values += zero_point.astype(work)
    np.clip(values, 0, 2**bits - 1, out=values)
    return values.astype(np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32)


def quantize_int8_channels(tensor: np.ndarray) -> QuantizedTensor:
    """Quantizes to int8, symmetric, with one scale for each output channel (axis 0).

    Args:
      tensor: Finite float32 weights with at least two axes, the output channel first.

    Returns:
      Values int8 from -127 to 127 with scales [channels]; a channel of zeros has scale 1.

    Raises:
      ValueError: The tensor holds NaN or infinity.
    """
    rows = tensor.reshape(tensor.shape[0], -1)
    largest = np.maximum(rows.max(axis=1), -rows.min(axis=1)).astype(np.float32)
    if not np.all(np.isfinite(largest)):
        raise ValueError("Cannot quantize a tensor that holds NaN or infinity.")
    scale = largest / np.float32(INT8_LEVELS)
    scale[scale < np.finfo(np.float32).tiny] = 1.0
    values = np.rint(rows / scale[:, None])
    return QuantizedTensor(values.astype(np.int8).reshape(tensor.shape), scale, 0, 8)


def quantize_int4_groups(tensor: np.ndarray, bits: int = 4) -> QuantizedTensor:
    """Quantizes a matrix to 4 bits, symmetric, with one scale for every 64 inputs of an output.

    Scales are bfloat16 numbers, so that they take 16 bits:

        s = bfloat16(max |w| / 7) over the group, q = round(w / s)

    With 3 bits, 3 takes the place of 7. These integers are some of those of 4 bits.

    Args:
      tensor: Finite float32 [outputs, inputs].
      bits: 4 or 3.

    Returns:
      Values int8 from -7 to 7, or from -3 to 3, with scales [outputs, ceil(inputs / 64)]; a group
      of zeros has scale 1.

    Raises:
      ValueError: The tensor holds NaN or infinity.
    """
    rows, columns = tensor.shape
    groups = num_groups(columns)
    padded = tensor
    if columns % INT4_GROUP:
        padded = np.zeros((rows, groups * INT4_GROUP), np.float32)
        padded[:, :columns] = tensor
    grouped = padded.reshape(rows, groups, INT4_GROUP)
    largest = np.maximum(grouped.max(axis=2), -grouped.min(axis=2))
    if not np.all(np.isfinite(largest)):
        raise ValueError("Cannot quantize a tensor that holds NaN or infinity.")
    scale = from_bfloat16(to_bfloat16(largest / np.float32(group_levels(bits))))
    scale[scale < np.finfo(np.float32).tiny] = 1.0
    values = np.rint(grouped / scale[:, :, None]).astype(np.int8)
    values = np.ascontiguousarray(values.reshape(rows, -1)[:, :columns])
    return QuantizedTensor(values, scale, 0, bits)


def group_levels(bits: int) -> int:
    """Returns the largest integer of the scheme with groups: 7 with 4 bits, 3 with 3 bits."""
    return 2 ** (bits - 1) - 1


def num_groups(columns: int) -> int:
    """Returns how many scales a row of so many columns has in the int4 scheme."""
    return -(-columns // INT4_GROUP)


def to_float16(numbers: np.ndarray) -> np.ndarray:
    """Rounds to float16; numbers beyond its largest, 65504, become 65504 instead of infinity."""
    largest = np.finfo(np.float16).max
    return np.clip(numbers, -largest, largest).astype(np.float16)


def to_bfloat16(numbers: np.ndarray) -> np.ndarray:
    """Rounds finite float32 to the nearest bfloat16, ties to even, and returns the bits, uint16."""
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    # Rounding adds half a unit of the last place that stays, less one where that place is even.
    # No finite number wraps, and numbers that would become infinity stay the largest.
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    overflow = (rounded & np.uint32(0x7FFF)) == np.uint32(0x7F80)
    return (rounded - overflow).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Returns float32 for the bits of bfloat16 numbers, uint16."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def dequantize(quantized: QuantizedTensor) -> np.ndarray:
    """Returns `scale * (values - zero_point)` as float32 in the tensor's shape."""
    values = quantized.values
    wide: type[np.floating] = np.float32 if quantized.bits <= 16 else np.float64
    reals = values.astype(wide)
    if np.any(quantized.zero_point):
        reals -= _along_axis_0(np.asarray(quantized.zero_point), values.ndim).astype(wide)
    scale = quantized.scale
    if scale.ndim == 2:
        scale = np.repeat(scale, INT4_GROUP, axis=1)[:, : values.shape[1]]
    elif values.ndim == 0:
        scale = scale.reshape(())
    elif scale.size != 1:
        scale = _along_axis_0(scale, values.ndim)
    largest = np.finfo(np.float32).max
    if float(scale.max(initial=0.0)) * 2.0**quantized.bits < largest:
        return (reals * scale).astype(np.float32, copy=False)
    # Near float32's limit the lowest level would be infinite: it may lie half a step below the
    # smallest number.
    return np.clip(reals * scale.astype(np.float64), -largest, largest).astype(np.float32)


def _along_axis_0(numbers: np.ndarray, ndim: int) -> np.ndarray:
    """Reshapes [rows] for arithmetic with a tensor of `ndim` axes; scalars stay scalars."""
    return numbers.reshape((-1,) + (1,) * (ndim - 1)) if numbers.ndim else numbers


def to_int8_channels(quantized: QuantizedTensor) -> QuantizedTensor:
    """Rewrites a tensor of fewer than 8 bits as int8 per channel, without any loss.

    `values - zero_point` lies within +-(2^n - 1), which int8 holds up to 7 bits. An actor that
    computes in int8 then uses exactly the numbers that travelled.

    Raises:
      ValueError: The tensor has more than 7 bits.
    """
    if quantized.bits > 7:
        raise ValueError(f"{quantized.bits}-bit integers do not fit into int8 without loss.")
    scale = np.broadcast_to(quantized.scale, quantized.values.shape[:1]).astype(np.float32)
    return QuantizedTensor(_signed(quantized), scale, 0, 8)


def to_int4_groups(quantized: QuantizedTensor, bits: int) -> QuantizedTensor:
    """Rewrites a matrix of fewer bits in the form with groups, and keeps its integers.

    `values - zero_point` lies within +-(2^n - 1), which n + 1 bits hold. The scale alone is
    rounded, to bfloat16.

    Args:
      quantized: Matrix [outputs, inputs] with one scale, of fewer than `bits` bits.
      bits: 4 or 3.
    """
    rows, columns = quantized.values.shape
    scale = from_bfloat16(to_bfloat16(quantized.scale))
    return QuantizedTensor(
        _signed(quantized), np.tile(scale, (rows, num_groups(columns))), 0, bits
    )


def _signed(quantized: QuantizedTensor) -> np.ndarray:
    """Returns `values - zero_point` of at most 7 bits as int8."""
    values = quantized.values.astype(np.int16) - np.int16(quantized.zero_point)
    return values.astype(np.int8)
