"""Writes a quantized policy as an ONNX file whose layers compute with integers.

It holds the same integers, scales and zero points as the simulated form (`schemes`). ONNX Runtime
computes it, by width:

- 8 bits with calibrated ranges: MatMulIntegerToFloat and QLinearConv, 8-bit inputs and weights,
  int32 sums. Biases of linear layers, tanh and ELU are in fp32, since biases in steps of the sums
  round too coarsely where a layer has few inputs.
- 8 bits without: DynamicQuantizeMatMul and ConvInteger, which take ranges from every call.
- 4 bits: MatMulNBits, 4-bit weights and fp32 inputs, which it rounds to int8 block by block.
  Convolutions have no such operator and stay at 8 bits.
- 16 bits: layers store their weights as halves and compute in fp32.
- 32 bits: all is in fp32.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.agents import zoo_files
from baseline.formats import names
from baseline.formats import onnx_activations
from baseline.formats import onnx_graph
from baseline.formats import onnx_layers
from baseline.quantization import acting_path
from baseline.quantization import schemes

INPUT_BITS = 8  # Layers that compute with integers take inputs of so many bits.


def export(
    network: acting_path.PolicyNetwork,
    bits: int = 8,
    ranges: schemes.Ranges | None = None,
    granularity: str = schemes.PAPER,
    normalization: zoo_files.Normalization | None = None,
    weights: Mapping[str, quantization.QuantizedTensor] | None = None,
    image_size: tuple[int, int] | None = None,
) -> onnx.ModelProto:
    """Returns a policy as a model for an integer engine.

    The model takes "observation", float32 [batch, D] or uint8 [batch, C, H, W], and gives
    "output", float32 [batch, A], and "action", int64 [batch] or float32 [batch, A].

    Args:
      network: The acting path, its weights in full precision.
      bits: Bits of the weights: 32, 16, 8 or 4.
      ranges: Smallest and largest input of layers by name, which makes 8-bit integers of inputs
        where weights have 8 bits. `acting_path.OUTPUT` names the last output's, which otherwise
        stays in floats. None: every call finds ranges of its own.
      granularity: Scales of linear layers' weights: "paper" (per tensor) or "channel" (per row).
      normalization: Normalization that the model does; None: the caller does it.
      weights: Integers to use instead of those made here, by layer, as wide as the layer's.
      image_size: Height and width of images; None: the file leaves them open.

    Raises:
      errors.UserError: The width is not possible, weights or ranges are not finite, a range is
        missing, or a layer has no such form.
    """
    names.check_bits("onnx", bits)
    if ranges is not None and bits > INPUT_BITS:
        raise errors.UserError(f"Ranges of activations are for 8 or 4 bits, not for {bits}.")
    scheme = schemes.Scheme(str(bits), granularity=granularity)
    return _Exporter(network, scheme, ranges, weights or {}, image_size).run(normalization)


class _Exporter:
    """Walks along the layers and writes their nodes."""

    def __init__(
        self,
        network: acting_path.PolicyNetwork,
        scheme: schemes.Scheme,
        ranges: schemes.Ranges | None,
        weights: Mapping[str, quantization.QuantizedTensor],
        image_size: tuple[int, int] | None,
    ):
        self._network = network
        self._scheme = scheme
        self._ranges = ranges
        self._weights = weights
        self._image_size = image_size or ("height", "width")
        self._graph = onnx_graph.Graph()
        layers = network.with_weights()
        if not layers:
            raise errors.UserError("The policy has no layer with weights: nothing to export.")
        self._bits = {
            name: 8 if scheme.width == 4 and isinstance(module, nn.Conv2d) else int(scheme.bits)
            for name, module in layers
        }
        self._quantizes_output = (
            self._bits[layers[-1][0]] == 8 and ranges is not None and acting_path.OUTPUT in ranges
        )

    def run(self, normalization: zoo_files.Normalization | None) -> onnx.ModelProto:
        """Returns the model."""
        observation, value = self._observation(normalization)
        values = {acting_path.OBSERVATION: value}
        for name, module, sources in self._network.steps():
            given = [values[source] for source in sources]
            if isinstance(module, acting_path.WITH_WEIGHTS):
                value = self._layer(name, module, given[0], self._next_map(name))
            else:
                value = self._without_weights(name, module, given)
            values[name] = value
        if self._quantizes_output:
            value = onnx_layers.to_integers(self._graph, value, self._map(acting_path.OUTPUT))
        value = onnx_layers.to_float(self._graph, value)
        output = self._graph.rename(value.name, names.OUTPUT)
        self._graph.rename(self._head(output), names.ACTION)
        outputs = self._network.num_outputs
        float32, int64 = np.dtype(np.float32), np.dtype(np.int64)
        actions: dict[str, tuple[np.dtype, list[int | str]]] = {
            "argmax": (int64, ["batch"]),
            "argmaxes": (int64, ["batch", len(self._network.sizes)]),
            "positive": (int64, ["batch", outputs]),
        }
        action = actions.get(self._network.head, (float32, ["batch", outputs]))
        return self._graph.model(
            {names.OBSERVATION: observation},
            {names.OUTPUT: (float32, ["batch", outputs]), names.ACTION: action},
            self._metadata(normalization is not None),
        )

    def _observation(
        self, normalization: zoo_files.Normalization | None
    ) -> tuple[tuple[np.dtype, list[int | str]], onnx_layers.Value]:
        """Returns dtype and shape of the model's input, and the first layer's input."""
        name = names.OBSERVATION
        shape: list[int | str] = ["batch", *self._network.observation_shape(self._image_size)]
        if self._network.image:
            return (np.dtype(np.uint8), shape), onnx_layers.Value(name, acting_path.PIXEL_MAP)
        if normalization is not None:
            if len(shape) == 2:
                normalization = normalization.flat()
            clip = np.asarray(normalization.clip, np.float32)
            name = self._graph.add("Sub", name, self._constant("mean", normalization.mean))
            name = self._graph.add(
                "Div", name, self._constant("deviation", normalization.deviation)
            )
            low, high = self._constant("clip low", -clip), self._constant("clip high", clip)
            if clip.ndim:  # Clip takes one number for all.
                name = self._graph.add("Max", self._graph.add("Min", name, high), low)
            else:
                name = self._graph.add("Clip", name, low, high)
        return (np.dtype(np.float32), shape), onnx_layers.Value(name)

    def _layer(
        self,
        name: str,
        module: nn.Linear | nn.Conv2d,
        value: onnx_layers.Value,
        following: quantization.AffineMap | None,
    ) -> onnx_layers.Value:
        bits = self._bits[name]
        if bits > INPUT_BITS:
            return onnx_layers.in_floats(self._graph, name, module, value, half=bits == 16)
        weights = self._integers(name, module)
        if bits == 4 and isinstance(module, nn.Linear):
            return onnx_layers.linear4(self._graph, name, module, weights, value)
        if self._ranges is not None:
            value = onnx_layers.to_integers(self._graph, value, self._map(name))
        if isinstance(module, nn.Conv2d):
            return onnx_layers.convolution8(self._graph, name, module, weights, value, following)
        return onnx_layers.linear8(self._graph, name, module, weights, value, following)

    def _integers(
        self, name: str, module: nn.Linear | nn.Conv2d
    ) -> quantization.QuantizedTensor:
        bits = self._bits[name]
        if name in self._weights:
            given = self._weights[name]
            if given.bits != bits or given.values.shape != tuple(module.weight.shape):
                raise ValueError(
                    f"Integers for {name}: {given.bits} bits, shape {given.values.shape} instead "
                    f"of {bits} bits, shape {tuple(module.weight.shape)}."
                )
            return given
        return schemes.integers(name, module, self._scheme, bits)

    def _next_map(self, name: str) -> quantization.AffineMap | None:
        """Returns the map of the integers that the layers behind a layer can take directly.

        It is None where they take floats, where several layers take the output, or where clamping
        to the map's levels is no ReLU.
        """
        if self._ranges is None:
            return None
        takers: dict[str, list[tuple[str, nn.Module]]] = {}
        for taker, module, sources in self._network.steps():
            for source in sources:
                takers.setdefault(source, []).append((taker, module))
        relu = False
        while taking := takers.get(name):
            if len(taking) > 1:
                return None
            ((name, module),) = taking
            if isinstance(module, acting_path.WITH_WEIGHTS):
                takes_integers = self._bits[name] == 8
                break
            if not isinstance(module, nn.ReLU | nn.Flatten):
                return None
            relu = relu or isinstance(module, nn.ReLU)
        else:
            name, takes_integers = acting_path.OUTPUT, self._quantizes_output
        if not takes_integers:
            return None
        affine = self._map(name)
        return None if relu and affine.zero_point else affine

    def _without_weights(
        self, name: str, module: nn.Module, given: Sequence[onnx_layers.Value]
    ) -> onnx_layers.Value:
        """Adds a layer that is no product of weights."""
        value = given[0]
        if isinstance(module, nn.Flatten):
            if (module.start_dim, module.end_dim) != (1, -1):
                raise errors.UserError(f"Layer {name} flattens other axes than all but the first.")
            flat = len(self._network.observation_shape(self._image_size)) == 1
            if value.name == names.OBSERVATION and flat and not self._network.image:
                return value  # Its shape is [batch, D] already.
            return value._replace(name=self._graph.add("Flatten", value.name, axis=1))
        if isinstance(module, nn.ReLU) and value.affine is not None and not value.affine.zero_point:
            return value  # No integer stands for a number below zero.
        floats = [onnx_layers.to_float(self._graph, each).name for each in given]
        return onnx_layers.Value(onnx_activations.add(self._graph, name, module, floats))

    def _head(self, output: str) -> str:
        """Adds the head, as `acting_path.to_actions` computes it; returns the actions' name."""
        add = self._graph.add
        if self._network.head == "argmax":
            return add("ArgMax", output, axis=1, keepdims=0)
        if self._network.head == "argmaxes":
            ends = np.cumsum(self._network.sizes)
            parts = [
                onnx_activations.columns(self._graph, output, int(end) - size, int(end))
                for size, end in zip(self._network.sizes, ends, strict=True)
            ]
            best = [add("ArgMax", part, axis=1, keepdims=1) for part in parts]
            return add("Concat", *best, axis=1)
        if self._network.head == "positive":
            above = add("Greater", output, self._constant("zero", 0.0))
            return add("Cast", above, to=onnx.TensorProto.INT64)
        low, high = self._network.low, self._network.high
        assert low is not None and high is not None, "Continuous actions have bounds."
        low_name = self._constant("low", low)
        if self._network.head == "clip":
            return add("Max", add("Min", output, self._constant("high", high)), low_name)
        half = add("Mul", self._constant("half", 0.5), add("Add", output, self._constant("one", 1)))
        return add("Add", add("Mul", half, self._constant("width", high - low)), low_name)

    def _map(self, name: str) -> quantization.AffineMap:
        if self._ranges is None or name not in self._ranges:
            raise errors.UserError(
                f"There is no range for the input of {name}: calibrate with this policy."
            )
        low, high = self._ranges[name]
        try:
            return quantization.affine_map(low, high, INPUT_BITS)
        except ValueError as error:
            raise errors.UserError(f"Activations of {name}: {error}") from None

    def _constant(self, name: str, numbers: Any) -> str:
        return self._graph.constant(name, np.asarray(numbers, np.float32))

    def _metadata(self, normalizes: bool) -> dict[str, Any]:
        """Returns the file's metadata."""
        bounds = {
            name: None if bound is None else bound.tolist()
            for name, bound in (("low", self._network.low), ("high", self._network.high))
        }
        if min(self._bits.values()) > INPUT_BITS:
            activations = "floats"
        else:
            # Layers of 4 bits, and all may be such, get their inputs' ranges from every call.
            uses_ranges = self._ranges is not None and INPUT_BITS in self._bits.values()
            activations = "calibrated" if uses_ranges else "dynamic"
        return {
            names.MARK: names.MARK_VERSION,
            "bits": int(self._scheme.bits),
            "layer_bits": self._bits,
            "activations": activations,
            "granularity": self._scheme.granularity,
            "rounding": self._scheme.rounding,
            "head": self._network.head,
            **names.layout(self._network.fields, self._network.sizes),
            **bounds,
            "image": self._network.image,
            "normalizes": normalizes,
            # Where a call finds the ranges, its observations influence each other.
            "one_by_one": any(kind.startswith("Dynamic") for kind in self._graph.kinds),
            "weight_bytes": self._graph.constant_bytes,
        }
