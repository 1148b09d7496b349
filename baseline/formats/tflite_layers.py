"""Writes layers with weights as TFLite operators that compute with integers, for `tflite_policy`.

A layer's products are one BATCH_MATMUL of int8 by int8 with int32 sums. The file states 0 for all
its zero points, since kernels differ in whether they heed others: TensorFlow 2.15's optimized one
does, its reference does not. Operators behind it add up the remaining terms of

    sum (q_x - z_x) (q_w - z_w) = sum q_x q_w - z_w sum q_x - z_x sum (q_w - z_w)

in int32, so that the sums are exact on every kernel. sum q_x is a product with ones; the last term
is a constant. Convolutions are the same product, of patches that GATHER has laid out: CONV_2D would
round its sums to 8 bits, and knows no zero points of weights.

Functions take the graph to add to, a layer's name and module, and its integers [outputs, inputs,
...]. `value` is the layer's input, and `affine` the map of the input's unsigned integers, which
have `bits` bits, 2 to 8. Layers raise an `errors.UserError` where the input does not fit, sums
might exceed int32, or a convolution is no plain one.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.formats import tflite_graph
from baseline.quantization import acting_path

MAX_BITS = 8
_FLOAT, _INT8, _INT32 = (np.dtype(name) for name in ("float32", "int8", "int32"))
_LOWEST, _HIGHEST = -128, 127  # The range of int8.
_SHIFT = 128  # From unsigned 8-bit integers to int8.


class Value(NamedTuple):
    """The tensor that goes from layer to layer.

    Attributes:
      tensor: Floats, or uint8 pixels, [B, features] or images in one of three forms.
      image: H, W, C; None: these are no images.
      form: Form of images: "observation" [B, C, H, W], "rows" [B H W, C] between layers, or "flat"
        [B, H W C]. All other tensors are "flat".
    """

    tensor: tflite_graph.Tensor
    image: tuple[int, int, int] | None = None
    form: str = "flat"


class Integers(NamedTuple):
    """Stored int8 q that stand for delta (q - zero_point), all within the levels of a map."""

    tensor: tflite_graph.Tensor
    delta: np.float32
    zero_point: int


def to_integers(
    graph: tflite_graph.Graph,
    tensor: tflite_graph.Tensor,
    affine: quantization.AffineMap,
    bits: int,
) -> Integers:
    """Returns a tensor, float32 or uint8 pixels with a map of their own, as integers of a map."""
    zero_point = int(affine.zero_point)
    # Narrow integers fit into int8 as they are, without their zero point.
    stored_zero = zero_point - _SHIFT if bits == MAX_BITS else 0
    stored = quantization.AffineMap(
        np.asarray(affine.delta, np.float32), np.asarray(stored_zero, np.int64)
    )
    if tensor.dtype != _FLOAT and (bits != MAX_BITS or tensor.affine != affine):
        result = _looked_up(graph, tensor, affine, bits, stored_zero - zero_point)
        return Integers(result, np.float32(affine.delta), stored_zero)
    result = graph.add("QUANTIZE", tensor, dtype=_INT8, affine=stored)
    lowest, highest = stored_zero - zero_point, stored_zero - zero_point + 2**bits - 1
    if highest < _HIGHEST:
        result = graph.add("MINIMUM", result, _level(graph, highest), affine=stored)
    if lowest > _LOWEST:
        result = graph.add("MAXIMUM", result, _level(graph, lowest), affine=stored)
    return Integers(result, np.float32(affine.delta), stored_zero)


def _looked_up(
    graph: tflite_graph.Graph,
    pixels: tflite_graph.Tensor,
    affine: quantization.AffineMap,
    bits: int,
    shift: int,
) -> tflite_graph.Tensor:
    """Returns pixels as int8 of a map, by a table; `shift` is added to the unsigned integers.

    QUANTIZE would round ties away from zero, and pixels meet ties.
    """
    reals = np.arange(acting_path.PIXEL_LEVELS + 1, dtype=np.float32) / acting_path.PIXEL_LEVELS
    levels = quantization.affine_values(reals, affine, bits).astype(np.int32) + shift
    name = f"pixels in {bits} bits, step {float(affine.delta):.9g}, zero {int(affine.zero_point)}"
    table = graph.constant(name, levels.astype(np.int8))
    indices = graph.add("CAST", pixels, dtype=_INT32, inDataType=pixels.dtype, outDataType=_INT32)
    return graph.add("GATHER", table, indices, shape=pixels.shape, axis=0)


def to_float(graph: tflite_graph.Graph, tensor: tflite_graph.Tensor) -> tflite_graph.Tensor:
    """Returns a tensor of integers with a map as float32."""
    return graph.add("DEQUANTIZE", tensor, dtype=_FLOAT)


def linear(
    graph: tflite_graph.Graph,
    name: str,
    module: nn.Linear,
    weights: quantization.QuantizedTensor,
    value: Value,
    affine: quantization.AffineMap,
    bits: int,
) -> Value:
    """Adds a linear layer."""
    outputs, inputs = weights.values.shape
    if value.form != "flat" or value.tensor.shape[1] != inputs:
        raise errors.UserError(f"The input of {name} is not [B, {inputs}].")
    values = weights.values
    if value.image is not None:  # Torch flattens images with their channels first.
        height, width, channels = value.image
        values = values.reshape(outputs, channels, height, width).transpose(0, 2, 3, 1)
    integers = to_integers(graph, value.tensor, affine, bits)
    rows = reshape(graph, integers.tensor, (-1, inputs))
    return Value(_product(graph, name, module, weights, values, integers, rows))


def linear_in_floats(
    graph: tflite_graph.Graph, name: str, module: nn.Module, value: Value
) -> Value:
    """Adds a linear layer that computes in fp32; its input is [B, inputs]."""
    if not isinstance(module, nn.Linear):
        raise errors.UserError(
            f"Layer {name}, a {type(module).__name__}, has no TFLite form of 32 bits."
        )
    outputs, inputs = module.weight.shape
    if value.form != "flat" or value.image is not None or value.tensor.shape[1] != inputs:
        raise errors.UserError(f"The input of {name} is not [B, {inputs}].")
    weights = _array(module.weight)
    bias = np.zeros(outputs, np.float32) if module.bias is None else _array(module.bias)
    return Value(
        graph.add(
            "FULLY_CONNECTED", value.tensor, graph.constant(f"{name}.weight", weights),
            graph.constant(f"{name}.bias", bias), shape=(-1, outputs),
        )
    )


def convolution(
    graph: tflite_graph.Graph,
    name: str,
    module: nn.Conv2d,
    weights: quantization.QuantizedTensor,
    value: Value,
    affine: quantization.AffineMap,
    bits: int,
) -> Value:
    """Adds a convolution."""
    if module.groups != 1 or module.padding_mode != "zeros" or isinstance(module.padding, str):
        raise errors.UserError(
            f"There is no integer form of {module}: the convolution must be a plain one."
        )
    if value.image is None or value.form == "flat" or value.image[2] != module.in_channels:
        raise errors.UserError(f"The input of {name} is no image of {module.in_channels} channels.")
    integers = to_integers(graph, value.tensor, affine, bits)
    pixels = integers.tensor
    height, width, channels = value.image
    if value.form == "observation":
        order = graph.constant("channels last", np.array([0, 2, 3, 1], np.int32))
        pixels = graph.add(
            "TRANSPOSE", pixels, order, shape=(-1, height, width, channels), affine=pixels.affine
        )
    down, across = module.padding
    if down or across:
        pixels = reshape(graph, pixels, (-1, height, width, channels))
        amounts = np.array([[0, 0], [down, down], [across, across], [0, 0]], np.int32)
        height, width = height + 2 * down, width + 2 * across
        pixels = graph.add(
            "PADV2", pixels, graph.constant(f"{name}.padding", amounts),
            _level(graph, integers.zero_point), shape=(-1, height, width, channels),
        )
    pixels = reshape(graph, pixels, (-1, height * width, channels))
    table, out_height, out_width = _patches(module, height, width)
    if not table.size:
        raise errors.UserError(f"Images of {height} x {width} are too small for {name}.")
    patches = graph.add(
        "GATHER", pixels, graph.constant(f"{name}.patches", table),
        shape=(-1, table.size, channels), axis=1,
    )
    rows = reshape(graph, patches, (-1, channels * int(np.prod(module.kernel_size))))
    values = weights.values.transpose(0, 2, 3, 1)
    result = _product(graph, name, module, weights, values, integers, rows)
    return Value(result, (out_height, out_width, len(values)), "rows")


def flatten(graph: tflite_graph.Graph, value: Value) -> Value:
    """Returns images as [B, H W C], and other values as they are."""
    if value.form == "flat" or value.image is None:
        return value
    flat = reshape(graph, value.tensor, (-1, int(np.prod(value.image))))
    # Torch flattens [B, C, H, W] in the same way, so that the order is right already.
    return Value(flat, None if value.form == "observation" else value.image)


def reshape(
    graph: tflite_graph.Graph, tensor: tflite_graph.Tensor, shape: tuple[int, ...]
) -> tflite_graph.Tensor:
    """Returns the numbers in another shape; integers lose their map."""
    wanted = graph.constant(f"shape {shape}", np.array(shape, np.int32))
    return graph.add("RESHAPE", tensor, wanted, shape=shape, newShape=list(shape))


def channels_first(graph: tflite_graph.Graph, value: Value) -> Value:
    """Returns a flat value in torch's order, where images have their channels first."""
    if value.form != "flat" or value.image is None:
        return value
    height, width, channels = value.image
    order = graph.constant("channels first", np.array([0, 3, 1, 2], np.int32))
    images = graph.add(
        "TRANSPOSE", reshape(graph, value.tensor, (-1, height, width, channels)), order,
        shape=(-1, channels, height, width),
    )
    return Value(reshape(graph, images, (-1, height * width * channels)))


