"""Writes layers with weights as nodes that compute with integers, for `onnx_policy`.

Inputs and weights are unsigned 8-bit integers q that stand for s (q - z), so that

    y = s_x s_w sum (q_x - z_x) (q_w - z_w) + b,

where the sum is an int32. Both operands are unsigned, since x86 without VNNI saturates sums of
unsigned by signed products.

Functions take the graph to add to, a layer's name and module, and its unsigned integers [outputs,
inputs, ...]. `value` is the layer's input, where floats of layers with 8 bits get ranges batch by
batch. `output` is the map of the integers to return, where zero point 0 may imply a ReLU; None:
floats.
"""

from typing import Any
from typing import NamedTuple

import numpy as np
import onnx
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import packing
from actorQ.policy import quantization
from baseline.formats import onnx_graph

_FLOAT = onnx.TensorProto.FLOAT
_BLOCKS = (256, 128, 64, 32, 16)  # Numbers of inputs that may share a scale in MatMulNBits.
_INT8_INPUTS = 4  # MatMulNBits' accuracy_level for products of integers.
_LARGEST_SUM = 2**31 - 1  # Products of two numbers of 8 bits, and the bias, add up in int32.
_LARGEST_BIAS = 2**30


class Value(NamedTuple):
    """A tensor in the graph: floats, or uint8 that stand for floats by an affine map."""

    name: str
    affine: quantization.AffineMap | None = None


def array(parameter: torch.Tensor) -> np.ndarray:
    """Returns a parameter's numbers, float32."""
    return parameter.detach().cpu().numpy().astype(np.float32)


def bias_of(module: nn.Linear | nn.Conv2d) -> np.ndarray:
    """Returns a layer's bias, float32; zeros where it has none."""
    if module.bias is None:
        return np.zeros(module.weight.shape[0], np.float32)
    return array(module.bias)


def affine_constants(graph: onnx_graph.Graph, affine: quantization.AffineMap) -> tuple[str, str]:
    """Returns the names of a map's scale (float32) and zero point (uint8), both scalars."""
    delta, zero_point = np.float32(affine.delta), np.uint8(affine.zero_point)
    return (
        graph.constant(f"scale {delta!r}", delta),
        graph.constant(f"zero point {zero_point}", zero_point),
    )


def to_integers(
    graph: onnx_graph.Graph, value: Value, affine: quantization.AffineMap | None
) -> Value:
    """Returns the value as 8-bit integers of a map; without one, as it is."""
    if affine is None:
        return value
    known = value.affine
    if known is not None and known.zero_point == affine.zero_point:
        if np.isclose(known.delta, affine.delta, rtol=1e-6):  # float32 rounds steps.
            return value
    name = to_float(graph, value).name
    return Value(graph.add("QuantizeLinear", name, *affine_constants(graph, affine)), affine)


def to_float(graph: onnx_graph.Graph, value: Value) -> Value:
    """Returns the value as float32."""
    if value.affine is None:
        return value
    return Value(
        graph.add("DequantizeLinear", value.name, *affine_constants(graph, value.affine))
    )


def in_floats(
    graph: onnx_graph.Graph, name: str, module: nn.Linear | nn.Conv2d, value: Value, half: bool
) -> Value:
    """Adds a layer that computes in fp32.

    With `half`, weights are stored as float16; numbers beyond its range become its largest.
    """
    weights, bias = array(module.weight), graph.constant(f"{name}.bias", bias_of(module))
    if isinstance(module, nn.Linear):
        weights = weights.T
    if half:
        weights = quantization.to_float16(weights)
    weight = graph.constant(f"{name}.weight", weights)
    if half:  # The runtime casts once, when it loads the file.
        weight = graph.add("Cast", weight, to=_FLOAT)
    operands = [to_float(graph, value).name, weight, bias]
    if isinstance(module, nn.Linear):
        return Value(graph.add("Gemm", *operands))
    return Value(graph.add("Conv", *operands, **_geometry(module)))


