"""Writes a policy as one file for a device, and the C program that plays it.

The file has the weights in the kernels' layout, so that a device maps it and copies nothing.
`device.c` tells its parts. In front of them stand a magic word, a SHA-256 of all that follows, and
facts in JSON. Imports no framework.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import hashlib
import json
import os
import re
from typing import Any
from typing import NamedTuple

import numpy as np

from actorQ.policy import architecture as architecture_lib
from actorQ.policy import model_update
from actorQ.policy import quantization
from actorQ.policy.native import compiling
from actorQ.policy.native import library

MAGIC = b"QUARLNP1"  # Another layout gets another one.
LANES, GROUP, ALIGNMENT = 16, quantization.INT4_GROUP, 64  # As in policy.c.
HEADS = ("argmax", "argmaxes", "positive", "clip", "scale")  # The order is that of device.c.
_HEADER_NUMBERS = 16
_SOURCES = ("vectors.h", "kernels.h", "kernels.c", "policy.c", "device.c")
_QUANTIZE: Mapping[str, Callable[[np.ndarray], model_update.Tensor]] = {
    "float32": model_update.to_float32,
    "float16": quantization.to_float16,
    "int8": quantization.quantize_int8_channels,
    "int4": quantization.quantize_int4_groups,
    "int3": functools.partial(quantization.quantize_int4_groups, bits=3),
}


class DeviceLayer(NamedTuple):
    """A linear layer or a convolution, and the activation behind it.

    Attributes:
      weight: Finite float32 [outputs, inputs], or [filters, channels, kernel, kernel] where the
        filters are a multiple of LANES.
      bias: float32 [outputs].
      activation: One of `library.ACTIVATIONS`.
      parameters: Its two parameters, see kernels.h.
      nonnegative: Whether no input can be negative.
      stride: Stride of a convolution.
      size: Height and width of a convolution's input.
    """

    weight: np.ndarray
    bias: np.ndarray
    activation: str = "none"
    parameters: tuple[float, float] = (0.0, 0.0)
    nonnegative: bool = False
    stride: int = 0
    size: tuple[int, int] = (0, 0)


class Head(NamedTuple):
    """How the last layer's outputs become actions.

    Attributes:
      name: One of HEADS.
      sizes: Numbers of outputs of the actions of "argmaxes".
      low: float32 [outputs], smallest continuous actions, or None.
      high: float32 [outputs], largest continuous actions, or None.
    """

    name: str
    sizes: tuple[int, ...] = ()
    low: np.ndarray | None = None
    high: np.ndarray | None = None


def content(
    layers: Sequence[DeviceLayer],
    head: Head,
    scheme: str,
    image: bool,
    normalization: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
    facts: Mapping[str, Any],
) -> bytes:
    """Returns the file of a policy.

    Args:
      layers: Its layers.
      head: How outputs become actions.
      scheme: "float32", "float16", "int8", "int4" or "int3". With the last two, convolutions and
        the last layer are int8.
      image: Whether observations are uint8 [C, H, W], which are divided by 255; else float32 [D].
      normalization: Mean, divisor and largest magnitude of observations, float32 [D] each, or None.
      facts: What the file tells of itself in JSON; the player needs "shape", "dtype", "outputs" and
        "actions" of them.
    """
    first = layers[0].weight
    num_inputs = first.shape[1]
    if first.ndim == 4:
        num_inputs *= layers[0].size[0] * layers[0].size[1]
    num_outputs = len(layers[-1].weight)
    header = np.zeros(_HEADER_NUMBERS, "<i4")
    header[:7] = (
        len(layers), HEADS.index(head.name), image, num_inputs, num_outputs, len(head.sizes),
        normalization is not None,
    )
    names = [*[""] * (len(layers) - 1), architecture_lib.HEAD]
    types = [
        library.type_of(scheme, name, layer.weight.ndim)
        for name, layer in zip(names, layers, strict=True)
    ]
    table = b"".join(
        bytes(_described(layer, kind)) for layer, kind in zip(layers, types, strict=True)
    )
    parts = [
        header, np.frombuffer(table, np.uint8), np.array(head.sizes, "<i4"),
        *(normalization or ()), *(bound for bound in (head.low, head.high) if bound is not None),
    ]
    for layer, kind in zip(layers, types, strict=True):
        quantize = _QUANTIZE["int8" if kind == "int8" else scheme]
        parts += packed(quantize(layer.weight), layer.bias, kind)
    text = json.dumps(dict(facts)).encode()
    start = np.uint32(len(text)).tobytes() + text
    front = len(MAGIC) + hashlib.sha256().digest_size
    body = start + bytes(-(front + len(start)) % ALIGNMENT)
    body += b"".join(_aligned(np.ascontiguousarray(part).tobytes()) for part in parts)
    return MAGIC + hashlib.sha256(body).digest() + body


def packed(tensor: model_update.Tensor, bias: np.ndarray, kind: str) -> list[np.ndarray]:
    """Returns a layer's weights as the kernels read them.

    Args:
      tensor: Weights, [outputs, inputs] or [filters, channels, kernel, kernel].
      bias: float32 [outputs].
      kind: One of `library.TYPES`.

    Returns:
      Values, bias, scale, row sums and group scales, as `lay_out` in policy.c names them; an array
      that a type does not have is empty.
    """
    values, scale = library.values_and_scale(tensor, kind)
    if values.ndim == 4:
        values = values.transpose(0, 2, 3, 1)
    values = values.reshape(len(values), -1)
    blocks = -(-len(values) // LANES)
    nothing = np.zeros(0, np.float32)
    parts = [nothing, _rows(bias.astype(np.float32)), nothing, nothing, nothing]
    if kind in ("float32", "float16"):
        parts[0] = _rows(values).reshape(blocks, LANES, -1).transpose(0, 2, 1)
        return parts
    assert scale is not None  # Integers have scales.
    columns = -(-values.shape[1] // 4) * 4 if kind == "int8" else scale.shape[1] * GROUP
    padded = np.zeros((len(values), columns), np.int8)
    padded[:, : values.shape[1]] = values
    if kind == "int8":
        parts[0] = _rows(padded).reshape(blocks, LANES, -1, 4).transpose(0, 2, 1, 3)
        parts[2] = _rows(scale)
        parts[3] = _rows(values.sum(axis=1, dtype=np.int32))
        return parts
    # A byte holds an input of a group's first half, and one of its second half. 8 stands for zero.
    nibbles = (_rows(padded) + np.int8(8)).view(np.uint8)
    halves = nibbles.reshape(blocks, LANES, -1, 2, GROUP // 8, 4)
    both = halves[:, :, :, 0] | halves[:, :, :, 1] << 4
    parts[0] = both.transpose(0, 2, 3, 1, 4)
    parts[4] = _rows(scale).reshape(blocks, LANES, -1).transpose(0, 2, 1)
    return parts


@functools.cache
def source() -> str:
    """Returns the C program that plays files: the kernels for one processor, in one source."""
    texts = [
        "/* Plays a policy of baseline.deploy: the kernels of ActorQ and a call, in one source.\n"
        " * Compile it for its own processor, as run_native.py does. */\n"
        "#define _GNU_SOURCE\n#define KERNELS actorq_portable\n"
    ]
    for name in _SOURCES:
        with open(os.path.join(compiling.FOLDER, name), encoding="utf-8") as file:
            text = re.sub(r'(?m)^#include "\w+\.h"\n|^#define _GNU_SOURCE\n', "", file.read())
        texts.append(f"/* ---- {name} ---- */\n{text}")
    return "\n".join(texts)


def _described(layer: DeviceLayer, kind: str) -> library.Layer:
    outputs, channels, *kernel = layer.weight.shape
    inputs = channels * int(np.prod(kernel))
    sizes = (kernel[0], layer.stride, *layer.size, channels) if kernel else (0, 0, 0, 0, 0)
    return library.Layer(
        library.TYPES[kind], library.ACTIVATIONS.index(layer.activation), inputs, outputs,
        int(layer.nonnegative), *sizes, *layer.parameters,
    )


def _rows(array: np.ndarray) -> np.ndarray:
    """Returns an array with rows of zeros behind it, up to whole blocks."""
    padded = np.zeros((-(-len(array) // LANES) * LANES, *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    return padded


def _aligned(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)