def as_rows(graph: tflite_graph.Graph, name: str, value: Value) -> Value:
    """Returns images in the form "rows"; `name` is that of the layer that takes them."""
    if value.form == "rows":
        return value
    if value.image is None or value.form == "flat":
        raise errors.UserError(f"The inputs of {name} are no images, or not all of them are.")
    height, width, channels = value.image
    order = graph.constant("channels last", np.array([0, 2, 3, 1], np.int32))
    images = graph.add("TRANSPOSE", value.tensor, order, shape=(-1, height, width, channels))
    return Value(reshape(graph, images, (-1, channels)), value.image, "rows")


def _patches(module: nn.Conv2d, height: int, width: int) -> tuple[np.ndarray, int, int]:
    """Returns the pixels of all patches, int32, and how many patches there are down and across."""
    starts = []
    for axis, size in enumerate((height, width)):
        reach = module.dilation[axis] * (module.kernel_size[axis] - 1)
        starts.append(np.arange(0, max(size - reach, 0), module.stride[axis]))
    offsets = [
        np.arange(length) * step
        for length, step in zip(module.kernel_size, module.dilation, strict=True)
    ]
    y = starts[0][:, None, None, None] + offsets[0][:, None]
    x = starts[1][:, None, None] + offsets[1]
    return (y * width + x).astype(np.int32).ravel(), len(starts[0]), len(starts[1])


