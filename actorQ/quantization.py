"""The quantizers, defined once in numpy: every other implementation is tested against these.

Uniform affine quantization to N bits (the weights on the wire), and symmetric int8 per output
channel (the weights that actors compute with). Imports numpy only.
"""

from typing import NamedTuple

import numpy as np

MIN_BITS = 2
MAX_BITS = 32
INT8_LEVELS = 127  # Symmetric: -127 to 127, so that negation is exact and zero is zero.


class QuantizedTensor(NamedTuple):
    """Integers with the affine map back to reals: `scale * (values - zero_point)`.

    Attributes:
      values: integers of any dtype, in the tensor's shape.
      scale: float32, shape [1] (one for the tensor) or [rows] (one for each index of axis 0).
      zero_point: the integer that stands for 0.0; 0 where the scheme is symmetric.
      bits: width of the integers, 2 to 32.
    """

    values: np.ndarray
    scale: np.ndarray
    zero_point: int
    bits: int


def quantize_affine(tensor: np.ndarray, bits: int) -> QuantizedTensor:
    """Quantizes to unsigned N-bit integers with one scale and zero point for the tensor.

    The paper's formula (arXiv:1910.01055, sec. 3), with W the tensor:

        delta = (|min(W, 0)| + |max(W, 0)|) / 2^n
        z     = round(-min(W, 0) / delta)
        Q(W)  = clamp(round(W / delta) + z, 0, 2^n - 1)

    Printed there with floor and without the clamp, which gives 2^n + 1 levels; we round to
    nearest, as the original code does, and keep to 2^n. Zero is represented exactly.

    Args:
      tensor: float array of any shape, finite.
      bits: 2 to 32.

    Returns:
      Values as uint8, uint16 or uint32 (the narrowest that holds them).

    Raises:
      ValueError: the width is not possible, or the tensor holds NaN or infinity.
    """
    if not MIN_BITS <= bits <= MAX_BITS:
        raise ValueError(f"Cannot quantize to {bits} bits: possible are {MIN_BITS} to {MAX_BITS}.")
    low = min(float(tensor.min(initial=0.0)), 0.0)
    high = max(float(tensor.max(initial=0.0)), 0.0)
    if not np.isfinite(low) or not np.isfinite(high):
        raise ValueError("Cannot quantize a tensor that holds NaN or infinity.")
    levels = 2**bits
    # A tensor of zeros (or of numbers too small for float32 scales) has no range to divide.
    delta = np.float32((high - low) / levels)
    if delta < np.finfo(np.float32).tiny:
        delta = np.float32(1.0)
    # float64 above 16 bits: float32 cannot tell 2^24 neighbours apart.
    work = np.float32 if bits <= 16 else np.float64
    zero_point = min(int(np.rint(-low / float(delta))), levels - 1)
    values = np.asarray(np.rint(np.asarray(tensor, work) / work(delta)) + work(zero_point))
    np.clip(values, 0, levels - 1, out=values)
    dtype = np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32
    return QuantizedTensor(values.astype(dtype), np.array([delta]), zero_point, bits)


def quantize_int8_channels(tensor: np.ndarray) -> QuantizedTensor:
    """Quantizes to int8, symmetric, with one scale for each output channel (axis 0).

    Args:
      tensor: float32 weights with the output channel first, at least two axes, finite.

    Returns:
      Values int8 from -127 to 127 with scales [channels]; a channel of zeros has scale 1.

    Raises:
      ValueError: the tensor holds NaN or infinity.
    """
    rows = tensor.reshape(tensor.shape[0], -1)
    largest = np.maximum(rows.max(axis=1), -rows.min(axis=1)).astype(np.float32)
    if not np.all(np.isfinite(largest)):
        raise ValueError("Cannot quantize a tensor that holds NaN or infinity.")
    scale = largest / np.float32(INT8_LEVELS)
    scale[scale < np.finfo(np.float32).tiny] = 1.0
    values = np.rint(rows / scale[:, None])
    return QuantizedTensor(values.astype(np.int8).reshape(tensor.shape), scale, 0, 8)


def dequantize(quantized: QuantizedTensor) -> np.ndarray:
    """Returns `scale * (values - zero_point)` as float32 in the tensor's shape."""
    values = quantized.values
    wide = np.float32 if quantized.bits <= 16 else np.float64
    reals = values.astype(wide)
    if quantized.zero_point:
        reals -= wide(quantized.zero_point)
    scale = quantized.scale
    if scale.size > 1:
        scale = scale.reshape((-1,) + (1,) * (values.ndim - 1))
    return (reals * scale).astype(np.float32, copy=False)


def to_int8_channels(quantized: QuantizedTensor) -> QuantizedTensor:
    """Rewrites a tensor of fewer than 8 bits as int8 per channel, without any loss.

    `values - zero_point` lies within +-(2^n - 1), which int8 holds up to 7 bits: an actor that
    computes in int8 then uses exactly the numbers that travelled.

    Raises:
      ValueError: the tensor has more than 7 bits.
    """
    if quantized.bits > 7:
        raise ValueError(f"{quantized.bits}-bit integers do not fit into int8 without loss.")
    values = quantized.values.astype(np.int16) - np.int16(quantized.zero_point)
    scale = np.broadcast_to(quantized.scale, values.shape[:1]).astype(np.float32)
    return QuantizedTensor(values.astype(np.int8), scale, 0, 8)
