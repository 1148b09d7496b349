"""Writes layers as TFLite operators in int8 that TensorFlow Lite Micro has, for `tflite_micro`.

Functions take the graph to add to.
"""

from collections.abc import Sequence
import math
from typing import Any
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.formats import tflite_graph

# The schema's fused activation functions.
_NONE, _RELU, _RELU_N1_TO_1, _RELU6 = range(4)
_HARDTANHS = {(0.0, 6.0): _RELU6, (-1.0, 1.0): _RELU_N1_TO_1}
_VALID_PADDING = 1
_PER_CHANNEL = 11  # Version of FULLY_CONNECTED in TensorFlow 2.15, with a scale for each output.
_LARGEST = quantization.INT8_LEVELS
# Functions bend towards their ends. Inputs beyond these give the last level of int8, or nearly:
# tanh(2.7) = 0.991 is level 127 of 128, sigmoid(5.5) is level 255 of 256, exp(-4) = 0.018.
_TANH_END, _SIGMOID_END, _ELU_END = 2.7, 5.5, -4.0
_OF_TANH = quantization.AffineMap(np.array(1 / 128, np.float32), np.array(0, np.int64))
_OF_SIGMOID = quantization.AffineMap(np.array(1 / 256, np.float32), np.array(-128, np.int64))
_MOST_BIAS_STEPS = 2.0**29  # A sum of int32 has room for the products as well.
_MOST_INPUTS = 2**14 * 3  # Products reach 255 * 127 each, all together less than 2^31 - 2^29.


class Value(NamedTuple):
    """The tensor that goes from layer to layer.

    Attributes:
      tensor: int8 with a map, [B, features] or images in one of three forms.
      image: H, W, C; None: these are no images.
      form: Form of images: "observation" [B, C, H, W], "rows" [B, H, W, C] between layers, or
        "flat" [B, H W C]. All other tensors are "flat".
    """

    tensor: tflite_graph.Tensor
    image: tuple[int, int, int] | None = None
    form: str = "flat"


def is_activation(module: nn.Module) -> bool:
    """Returns whether a layer is an activation function that has a form here."""
    return _fused(module) != _NONE or _kind(module) is not None


def is_plain(module: nn.Conv2d) -> bool:
    """Returns whether a convolution has a form here."""
    return (
        module.groups == 1 and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
    )


def mixed(
    module: nn.Linear, matrices: Sequence[np.ndarray], shift: np.ndarray
) -> nn.Linear:
    """Returns a linear layer followed by products with matrices and by a summand, as one layer.

    Args:
      module: The layer, with N outputs.
      matrices: [M, N] each, in the order in which they are applied.
      shift: [M], the summand.
    """
    weight, bias = _numbers(module)
    for matrix in matrices:
        weight, bias = matrix @ weight, matrix @ bias
    made = nn.Linear(weight.shape[1], len(weight))
    with torch.no_grad():
        made.weight.copy_(torch.from_numpy(weight))
        made.bias.copy_(torch.from_numpy(bias + shift))
    return made


def layer(
    graph: tflite_graph.Graph,
    name: str,
    module: nn.Linear | nn.Conv2d,
    value: Value,
    following: nn.Module | None,
    affine: quantization.AffineMap,
    step: np.ndarray | None,
) -> Value:
    """Adds a layer with weights, and the activation function behind it if that is a part of it.

    Args:
      graph: The graph.
      name: Name of the layer.
      module: The layer.
      value: Its input.
      following: The next layer; None: there is none.
      affine: Map of the output behind the activation function.
      step: Steps of the integers that the weights stand for, one or one for each output; None:
        the weights are in full precision.

    Raises:
      errors.UserError: The input does not fit, or int32 cannot hold the sums.
    """
    if following is not None and _kind(following) is not None:
        affine = _before(following, affine)
    weight, bias = _numbers(module)
    if isinstance(module, nn.Linear):
        return _linear(graph, name, weight, bias, value, _fused(following), affine, step)
    if value.image is None or value.form == "flat" or value.image[2] != module.in_channels:
        raise errors.UserError(f"The input of {name} is no image of {module.in_channels} channels.")
    value = _padded(graph, name, module, _channels_last(graph, value))
    assert value.image is not None
    size = tuple(
        (side - dilation * (kernel - 1) - 1) // stride + 1
        for side, kernel, stride, dilation in zip(
            value.image, module.kernel_size, module.stride, module.dilation, strict=False
        )
    )
    if min(size) < 1:
        raise errors.UserError(
            f"Images of {value.image[0]} x {value.image[1]} are too small for {name}."
        )
    constants = _constants(
        graph, name, weight.transpose(0, 2, 3, 1), bias, value.tensor, step
    )
    image = (*size, len(weight))
    return Value(
        graph.add(
            "CONV_2D", value.tensor, *constants, shape=(-1, *image), affine=affine,
            padding=_VALID_PADDING, strideH=module.stride[0], strideW=module.stride[1],
            dilationHFactor=module.dilation[0], dilationWFactor=module.dilation[1],
            fusedActivationFunction=_fused(following),
        ),
        (size[0], size[1], len(weight)), "rows",
    )