def _product(
    graph: tflite_graph.Graph,
    name: str,
    module: nn.Linear | nn.Conv2d,
    weights: quantization.QuantizedTensor,
    values: np.ndarray,
    integers: Integers,
    rows: tflite_graph.Tensor,
) -> tflite_graph.Tensor:
    """Adds a layer's product, its scale and its bias; returns float32 [..., outputs].

    `rows`, int8 [..., inputs] without a map, hold `integers` in the order of `values`, which are
    the weights' integers [outputs, ...].
    """
    values = values.reshape(len(values), -1).astype(np.int64)
    outputs, inputs = values.shape
    if inputs * (2**MAX_BITS) ** 2 > 2**31:
        raise errors.UserError(f"{name} has {inputs} inputs: int32 cannot hold their sums.")
    zero_points = np.broadcast_to(weights.zero_point, [outputs]).astype(np.int64)
    differences = values - zero_points[:, None]
    fits = differences.min(initial=0) >= _LOWEST and differences.max(initial=0) <= _HIGHEST
    stored = differences if fits else values - _SHIFT
    sums = _matmul(graph, rows, graph.constant(f"{name}.weight", stored.astype(np.int8)))
    constant = -integers.zero_point * differences.sum(axis=1)
    rest = None
    if not fits:
        ones = graph.constant(f"{inputs} ones", np.ones((1, inputs), np.int8))
        factors = (_SHIFT - np.atleast_1d(weights.zero_point)).astype(np.int32)
        rest = graph.add(
            "MUL", _matmul(graph, rows, ones), graph.constant(f"{name}.negative_zero", factors),
            shape=(-1, len(factors)),
        )
    if np.any(constant):
        offset = graph.constant(f"{name}.offset", constant.astype(np.int32))
        rest = offset if rest is None else graph.add("ADD", rest, offset, shape=sums.shape)
    if rest is not None:
        sums = graph.add("ADD", sums, rest)
    reals = graph.add("CAST", sums, dtype=_FLOAT, inDataType=_INT32, outDataType=_FLOAT)
    scale = (weights.scale.astype(np.float64) * float(integers.delta)).astype(np.float32)
    reals = graph.add("MUL", reals, graph.constant(f"{name}.scale", scale))
    if module.bias is None:
        return reals
    return graph.add("ADD", reals, graph.constant(f"{name}.bias", _array(module.bias)))


def _array(parameter: torch.Tensor) -> np.ndarray:
    return parameter.detach().cpu().numpy().astype(np.float32)


def _matmul(
    graph: tflite_graph.Graph, rows: tflite_graph.Tensor, weights: tflite_graph.Tensor
) -> tflite_graph.Tensor:
    return graph.add(
        "BATCH_MATMUL", rows, weights, shape=(-1, weights.shape[0]), dtype=_INT32, adjY=True
    )


def _level(graph: tflite_graph.Graph, level: int) -> tflite_graph.Tensor:
    return graph.constant(f"level {level}", np.array([level], np.int8))
