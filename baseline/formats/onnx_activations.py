"""Writes layers without products of weights as ONNX nodes that compute with floats."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from actorQ.core import errors
from baseline.formats import onnx_graph
from baseline.quantization import acting_layers

_FLOAT = onnx.TensorProto.FLOAT


def add(graph: onnx_graph.Graph, name: str, module: nn.Module, inputs: Sequence[str]) -> str:
    """Adds a layer; returns the name of its output.

    Args:
      graph: The graph to add to.
      name: Name of the layer.
      module: One of `acting_layers.KINDS` but layers with weights and nn.Flatten.
      inputs: Names of its inputs, which are floats.

    Raises:
      errors.UserError: The layer has no such form.
    """
    x = inputs[0]
    if isinstance(module, acting_layers.ACTIVATIONS):
        found = _activation(graph, module, x)
        if found is not None:
            return found
    elif isinstance(module, nn.LayerNorm):
        return _layer_norm(graph, name, module, x)
    elif isinstance(module, acting_layers.Part):
        part = columns(graph, x, module.start, module.end)
        if module.divisor != 1.0:
            part = graph.add("Div", part, _number(graph, module.divisor))
        if len(module.shape) == 1:
            return part
        return graph.add("Reshape", part, _integers(graph, [-1, *module.shape]))
    elif isinstance(module, acting_layers.OneHot):
        chosen = graph.add("Gather", x, _integers(graph, module.columns.tolist()), axis=1)
        values = graph.constant(f"{name}.values", module.values.numpy())
        return graph.add("Cast", graph.add("Equal", chosen, values), to=_FLOAT)
    elif isinstance(module, acting_layers.Scaled):
        return _scaled(graph, x, module.factor, module.summand)
    elif isinstance(module, acting_layers.QuantileMean):
        split = graph.add("Reshape", x, _integers(graph, [0, -1, module.actions]))
        return graph.add("ReduceMean", split, axes=[1], keepdims=0)
    elif isinstance(module, acting_layers.Concatenate):
        return graph.add("Concat", *inputs, axis=1)
    elif isinstance(module, acting_layers.Add):
        return graph.add("Add", *inputs)
    elif isinstance(module, acting_layers.Multiply):
        return graph.add("Mul", *inputs)
    elif isinstance(module, acting_layers.Masked):
        fall = _scaled(graph, inputs[1], module.fall, -module.fall)
        return graph.add("Add", x, fall)
    raise errors.UserError(f"Layer {name}, a {type(module).__name__}, has no integer form.")


def columns(graph: onnx_graph.Graph, x: str, start: int, end: int) -> str:
    """Returns the columns from start to end (which is not included) of a matrix [batch, D]."""
    ends = [_integers(graph, [number]) for number in (start, end, 1)]
    return graph.add("Slice", x, *ends)


def _activation(graph: onnx_graph.Graph, module: nn.Module, x: str) -> str | None:
    """Returns an activation function's output; None: it has no form here."""
    if isinstance(module, nn.LeakyReLU):
        return graph.add("LeakyRelu", x, alpha=float(module.negative_slope))
    if isinstance(module, nn.ELU):
        return graph.add("Elu", x, alpha=float(module.alpha))
    if isinstance(module, nn.SiLU):
        return graph.add("Mul", x, graph.add("Sigmoid", x))
    if isinstance(module, nn.Mish):
        return graph.add("Mul", x, graph.add("Tanh", graph.add("Softplus", x)))
    if isinstance(module, nn.GELU):
        return _gelu(graph, module, x)
    if isinstance(module, nn.Softplus):
        if module.beta != 1:
            steep = graph.add("Softplus", graph.add("Mul", x, _number(graph, module.beta)))
            return graph.add("Div", steep, _number(graph, module.beta))
        return graph.add("Softplus", x)
    if isinstance(module, nn.Hardtanh):
        ends = _number(graph, module.min_val), _number(graph, module.max_val)
        return graph.add("Clip", x, *ends)
    kinds = {nn.ReLU: "Relu", nn.SELU: "Selu", nn.Tanh: "Tanh", nn.Sigmoid: "Sigmoid"}
    kind = next((kind for base, kind in kinds.items() if isinstance(module, base)), None)
    return None if kind is None else graph.add(kind, x)


def _gelu(graph: onnx_graph.Graph, module: nn.GELU, x: str) -> str:
    """Returns x times the normal distribution's share below x, exact or as torch's tanh form."""
    if module.approximate == "tanh":
        cube = graph.add("Mul", graph.add("Mul", x, x), x)
        inner = graph.add("Add", x, graph.add("Mul", cube, _number(graph, 0.044715)))
        shape = graph.add("Tanh", graph.add("Mul", inner, _number(graph, np.sqrt(2 / np.pi))))
    else:
        shape = graph.add("Erf", graph.add("Mul", x, _number(graph, np.sqrt(0.5))))
    return graph.add("Mul", graph.add("Mul", x, _number(graph, 0.5)),
                     graph.add("Add", shape, _number(graph, 1.0)))


def _layer_norm(graph: onnx_graph.Graph, name: str, module: nn.LayerNorm, x: str) -> str:
    (size,) = module.normalized_shape
    weight = torch.ones(size) if module.weight is None else module.weight
    arrays = {"norm_weight": weight, "norm_bias": module.bias}
    operands = [
        graph.constant(f"{name}.{key}", tensor.detach().cpu().numpy().astype(np.float32))
        for key, tensor in arrays.items() if tensor is not None
    ]
    return graph.add("LayerNormalization", x, *operands, axis=-1, epsilon=float(module.eps))


def _scaled(graph: onnx_graph.Graph, x: str, factor: float, summand: float) -> str:
    if factor != 1.0:
        x = graph.add("Mul", x, _number(graph, factor))
    return graph.add("Add", x, _number(graph, summand)) if summand else x


def _number(graph: onnx_graph.Graph, value: Any) -> str:
    return graph.constant(f"number {float(value)!r}", np.float32(value))


def _integers(graph: onnx_graph.Graph, values: Sequence[int]) -> str:
    return graph.constant(f"integers {list(values)}", np.array(values, np.int64))
