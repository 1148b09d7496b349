"""One version of a policy's weights: named tensors, each in one of three codings.

Messages carry it over the wire, and every backend builds a policy from it. Imports numpy only.
"""

from collections.abc import Mapping
import dataclasses
from typing import NamedTuple

import numpy as np

from actorQ.policy import quantization


class Bfloat16(NamedTuple):
    """Numbers in bfloat16, a type that numpy lacks.

    Attributes:
      upper: uint16 in the tensor's shape: the upper halves of rounded float32 numbers.
    """

    upper: np.ndarray


Tensor = np.ndarray | quantization.QuantizedTensor | Bfloat16


@dataclasses.dataclass(frozen=True)
class ModelUpdate:
    """One version of a policy's weights.

    Attributes:
      version: Learner steps after which these were the online weights.
      scheme: The number format in which the receiver is to compute: "float32", "float16", "int8",
        "int4" or "int3".
      tensors: Name to float array or quantized tensor, in the order of the layers.
    """

    version: int
    scheme: str
    tensors: Mapping[str, Tensor]


def stored_values(tensor: Tensor) -> np.ndarray:
    """Returns the array that has a tensor's shape: floats, integers or halves of floats."""
    if isinstance(tensor, Bfloat16):
        return tensor.upper
    return tensor.values if isinstance(tensor, quantization.QuantizedTensor) else tensor


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """Returns the shape of a float or quantized tensor."""
    return stored_values(tensor).shape


def to_float32(tensor: Tensor) -> np.ndarray:
    """Returns a tensor's numbers as float32, whatever its coding."""
    if isinstance(tensor, quantization.QuantizedTensor):
        return quantization.dequantize(tensor)
    if isinstance(tensor, Bfloat16):
        return quantization.from_bfloat16(tensor.upper)
    return tensor.astype(np.float32, copy=False)
