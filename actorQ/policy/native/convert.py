"""Converts matrices from the learner's layout to the actors', in C or, without it, in numpy.

Imports no framework.
"""

from collections.abc import Callable
import ctypes
import functools

from absl import logging
import numpy as np

from actorQ.core import errors
from actorQ.policy import model_update
from actorQ.policy import quantization
from actorQ.policy.native import library


def transposed(matrix: np.ndarray | model_update.Bfloat16) -> np.ndarray:
    """Returns a contiguous float32 transpose of a matrix [inputs, outputs].

    Args:
      matrix: float32 or bfloat16 numbers.
    """
    kernels = _kernels()
    numbers, bfloat16 = _numbers(matrix)
    if kernels is None or not bfloat16 and numbers.dtype != np.float32:
        return np.ascontiguousarray(model_update.to_float32(matrix).T)
    result = np.empty(numbers.shape[::-1], np.float32)
    kernels.actorq_transpose(numbers.ctypes.data, bfloat16, *numbers.shape, result.ctypes.data)
    return result


def int8_channels(matrix: np.ndarray | model_update.Bfloat16) -> quantization.QuantizedTensor:
    """Returns `quantization.quantize_int8_channels` of the transpose, bit for bit.

    Args:
      matrix: Finite float32 or bfloat16 [inputs, outputs].

    Returns:
      Values int8 [outputs, inputs] with scales [outputs].

    Raises:
      ValueError: The matrix holds NaN or infinity.
    """
    return _quantized(matrix, "actorq_int8_channels", quantization.quantize_int8_channels, 8)


def int4_groups(
    matrix: np.ndarray | model_update.Bfloat16, bits: int = 4
) -> quantization.QuantizedTensor:
    """Returns `quantization.quantize_int4_groups` of the transpose, bit for bit.

    Args:
      matrix: Finite float32 or bfloat16 [inputs, outputs].
      bits: 4, or 3, which numpy quantizes.

    Returns:
      Values int8 from -7 to 7, or from -3 to 3, [outputs, inputs], with scales [outputs, groups].

    Raises:
      ValueError: The matrix holds NaN or infinity.
    """
    if bits != 4:
        return quantization.quantize_int4_groups(transposed(matrix), bits)
    return _quantized(matrix, "actorq_int4_groups", quantization.quantize_int4_groups, 4)


def _quantized(
    matrix: np.ndarray | model_update.Bfloat16,
    kernel: str,
    reference: Callable[[np.ndarray], quantization.QuantizedTensor],
    bits: int,
) -> quantization.QuantizedTensor:
    kernels = _kernels()
    numbers, bfloat16 = _numbers(matrix)
    if kernels is None or not numbers.size or not bfloat16 and numbers.dtype != np.float32:
        return reference(transposed(matrix))
    inputs, outputs = numbers.shape
    values = np.empty((outputs, inputs), np.int8)
    shape = (outputs, quantization.num_groups(inputs)) if bits == 4 else (outputs,)
    scale = np.empty(shape, np.float32)
    if getattr(kernels, kernel)(
        numbers.ctypes.data, bfloat16, inputs, outputs, values.ctypes.data, scale.ctypes.data
    ):
        raise ValueError("Cannot quantize a tensor that holds NaN or infinity.")
    return quantization.QuantizedTensor(values, scale, 0, bits)


def _numbers(matrix: np.ndarray | model_update.Bfloat16) -> tuple[np.ndarray, bool]:
    """Returns contiguous numbers, and whether they are the bits of bfloat16."""
    if isinstance(matrix, model_update.Bfloat16):
        return np.ascontiguousarray(matrix.upper), True
    return np.ascontiguousarray(matrix), False


@functools.cache
def _kernels() -> ctypes.CDLL | None:
    try:
        kernels = library.load()
    except errors.UserError as error:
        logging.warning("numpy converts the weights, several times slower: %s", error)
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    kernels.actorq_transpose.argtypes = [pointer, number, number, number, pointer]
    kernels.actorq_transpose.restype = None
    for quantizer in (kernels.actorq_int8_channels, kernels.actorq_int4_groups):
        quantizer.argtypes = [pointer, number, number, number, pointer, pointer]
        quantizer.restype = number
    return kernels
