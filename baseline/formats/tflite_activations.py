"""Writes layers without products of weights as TFLite operators that compute with floats.

Functions take the graph to add to.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from actorQ.core import errors
from baseline.formats import tflite_graph
from baseline.formats import tflite_layers
from baseline.quantization import acting_layers
from baseline.quantization import acting_path

_FLOAT, _INT64, _BOOL = np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.bool_)
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554804934, 1.6732632423543772848  # The ones of torch.

Tensor = tflite_graph.Tensor
Value = tflite_layers.Value


def add(
    graph: tflite_graph.Graph, name: str, module: nn.Module, inputs: Sequence[Value]
) -> Value:
    """Adds a layer; returns its output.

    Args:
      graph: The graph to add to.
      name: Name of the layer.
      module: One of `acting_layers.KINDS` but layers with weights and nn.Flatten.
      inputs: Its inputs, floats or pixels.

    Raises:
      errors.UserError: The layer has no such form.
    """
    inputs = [_floats(graph, each) for each in inputs]
    value = inputs[0]
    if isinstance(module, acting_layers.ACTIVATIONS):
        found = _activation(graph, module, value.tensor)
        if found is not None:
            return value._replace(tensor=found)
    elif isinstance(module, nn.LayerNorm):
        x = tflite_layers.channels_first(graph, value).tensor
        return Value(_layer_norm(graph, name, module, x))
    elif isinstance(module, acting_layers.Part):
        return _part(graph, module, value.tensor)
    elif isinstance(module, acting_layers.OneHot):
        columns = module.columns.numpy()
        chosen = _columns(graph, value.tensor, columns)
        values = graph.constant(f"{name}.values", module.values.numpy())
        equal = graph.add("EQUAL", chosen, values, dtype=_BOOL)
        return Value(graph.add("CAST", equal, dtype=_FLOAT, inDataType=_BOOL, outDataType=_FLOAT))
    elif isinstance(module, acting_layers.Scaled):
        return value._replace(
            tensor=_scaled(graph, value.tensor, module.factor, module.summand)
        )
    elif isinstance(module, acting_layers.QuantileMean):
        return Value(_quantile_mean(graph, module, value.tensor))
    elif isinstance(module, acting_layers.Masked):
        fall = _scaled(graph, inputs[1].tensor, module.fall, -module.fall)
        return Value(graph.add("ADD", value.tensor, fall))
    elif isinstance(module, acting_layers.JOINS):
        return _joined(graph, name, module, inputs)
    raise errors.UserError(f"Layer {name}, {module}, has no TFLite form.")


def argmaxes(graph: tflite_graph.Graph, output: Tensor, sizes: Sequence[int]) -> Tensor:
    """Returns the index of the largest number in every part of [B, sum(sizes)], int64 [B, K]."""
    axis = graph.constant("axis", np.array([1], np.int32))
    best, start = [], 0
    for size in sizes:
        part = _columns(graph, output, np.arange(start, start + size))
        index = graph.add("ARG_MAX", part, axis, shape=(-1,), dtype=_INT64, outputType=_INT64)
        best.append(tflite_layers.reshape(graph, index, (-1, 1)))
        start += size
    return graph.add("CONCATENATION", *best, shape=(-1, len(best)), axis=1)


def _activation(graph: tflite_graph.Graph, module: nn.Module, x: Tensor) -> Tensor | None:
    """Returns an activation function's output; None: it has no form here."""
    if isinstance(module, nn.LeakyReLU):
        return graph.add("LEAKY_RELU", x, alpha=float(module.negative_slope))
    if isinstance(module, nn.ELU):
        return _elu(graph, x, 1.0, module.alpha)
    if isinstance(module, nn.SELU):
        return _elu(graph, x, _SELU_SCALE, _SELU_SCALE * _SELU_ALPHA)
    if isinstance(module, nn.SiLU):
        return graph.add("MUL", x, graph.add("LOGISTIC", x))
    if isinstance(module, nn.Mish):
        return graph.add("MUL", x, graph.add("TANH", _softplus(graph, x)))
    if isinstance(module, nn.GELU):
        return graph.add("GELU", x, approximate=module.approximate == "tanh")
    if isinstance(module, nn.Softplus):
        steep = _softplus(graph, _scaled(graph, x, module.beta, 0.0))
        return _scaled(graph, steep, 1.0 / module.beta, 0.0)
    if isinstance(module, nn.Hardtanh):
        below = graph.add("MINIMUM", x, _number(graph, module.max_val))
        return graph.add("MAXIMUM", below, _number(graph, module.min_val))
    kinds = {nn.ReLU: "RELU", nn.Tanh: "TANH", nn.Sigmoid: "LOGISTIC"}
    kind = next((kind for base, kind in kinds.items() if isinstance(module, base)), None)
    return None if kind is None else graph.add(kind, x)


