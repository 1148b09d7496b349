"""From the learner's layout of a matrix to the actors', in C where it is built, else in numpy.

Imports no framework.
"""

import ctypes
import functools

from absl import logging
import numpy as np

from actorQ import errors
from actorQ import quantization
from actorQ.native import library


def transposed(matrix: np.ndarray) -> np.ndarray:
    """Returns a contiguous transpose of a float32 matrix [inputs, outputs], bit for bit."""
    kernels = _kernels()
    if kernels is None or matrix.dtype != np.float32:
        return np.ascontiguousarray(matrix.T)
    matrix = np.ascontiguousarray(matrix)
    result = np.empty(matrix.shape[::-1], np.float32)
    kernels.actorq_transpose(matrix.ctypes.data, *matrix.shape, result.ctypes.data)
    return result


def int8_channels(matrix: np.ndarray) -> quantization.QuantizedTensor:
    """Returns `quantization.quantize_int8_channels(matrix.T)`, bit for bit.

    Args:
      matrix: float32 [inputs, outputs], finite.

    Returns:
      Values int8 [outputs, inputs] with scales [outputs].

    Raises:
      ValueError: the matrix holds NaN or infinity.
    """
    kernels = _kernels()
    if kernels is None or matrix.dtype != np.float32 or not matrix.size:
        return quantization.quantize_int8_channels(transposed(matrix))
    matrix = np.ascontiguousarray(matrix)
    inputs, outputs = matrix.shape
    values = np.empty((outputs, inputs), np.int8)
    scale = np.empty(outputs, np.float32)
    if kernels.actorq_int8_channels(
        matrix.ctypes.data, inputs, outputs, values.ctypes.data, scale.ctypes.data
    ):
        raise ValueError("Cannot quantize a tensor that holds NaN or infinity.")
    return quantization.QuantizedTensor(values, scale, 0, 8)


@functools.cache
def _kernels() -> ctypes.CDLL | None:
    try:
        kernels = library.load()
    except errors.UserError as error:
        logging.warning("Weights are converted by numpy, several times slower: %s", error)
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    kernels.actorq_transpose.argtypes = [pointer, number, number, pointer]
    kernels.actorq_transpose.restype = None
    kernels.actorq_int8_channels.argtypes = [pointer, number, number, pointer, pointer]
    kernels.actorq_int8_channels.restype = number
    return kernels
