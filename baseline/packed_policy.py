"""Integers of any width in a file of the size that they really take.

The file is in the safetensors format: the length of the header (8 bytes, little-endian), the
header (JSON: dtype, shape and place of every array, and metadata), and the arrays. Arrays of a
layer NAME: `NAME.weight` (uint8, see `actorQ.packing`), `NAME.scale` (float32), `NAME.zero_point`
(uint8 or uint16) and `NAME.bias` (float32). Metadata: `bits`, `shapes` (of the weights) and
`ranges` (of activations), the last two as JSON.
"""

from collections.abc import Mapping
import json
import os
import pathlib
from typing import NamedTuple

import numpy as np

from actorQ import errors
from actorQ import files
from actorQ import packing
from actorQ import quantization

_DTYPES = {"U8": np.dtype("u1"), "U16": np.dtype("<u2"), "F32": np.dtype("<f4")}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_LENGTH_BYTES = 8
_ALIGNMENT = 8  # Of the header, by spaces at its end, as the format wants it.


class Policy(NamedTuple):
    """What a file holds.

    Attributes:
      weights: integers by layer.
      biases: float32 by layer.
      ranges: of activations, by layer; behind its ends a range may have bits of its own.
    """

    weights: Mapping[str, quantization.QuantizedTensor]
    biases: Mapping[str, np.ndarray]
    ranges: Mapping[str, tuple[float, ...]]


def num_bytes(policy: Policy) -> int:
    """Returns the size of the arrays."""
    return sum(array.nbytes for array in _arrays(policy).values())


def write(path: str | os.PathLike[str], policy: Policy) -> None:
    """Writes a file, which is there as a whole or not at all.

    Raises:
      errors.UserError: it cannot be written.
    """
    arrays = _arrays(policy)
    header: dict[str, object] = {
        "__metadata__": {
            "bits": str(next(iter(policy.weights.values())).bits),
            "shapes": json.dumps({k: t.values.shape for k, t in policy.weights.items()}),
            "ranges": json.dumps(dict(policy.ranges)),
        }
    }
    offset = 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": array.shape,
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    parts = [len(text).to_bytes(_LENGTH_BYTES, "little"), text]
    files.write(path, b"".join([*parts, *(array.tobytes() for array in arrays.values())]))


def read(path: str | os.PathLike[str]) -> Policy:
    """Reads what `write` wrote.

    Raises:
      errors.UserError: the file is missing or damaged.
    """
    try:
        content = pathlib.Path(path).read_bytes()
        start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
        header = json.loads(content[_LENGTH_BYTES:start])
        metadata = header.pop("__metadata__")
        bits = int(metadata["bits"])
        arrays = {
            name: _array(content[start:], facts["dtype"], facts["shape"], *facts["data_offsets"])
            for name, facts in header.items()
        }
        weights, biases = {}, {}
        for name, shape in json.loads(metadata["shapes"]).items():
            weights[name] = _unpacked(arrays, name, tuple(shape), bits)
            if f"{name}.bias" in arrays:
                biases[name] = arrays[f"{name}.bias"]
        ranges = {
            name: (float(low), float(high), *map(int, own))
            for name, (low, high, *own) in json.loads(metadata["ranges"]).items()
        }
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise errors.UserError(f"{path} is damaged: {errors.summary(error)}") from None
    return Policy(weights, biases, ranges)


def _arrays(policy: Policy) -> dict[str, np.ndarray]:
    arrays = {}
    for name, tensor in policy.weights.items():
        arrays[f"{name}.weight"] = packing.pack(tensor.values.ravel(), tensor.bits)
        arrays[f"{name}.scale"] = tensor.scale.astype("<f4")
        arrays[f"{name}.zero_point"] = np.atleast_1d(tensor.zero_point).astype(
            "u1" if tensor.bits <= 8 else "<u2"
        )
        if name in policy.biases:
            arrays[f"{name}.bias"] = policy.biases[name].astype("<f4")
    return arrays


def _array(data: bytes, dtype: str, shape: list[int], start: int, end: int) -> np.ndarray:
    return np.frombuffer(data[start:end], _DTYPES[dtype]).reshape(shape).copy()


def _unpacked(
    arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...], bits: int
) -> quantization.QuantizedTensor:
    scale = arrays[f"{name}.scale"]
    zero_point = arrays[f"{name}.zero_point"].astype(np.int64)
    if zero_point.shape != scale.shape or np.any(zero_point >= 2**bits):
        raise ValueError(f"the zero points of {name} make no sense")
    values = packing.unpack(arrays[f"{name}.weight"], bits, int(np.prod(shape)))
    return quantization.QuantizedTensor(
        values.reshape(shape), scale, zero_point if len(shape) > 2 else int(zero_point[0]), bits
    )