def linear4(
    graph: onnx_graph.Graph,
    name: str,
    module: nn.Linear,
    weights: quantization.QuantizedTensor,
    value: Value,
) -> Value:
    """Adds a linear layer with 4-bit weights, whose inputs the runtime rounds to int8 itself.

    MatMulNBits has a scale and a zero point for every block of inputs. Here all blocks of a tensor,
    or of an output, share one of each, so that the numbers are those of the affine formula.
    """
    outputs, inputs = weights.values.shape
    # Blocks should pad little; among equals, the largest is the fastest.
    block = min(_BLOCKS, key=lambda size: (-(-inputs // size) * size, -size))
    blocks = -(-inputs // block)
    zero_points = np.broadcast_to(weights.zero_point, [outputs]).astype(np.uint8)
    values = np.repeat(zero_points[:, None], blocks * block, axis=1)
    values[:, :inputs] = weights.values
    packed = packing.pack(values.ravel(), 4).reshape(outputs, blocks, block // 2)
    rows = weights.scale.size  # 1, or one for each output.
    # The runtime spreads them when it loads the file; stored, they would outweigh small layers.
    scale = graph.add(
        "Expand",
        graph.constant(f"{name}.weight_scale", weights.scale.reshape(rows, 1)),
        _shape(graph, [outputs, blocks]),
    )
    pairs = zero_points[:rows] | (zero_points[:rows] << 4)
    zero_point = graph.add(
        "Expand",
        graph.constant(f"{name}.weight_zero_point", pairs.reshape(rows, 1)),
        _shape(graph, [outputs, -(-blocks // 2)]),
    )
    product = graph.add(
        "MatMulNBits", to_float(graph, value).name, graph.constant(f"{name}.weight", packed),
        _flat(graph, scale), _flat(graph, zero_point),
        K=inputs, N=outputs, bits=4, block_size=block, accuracy_level=_INT8_INPUTS,
    )
    return Value(graph.add("Add", product, graph.constant(f"{name}.bias", bias_of(module))))


def linear8(
    graph: onnx_graph.Graph,
    name: str,
    module: nn.Linear,
    weights: quantization.QuantizedTensor,
    value: Value,
    output: quantization.AffineMap | None,
) -> Value:
    """Adds a linear layer with 8-bit weights."""
    _check_sums(name, weights)
    weight = graph.constant(f"{name}.weight", weights.values.T)
    scale, zero_point = _weight_map(graph, name, weights)
    bias = graph.constant(f"{name}.bias", bias_of(module))
    if value.affine is None:
        return Value(
            graph.add("DynamicQuantizeMatMul", value.name, weight, scale, zero_point, bias)
        )
    x_scale, x_zero = affine_constants(graph, value.affine)
    result = graph.add(
        "MatMulIntegerToFloat", value.name, weight, x_scale, scale, x_zero, zero_point, bias
    )
    return to_integers(graph, Value(result), output)


def convolution8(
    graph: onnx_graph.Graph,
    name: str,
    module: nn.Conv2d,
    weights: quantization.QuantizedTensor,
    value: Value,
    output: quantization.AffineMap | None,
) -> Value:
    """Adds a convolution with 8-bit weights and a scale and zero point for each output channel.

    ONNX Runtime's kernels take many scales but one zero point c for all channels. The last term of

        sum (q_x - z_x) (q_w - z_w) = sum (q_x - z_x) (q_w - c) + (c - z_w) sum (q_x - z_x)

    is a second product, of the same inputs with the weights c - z_w: the input comes twice, and
    so do the weights' input channels. Nothing is rounded.
    """
    _check_sums(name, weights)
    zero_points = np.broadcast_to(weights.zero_point, weights.values.shape[:1]).astype(np.int64)
    centre, rests = shared_zero_point(zero_points)
    weight = graph.constant(f"{name}.weight", weights.values)
    # Zero points are in the file for its readers; the runtime gets them as rests.
    scale, _ = _weight_map(graph, name, weights)
    shape = _shape(graph, list(weights.values.shape))
    spread = [
        graph.add(
            "Expand",
            graph.constant(f"{name}.rest_{index}", rest.astype(np.uint8).reshape(-1, 1, 1, 1)),
            shape,
        )
        for index, rest in enumerate(rests)
    ]
    centre_name = graph.constant(f"zero point {centre}", np.uint8(centre))
    if value.affine is None:
        integers, x_scale, x_zero = graph.add("DynamicQuantizeLinear", value.name, outputs=3)
    else:
        integers, (x_scale, x_zero) = value.name, affine_constants(graph, value.affine)
    if spread:
        weight = graph.add("Concat", weight, *spread, axis=1)
        integers = graph.add("Concat", *[integers] * (1 + len(spread)), axis=1)
    bias = None if value.affine is None else integer_bias(module, weights, value.affine)
    if output is not None and bias is not None:
        result = graph.add(
            "QLinearConv", integers, x_scale, x_zero, weight, scale, centre_name,
            *affine_constants(graph, output), graph.constant(f"{name}.bias", bias),
            **_geometry(module),
        )
        return Value(result, output)
    sums = graph.add("ConvInteger", integers, weight, x_zero, centre_name, **_geometry(module))
    column = [-1, 1, 1]
    both = graph.add("Mul", x_scale, graph.add("Reshape", scale, _shape(graph, column)))
    reals = graph.add("Mul", graph.add("Cast", sums, to=_FLOAT), both)
    summand = graph.constant(f"{name}.bias", bias_of(module).reshape(column))
    return to_integers(graph, Value(graph.add("Add", reals, summand)), output)


def shared_zero_point(zero_points: np.ndarray) -> tuple[int, list[np.ndarray]]:
    """Finds one zero point for all channels, and the weights that make up for it.

    Args:
      zero_points: int64 [channels], each 0 to 255.

    Returns:
      The zero point c, and arrays r, uint8 numbers [channels], such that the sum of all r - c is
      c - z for each channel's zero point z. There is no array if all z are equal, nearly always
      one, and two if both 0 and 255 occur.
    """
    # c - z must lie between -c and 255 - c: c is half of 255 + the smallest z.
    centre = int(zero_points.min())
    if np.any(zero_points != centre):
        centre = (255 + centre) // 2
    rests, left = [], centre - zero_points
    while np.any(left):
        part = np.clip(left, -centre, 255 - centre)
        rests.append(part + centre)
        left = left - part
    return centre, rests


def integer_bias(
    module: nn.Linear | nn.Conv2d,
    weights: quantization.QuantizedTensor,
    affine: quantization.AffineMap,
) -> np.ndarray | None:
    """Returns a layer's bias in steps of its sums, int32; None if that is too large."""
    steps = weights.scale.astype(np.float64) * float(affine.delta)
    bias = np.rint(bias_of(module) / steps)
    largest = min(_LARGEST_BIAS, _LARGEST_SUM - _largest_products(weights))
    return bias.astype(np.int32) if np.all(np.abs(bias) <= largest) else None


def _largest_products(weights: quantization.QuantizedTensor) -> int:
    return int(np.prod(weights.values.shape[1:])) * 255**2


def _check_sums(name: str, weights: quantization.QuantizedTensor) -> None:
    if _largest_products(weights) > _LARGEST_SUM:
        inputs = int(np.prod(weights.values.shape[1:]))
        raise errors.UserError(f"{name} has {inputs} inputs: int32 cannot hold their sums.")


def _weight_map(
    graph: onnx_graph.Graph, name: str, weights: quantization.QuantizedTensor
) -> tuple[str, str]:
    """Returns the names of scale and zero point, scalars or arrays [outputs]."""
    shape = [] if weights.scale.size == 1 else [-1]
    zero_point = np.asarray(weights.zero_point).astype(np.uint8).reshape(shape)
    return (
        graph.constant(f"{name}.weight_scale", weights.scale.reshape(shape)),
        graph.constant(f"{name}.weight_zero_point", zero_point),
    )


def _geometry(module: nn.Conv2d) -> dict[str, Any]:
    if module.groups != 1 or module.padding_mode != "zeros" or isinstance(module.padding, str):
        raise errors.UserError(
            f"There is no integer form of {module}: the convolution must be a plain one."
        )
    return {
        "kernel_shape": list(module.kernel_size),
        "strides": list(module.stride),
        "pads": list(module.padding) * 2,
        "dilations": list(module.dilation),
    }


def _shape(graph: onnx_graph.Graph, shape: list[int]) -> str:
    return graph.constant(f"shape {shape}", np.array(shape, np.int64))


def _flat(graph: onnx_graph.Graph, name: str) -> str:
    return graph.add("Reshape", name, _shape(graph, [-1]))