def activation(
    graph: tflite_graph.Graph, module: nn.Module, value: Value, affine: quantization.AffineMap
) -> Value:
    """Adds an activation function, unless it is a part of the layer before it.

    Args:
      graph: The graph.
      module: The function.
      value: Its input.
      affine: Map of its output, where the operator leaves a choice.
    """
    kind = _kind(module)
    if kind is None:
        return value
    options: dict[str, Any] = {}
    if isinstance(module, nn.LeakyReLU):
        options["alpha"] = float(module.negative_slope)
    fixed = {"TANH": _OF_TANH, "LOGISTIC": _OF_SIGMOID}.get(kind, affine)
    version = 1 if kind == "ELU" else 2
    made = graph.add(kind, value.tensor, affine=fixed, version=version, **options)
    return value._replace(tensor=made)


def flatten(graph: tflite_graph.Graph, value: Value) -> Value:
    """Returns images as [B, H W C], and other values as they are."""
    if value.form == "flat" or value.image is None:
        return value
    flat = reshape(graph, value.tensor, (-1, math.prod(value.image)))
    # Torch flattens [B, C, H, W] in the same way, so that the order is right already.
    return Value(flat, None if value.form == "observation" else value.image)


def reshape(
    graph: tflite_graph.Graph, tensor: tflite_graph.Tensor, shape: tuple[int, ...]
) -> tflite_graph.Tensor:
    """Returns the numbers in another shape, with their map."""
    wanted = graph.constant(f"shape {shape}", np.array(shape, np.int32))
    return graph.add(
        "RESHAPE", tensor, wanted, shape=shape, affine=tensor.affine, newShape=list(shape)
    )


def _linear(
    graph: tflite_graph.Graph,
    name: str,
    weight: np.ndarray,
    bias: np.ndarray,
    value: Value,
    fused: int,
    affine: quantization.AffineMap,
    step: np.ndarray | None,
) -> Value:
    outputs, inputs = weight.shape
    if value.form != "flat" or value.tensor.shape[1] != inputs:
        raise errors.UserError(f"The input of {name} is not [B, {inputs}].")
    if value.image is not None:  # Torch flattens images with their channels first.
        height, width, channels = value.image
        weight = weight.reshape(outputs, channels, height, width).transpose(0, 2, 3, 1)
        weight = weight.reshape(outputs, inputs)
    constants = _constants(graph, name, weight, bias, value.tensor, step)
    return Value(graph.add(
        "FULLY_CONNECTED", value.tensor, *constants, shape=(-1, outputs), affine=affine,
        version=_PER_CHANNEL, fusedActivationFunction=fused,
    ))


def _constants(
    graph: tflite_graph.Graph,
    name: str,
    weight: np.ndarray,
    bias: np.ndarray,
    given: tflite_graph.Tensor,
    step: np.ndarray | None,
) -> tuple[tflite_graph.Tensor, tflite_graph.Tensor]:
    """Returns a layer's weights and biases as integers.

    Args:
      graph: The graph.
      name: Name of the layer.
      weight: float64 [outputs, ...], in the order of the operator.
      bias: float64 [outputs].
      given: The layer's input.
      step: See `layer`.
    """
    rows = weight.reshape(len(weight), -1)
    if rows.shape[1] > _MOST_INPUTS:
        raise errors.UserError(f"{name} has {rows.shape[1]} inputs: int32 cannot hold their sums.")
    assert given.affine is not None  # All tensors of integers have a map.
    of_input = float(given.affine.delta)
    largest = np.abs(rows).max(axis=1)
    scale = largest / _LARGEST
    if step is not None:  # The integers of the training stay where int8 holds them.
        scale = np.where(largest < (_LARGEST + 0.5) * step, step, scale)
    # A bias that is far larger than the weights must fit into int32 too.
    scale = np.maximum(scale, np.abs(bias) / (of_input * _MOST_BIAS_STEPS))
    scale = scale.astype(np.float32)
    scale[scale < np.finfo(np.float32).tiny] = 1.0
    steps = scale.astype(np.float64)
    integers = np.clip(np.rint(rows / steps[:, None]), -_LARGEST, _LARGEST)
    sums = (of_input * steps).astype(np.float32)
    zeros = np.zeros(len(rows), np.int64)
    return (
        graph.constant(
            f"{name}.weight", integers.astype(np.int8).reshape(weight.shape),
            quantization.AffineMap(scale, zeros),
        ),
        graph.constant(
            f"{name}.bias", np.rint(bias / sums.astype(np.float64)).astype(np.int32),
            quantization.AffineMap(sums, zeros),
        ),
    )


