"""Writes a quantized policy as a TFLite file whose layers compute with integers.

It holds the integers, scales and ranges that it is given, and no others. Weights and the inputs of
layers are int8, and their sums exact in int32 (see `tflite_layers`). Biases, scales and activation
functions are in fp32, as in `onnx_policy`. Integers may have 2 to 8 bits and take a byte each.
Without ranges all is in fp32, for comparisons.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.agents import zoo_files
from baseline.formats import names
from baseline.formats import tflite_activations
from baseline.formats import tflite_graph
from baseline.formats import tflite_layers
from baseline.quantization import acting_path
from baseline.quantization import schemes

_FLOAT, _INT64, _BOOL = np.dtype(np.float32), np.dtype(np.int64), np.dtype(np.bool_)


def export(
    network: acting_path.PolicyNetwork,
    ranges: schemes.Ranges | None,
    weights: Mapping[str, quantization.QuantizedTensor],
    bits: int = tflite_layers.MAX_BITS,
    normalization: zoo_files.Normalization | None = None,
    image_size: tuple[int, int] | None = None,
) -> bytes:
    """Returns a policy as a TFLite model.

    The model takes "observation", float32 [B, D] or (as pixels) uint8 [B, C, H, W], and gives
    "output", float32 [B, A], and "action", int64 [B] or float32 [B, A]. B is 1 until the tensor
    is resized.

    Args:
      network: The acting path, for its layers, activation functions and biases.
      ranges: Smallest and largest input of layers by name. `acting_path.OUTPUT` names the last
        output's, which otherwise stays in floats. None: all is in fp32, which linear layers alone
        have a form of, and there are no integers.
      weights: Integers of the weights by layer, 2 to 8 bits.
      bits: Bits of the inputs whose ranges do not name their own; 2 to 8.
      normalization: Normalization that the model does; None: the caller does it.
      image_size: Height and width of images; None where there are none.

    Raises:
      errors.UserError: Integers are wider than 8 bits, ranges are not finite, a range is missing,
        or a layer has no such form.
    """
    return _Exporter(network, ranges, weights, bits).run(normalization, image_size)


class _Exporter:
    """Walks along the layers and writes their operators."""

    def __init__(
        self,
        network: acting_path.PolicyNetwork,
        ranges: schemes.Ranges | None,
        weights: Mapping[str, quantization.QuantizedTensor],
        bits: int,
    ):
        self._network = network
        self._floats = ranges is None
        self._ranges = ranges or {}
        self._weights = weights
        self._bits = bits
        self._graph = tflite_graph.Graph()
        if not network.with_weights():
            raise errors.UserError("The policy has no layer with weights: nothing to export.")

    def run(
        self, normalization: zoo_files.Normalization | None, image_size: tuple[int, int] | None
    ) -> bytes:
        """Returns the model."""
        observation = self._observation(image_size)
        value = self._normalized(observation, normalization)
        values = {acting_path.OBSERVATION: value}
        for name, module, sources in self._network.steps():
            given = [values[source] for source in sources]
            if isinstance(module, nn.Flatten):
                value = self._flattened(name, module, given[0])
            elif not isinstance(module, acting_path.WITH_WEIGHTS):
                value = tflite_activations.add(self._graph, name, module, given)
            elif self._floats:
                value = tflite_layers.linear_in_floats(self._graph, name, module, given[0])
            else:
                value = self._layer(name, module, given[0])
            values[name] = value
        output = value.tensor
        if acting_path.OUTPUT in self._ranges:
            affine_map = self._map(acting_path.OUTPUT)
            integers = tflite_layers.to_integers(self._graph, output, *affine_map)
            output = tflite_layers.to_float(self._graph, integers.tensor)
        action = self._head(output)
        self._graph.rename(output, names.OUTPUT)
        self._graph.rename(action, names.ACTION)
        widths = {name: tensor.bits for name, tensor in self._weights.items()}
        description = f"A policy of {len(widths)} quantized layers (int8 by int8, int32 sums)."
        if self._floats:
            description = f"A policy of {len(self._network.with_weights())} layers in fp32."
        return self._graph.model(
            [observation.tensor],
            [output, action],
            description,
            {names.MARK: self._metadata(normalization is not None, widths)},
        )

    def _observation(self, image_size: tuple[int, int] | None) -> tflite_layers.Value:
        """Returns the model's input."""
        shape = self._network.observation_shape(image_size)
        if len(shape) == 1 and not self._network.image:
            return tflite_layers.Value(self._graph.input(names.OBSERVATION, (-1, *shape), _FLOAT))
        if len(shape) == 1:
            raise errors.UserError("A policy of images needs a convolution as its first layer.")
        dtype, affine = (np.uint8, acting_path.PIXEL_MAP) if self._network.image else (_FLOAT, None)
        tensor = self._graph.input(names.OBSERVATION, (-1, *shape), dtype, affine)
        return tflite_layers.Value(tensor, (shape[1], shape[2], shape[0]), "observation")

    def _normalized(
        self, value: tflite_layers.Value, normalization: zoo_files.Normalization | None
    ) -> tflite_layers.Value:
        if normalization is None or self._network.image:
            return value
        if value.image is None:
            normalization = normalization.flat()
        tensor = value.tensor
        for kind, name, numbers in (
            ("SUB", "mean", normalization.mean),
            ("DIV", "deviation", normalization.deviation),
            ("MINIMUM", "clip high", np.atleast_1d(normalization.clip)),
            ("MAXIMUM", "clip low", -np.atleast_1d(normalization.clip)),
        ):
            tensor = self._graph.add(kind, tensor, self._constant(name, numbers))
        return value._replace(tensor=tensor)

    def _layer(
        self, name: str, module: nn.Linear | nn.Conv2d, value: tflite_layers.Value
    ) -> tflite_layers.Value:
        integers, (affine, bits) = self._integers(name, module), self._map(name)
        if isinstance(module, nn.Conv2d):
            return tflite_layers.convolution(
                self._graph, name, module, integers, value, affine, bits
            )
        return tflite_layers.linear(self._graph, name, module, integers, value, affine, bits)

    def _integers(
        self, name: str, module: nn.Linear | nn.Conv2d
    ) -> quantization.QuantizedTensor:
        if name not in self._weights:
            raise errors.UserError(f"There are no integers for the weights of {name}.")
        given = self._weights[name]
        if given.values.shape != tuple(module.weight.shape):
            raise errors.UserError(
                f"Integers for {name} have the shape {given.values.shape} instead of "
                f"{tuple(module.weight.shape)}."
            )
        _check_bits(f"the weights of {name}", given.bits)
        return given

    def _map(self, name: str) -> tuple[quantization.AffineMap, int]:
        """Returns map and bits of a layer's input, or of the policy's output."""
        if name not in self._ranges:
            raise errors.UserError(f"There is no range for the input of {name}.")
        low, high, *own = self._ranges[name]
        bits = int(own[0]) if own else self._bits
        what = "the output" if name == acting_path.OUTPUT else f"the input of {name}"
        _check_bits(what, bits)
        try:
            return quantization.affine_map(low, high, bits), bits
        except ValueError as error:
            raise errors.UserError(f"Activations of {name}: {error}") from None

    def _flattened(
        self, name: str, module: nn.Flatten, value: tflite_layers.Value
    ) -> tflite_layers.Value:
        if (module.start_dim, module.end_dim) != (1, -1):
            raise errors.UserError(f"Layer {name} flattens other axes than all but the first.")
        return tflite_layers.flatten(self._graph, value)

    def _head(self, output: tflite_graph.Tensor) -> tflite_graph.Tensor:
        """Adds the head, as `acting_path.to_actions` computes it."""
        add, constant = self._graph.add, self._constant
        if self._network.head == "argmax":
            axis = self._graph.constant("axis", np.array([1], np.int32))
            return add("ARG_MAX", output, axis, shape=(-1,), dtype=_INT64, outputType=_INT64)
        if self._network.head == "argmaxes":
            return tflite_activations.argmaxes(self._graph, output, self._network.sizes)
        if self._network.head == "positive":
            above = add("GREATER", output, constant("zero", [0.0]), dtype=_BOOL)
            return add("CAST", above, dtype=_INT64, inDataType=_BOOL, outDataType=_INT64)
        low, high = self._network.low, self._network.high
        assert low is not None and high is not None, "Continuous actions have bounds."
        if self._network.head == "clip":
            output = add("MINIMUM", output, constant("high", high))
            return add("MAXIMUM", output, constant("low", low))
        half = add("MUL", add("ADD", output, constant("one", [1.0])), constant("half", [0.5]))
        return add("ADD", add("MUL", half, constant("width", high - low)), constant("low", low))

    def _constant(self, name: str, numbers: Any) -> tflite_graph.Tensor:
        return self._graph.constant(name, np.asarray(numbers, np.float32))

    def _metadata(self, normalizes: bool, widths: Mapping[str, int]) -> dict[str, Any]:
        """Returns the file's metadata."""
        bounds = {
            name: None if bound is None else bound.tolist()
            for name, bound in (("low", self._network.low), ("high", self._network.high))
        }
        return {
            "version": names.MARK_VERSION,
            "layer_bits": dict(widths),
            "ranges": {name: list(self._ranges[name]) for name in self._ranges},
            "bits": 32 if self._floats else self._bits,
            "head": self._network.head,
            **names.layout(self._network.fields, self._network.sizes),
            **bounds,
            "image": self._network.image,
            "normalizes": normalizes,
            "weight_bytes": self._graph.constant_bytes,
        }


def _check_bits(what: str, bits: int) -> None:
    if not quantization.MIN_BITS <= bits <= tflite_layers.MAX_BITS:
        raise errors.UserError(
            f"There is no TFLite form of {bits} bits, which {what} has: possible are "
            f"{quantization.MIN_BITS} to {tflite_layers.MAX_BITS}."
        )