def _elu(graph: tflite_graph.Graph, x: Tensor, above: float, below: float) -> Tensor:
    """Returns above * x where x is positive, and below * (exp(x) - 1) elsewhere."""
    if above == below == 1.0:
        return graph.add("ELU", x)
    negative = graph.add("ELU", graph.add("MINIMUM", x, _number(graph, 0.0)))
    positive = _scaled(graph, graph.add("RELU", x), above, 0.0)
    return graph.add("ADD", positive, _scaled(graph, negative, below, 0.0))


def _softplus(graph: tflite_graph.Graph, x: Tensor) -> Tensor:
    """Returns log(1 + exp(x)) in a form that does not overflow."""
    small = graph.add("EXP", graph.add("MUL", graph.add("ABS", x), _number(graph, -1.0)))
    rest = graph.add("LOG", graph.add("ADD", small, _number(graph, 1.0)))
    return graph.add("ADD", graph.add("RELU", x), rest)


def _layer_norm(
    graph: tflite_graph.Graph, name: str, module: nn.LayerNorm, x: Tensor
) -> Tensor:
    centred = graph.add("SUB", x, _mean(graph, x, (-1, 1), keepDims=True))
    variance = _mean(graph, graph.add("MUL", centred, centred), (-1, 1), keepDims=True)
    deviation = graph.add("SQRT", graph.add("ADD", variance, _number(graph, module.eps)))
    x = graph.add("DIV", centred, deviation)
    for kind, key, tensor in (
        ("MUL", "norm_weight", module.weight), ("ADD", "norm_bias", module.bias)
    ):
        if tensor is not None:
            x = graph.add(kind, x, graph.constant(f"{name}.{key}", _array(tensor)))
    return x


def _part(graph: tflite_graph.Graph, module: acting_layers.Part, x: Tensor) -> Value:
    part = _columns(graph, x, np.arange(module.start, module.end))
    if module.divisor != 1.0:
        part = graph.add("DIV", part, _number(graph, module.divisor))
    if len(module.shape) != 3:  # Only convolutions need another shape than a vector's.
        return Value(part)
    channels, height, width = module.shape
    image = tflite_layers.reshape(graph, part, (-1, channels, height, width))
    return Value(image, (height, width, channels), "observation")


def _quantile_mean(
    graph: tflite_graph.Graph, module: acting_layers.QuantileMean, x: Tensor
) -> Tensor:
    quantiles = x.shape[1] // module.actions
    split = tflite_layers.reshape(graph, x, (-1, quantiles, module.actions))
    return _mean(graph, split, (-1, module.actions), keepDims=False)


def _joined(
    graph: tflite_graph.Graph, name: str, module: nn.Module, inputs: Sequence[Value]
) -> Value:
    """Adds a layer of several inputs, which are all vectors or all images of one size."""
    if all(value.form == "flat" for value in inputs):
        values = [tflite_layers.channels_first(graph, value) for value in inputs]
    else:
        values = [tflite_layers.as_rows(graph, name, value) for value in inputs]
    tensors = [value.tensor for value in values]
    image = values[0].image
    if isinstance(module, acting_layers.Concatenate):
        width = sum(tensor.shape[1] for tensor in tensors)
        whole = graph.add("CONCATENATION", *tensors, shape=(-1, width), axis=1)
        wider = None if image is None else (image[0], image[1], width)
        return values[0]._replace(tensor=whole, image=wider)
    kind = "MUL" if isinstance(module, acting_layers.Multiply) else "ADD"
    return values[0]._replace(tensor=graph.add(kind, *tensors))


def _columns(graph: tflite_graph.Graph, x: Tensor, columns: np.ndarray) -> Tensor:
    """Returns some columns of a matrix [B, D]."""
    key = f"columns {columns.tolist()}" if len(columns) < 20 else (
        f"columns {columns[0]} to {columns[-1]} ({len(columns)})"
    )
    indices = graph.constant(key, columns.astype(np.int32))
    return graph.add("GATHER", x, indices, shape=(-1, len(columns)), axis=1)


def _mean(graph: tflite_graph.Graph, x: Tensor, shape: tuple[int, ...], **options: Any) -> Tensor:
    """Returns the mean over the first axis behind the batch."""
    axis = graph.constant("axis", np.array([1], np.int32))
    return graph.add("MEAN", x, axis, shape=shape, **options)


def _scaled(graph: tflite_graph.Graph, x: Tensor, factor: float, summand: float) -> Tensor:
    if factor != 1.0:
        x = graph.add("MUL", x, _number(graph, factor))
    return graph.add("ADD", x, _number(graph, summand)) if summand else x


def _number(graph: tflite_graph.Graph, value: float) -> Tensor:
    return graph.constant(f"number {float(value)!r}", np.array([value], np.float32))


def _floats(graph: tflite_graph.Graph, value: Value) -> Value:
    """Returns pixels as floats from 0 to 1, and floats as they are."""
    tensor = value.tensor
    if tensor.dtype == _FLOAT:
        return value
    floats = graph.add("CAST", tensor, dtype=_FLOAT, inDataType=tensor.dtype, outDataType=_FLOAT)
    return value._replace(tensor=_scaled(graph, floats, 1.0 / acting_path.PIXEL_LEVELS, 0.0))


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().astype(np.float32)