def _channels_last(graph: tflite_graph.Graph, value: Value) -> Value:
    """Returns images in the form "rows"."""
    if value.form == "rows":
        return value
    assert value.image is not None
    order = graph.constant("channels last", np.array([0, 2, 3, 1], np.int32))
    turned = graph.add(
        "TRANSPOSE", value.tensor, order, shape=(-1, *value.image), affine=value.tensor.affine
    )
    return value._replace(tensor=turned, form="rows")


def _padded(
    graph: tflite_graph.Graph, name: str, module: nn.Conv2d, value: Value
) -> Value:
    """Returns images with a convolution's border of zeros around them."""
    down, across = (int(side) for side in module.padding)
    if not down and not across:
        return value
    assert value.image is not None and value.tensor.affine is not None
    height, width, channels = value.image
    image = height + 2 * down, width + 2 * across, channels
    amounts = np.array([[0, 0], [down, down], [across, across], [0, 0]], np.int32)
    zero = np.asarray(value.tensor.affine.zero_point, np.int8).reshape(1)
    padded = graph.add(
        "PADV2", value.tensor, graph.constant(f"{name}.padding", amounts),
        graph.constant(f"{name}.zero", zero, value.tensor.affine), shape=(-1, *image),
        affine=value.tensor.affine,
    )
    return Value(padded, image, "rows")


def _fused(module: nn.Module | None) -> int:
    """Returns the number of an activation function that is a part of the layer before it."""
    if isinstance(module, nn.ReLU):
        return _RELU
    if isinstance(module, nn.Hardtanh):
        return _HARDTANHS.get((float(module.min_val), float(module.max_val)), _NONE)
    return _NONE


def _kind(module: nn.Module) -> str | None:
    """Returns the operator of an activation function; None: it has none of its own."""
    if isinstance(module, nn.ELU):
        return "ELU" if module.alpha == 1.0 else None
    kinds = {nn.Tanh: "TANH", nn.Sigmoid: "LOGISTIC", nn.LeakyReLU: "LEAKY_RELU"}
    return next((kind for base, kind in kinds.items() if isinstance(module, base)), None)


def _before(module: nn.Module, affine: quantization.AffineMap) -> quantization.AffineMap:
    """Returns the map of an activation function's input, for the map that its output should have.

    The range of the input is the one that gives the range of the output.
    """
    levels = np.array([-128, 127]) - int(affine.zero_point)
    low, high = (levels * float(affine.delta)).tolist()
    if isinstance(module, nn.Tanh):
        end = math.tanh(_TANH_END)
        largest = math.atanh(min(max(-low, high), end))
        return quantization.AffineMap(
            np.array(largest / _LARGEST, np.float32), np.array(0, np.int64)
        )
    if isinstance(module, nn.Sigmoid):
        end = 1 / (1 + math.exp(-_SIGMOID_END))
        low, high = (math.log(p / (1 - p)) for p in np.clip([low, high], 1 - end, end).tolist())
    elif isinstance(module, nn.ELU):
        low = math.log1p(max(low, math.expm1(_ELU_END)))
    else:
        assert isinstance(module, nn.LeakyReLU)
        low /= module.negative_slope or 1.0
    delta, zero_point = quantization.affine_map(low, high, 8)
    return quantization.AffineMap(delta, zero_point - 128)


def _numbers(module: nn.Linear | nn.Conv2d) -> tuple[np.ndarray, np.ndarray]:
    """Returns weights [outputs, ...] and biases [outputs] of a layer, float64."""
    weight = module.weight.detach().cpu().numpy().astype(np.float64)
    if module.bias is None:
        return weight, np.zeros(len(weight))
    return weight, module.bias.detach().cpu().numpy().astype(np.float64)
