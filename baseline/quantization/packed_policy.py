"""Writes integers of any width into a file that takes no more than their bits.

The file has the safetensors format. A layer NAME has these arrays:

* `NAME.weight`: uint8, see `actorQ.policy.packing`.
* `NAME.scale` and `NAME.bias`: float32.
* `NAME.zero_point`: uint8 or uint16.

The metadata are `bits` and, as JSON, `shapes` of the weights, `ranges` of activations, and
`layer_bits` of layers whose weights have other bits, if there are any.
"""

from collections.abc import Mapping
import json
import math
import os
from typing import NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from actorQ.core import errors
from actorQ.core import files
from actorQ.policy import packing
from actorQ.policy import quantization


class Policy(NamedTuple):
    """The content of a file.

    Attributes:
      weights: Integers by layer.
      biases: float32 by layer.
      ranges: Ranges of activations by layer. A third number, if any, is the range's own width.
    """

    weights: Mapping[str, quantization.QuantizedTensor]
    biases: Mapping[str, np.ndarray]
    ranges: Mapping[str, tuple[float, ...]]


def num_bytes(policy: Policy) -> int:
    """Returns the size of the arrays."""
    return sum(array.nbytes for array in _arrays(policy).values())


def write(path: str | os.PathLike[str], policy: Policy) -> None:
    """Writes a file completely or not at all.

    Raises:
      errors.UserError: The file cannot be written.
    """
    bits = next(iter(policy.weights.values())).bits
    others = {name: t.bits for name, t in policy.weights.items() if t.bits != bits}
    metadata = {
        "bits": str(bits),
        "shapes": json.dumps({k: t.values.shape for k, t in policy.weights.items()}),
        "ranges": json.dumps(dict(policy.ranges)),
        **({"layer_bits": json.dumps(others)} if others else {}),
    }
    files.write(path, safetensors.numpy.save(_arrays(policy), metadata))


def read(path: str | os.PathLike[str]) -> Policy:
    """Reads a file that `write` wrote.

    Raises:
      errors.UserError: The file cannot be read, or it is damaged.
    """
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            facts, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
        weights, biases = {}, {}
        others = json.loads(facts.get("layer_bits", "{}"))
        for name, shape in json.loads(facts["shapes"]).items():
            bits = int(others.get(name, facts["bits"]))
            values = packing.unpack(arrays[f"{name}.weight"], bits, math.prod(shape))
            zero_points = arrays[f"{name}.zero_point"].astype(np.int64)
            weights[name] = quantization.QuantizedTensor(
                values.reshape(shape), arrays[f"{name}.scale"],
                int(zero_points[0]) if zero_points.size == 1 else zero_points, bits,
            )
            if f"{name}.bias" in arrays:
                biases[name] = arrays[f"{name}.bias"]
        ranges = {name: tuple(ends) for name, ends in json.loads(facts["ranges"]).items()}
    except Exception as error:  # The library's exceptions have no base of their own.
        raise errors.UserError(
            f"Cannot read {os.fspath(path)} as packed integers: {errors.summary(error)}"
        ) from None
    return Policy(weights, biases, ranges)


def _arrays(policy: Policy) -> dict[str, np.ndarray]:
    arrays = {}
    for name, tensor in policy.weights.items():
        arrays[f"{name}.weight"] = packing.pack(tensor.values.ravel(), tensor.bits)
        arrays[f"{name}.scale"] = tensor.scale.astype(np.float32)
        arrays[f"{name}.zero_point"] = np.atleast_1d(tensor.zero_point).astype(
            np.uint8 if tensor.bits <= 8 else np.uint16
        )
        if name in policy.biases:
            arrays[f"{name}.bias"] = policy.biases[name].astype(np.float32)
    return arrays
