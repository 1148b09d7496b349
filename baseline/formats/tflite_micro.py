"""Writes a quantized policy as a TFLite file that TensorFlow Lite Micro plays.

The file keeps to the specification of TFLite's 8-bit quantization
(https://ai.google.dev/edge/litert/models/quantization_spec):

- The input is int8. The caller normalizes and quantizes, with the numbers of the metadata.
- FULLY_CONNECTED and CONV_2D take and give int8. Weights have a scale for each output and no zero
  points; biases are int32 in steps of the sums. ReLU is a part of the layer.
- TANH, LOGISTIC, ELU and LEAKY_RELU are operators of their own, with int8 on both sides.
- One discrete action is int32 [B], and several are int32 [B, K]. The output that they follow from
  is int8: a difference of two actions counts, so each part is less its mean.
- Continuous actions are int8, -1 to 1 for the bounds; the end of int8's range clips them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.agents import zoo_files
from baseline.formats import names
from baseline.formats import tflite_graph
from baseline.formats import tflite_micro_layers as layers
from baseline.quantization import acting_layers
from baseline.quantization import acting_path
from baseline.quantization import schemes

_INT8, _INT32, _BOOL = (np.dtype(name) for name in ("int8", "int32", "bool"))
_ZERO_POINT = 128  # The specification's int8 are unsigned 8-bit integers less this.
# A bound has to be reached, so that these steps count from -127 to 127.
_OF_BOUNDS = quantization.AffineMap(np.array(1 / 127, np.float32), np.array(0, np.int64))


def check(network: acting_path.PolicyNetwork) -> None:
    """Checks that an acting path has such a form.

    Raises:
      errors.UserError: It has none. The message names the layer, and what takes it.
    """
    bounds = [bound for bound in (network.low, network.high) if bound is not None]
    if not np.all(np.isfinite(bounds)):
        raise errors.UserError(
            "Actions without bounds have no form in int8 for TensorFlow Lite Micro: "
            f"--tflite_kernels={names.EXACT} takes them, for TFLite."
        )
    before: str = acting_path.OBSERVATION
    last: nn.Module | None = None
    for name, module, sources in prepared(network).steps():
        able = sources == (before,)
        if layers.is_activation(module):
            able = able and isinstance(last, acting_path.WITH_WEIGHTS)
        elif isinstance(module, nn.Conv2d):
            able = able and layers.is_plain(module)
        elif isinstance(module, nn.Flatten):
            able = able and (module.start_dim, module.end_dim) == (1, -1)
        else:
            able = able and isinstance(module, nn.Linear)
        if not able:
            raise errors.UserError(
                f"Layer {name}, {module}, has no form in int8 that TensorFlow Lite Micro plays: "
                f"--tflite_kernels={names.EXACT} takes more layers, for TFLite."
            )
        before, last = name, module
    network.observation_shape((1, 1))  # It refuses a path that has no weights.
    if prepared(network).head == "clip":
        raise errors.UserError(
            "Actions that are clipped have a form in int8 behind a linear layer alone: "
            f"--tflite_kernels={names.EXACT} takes others, for TFLite."
        )


def prepared(network: acting_path.PolicyNetwork) -> acting_path.PolicyNetwork:
    """Returns a network of the same actions whose outputs int8 resolves better.

    The last linear layer takes over what follows it:

    - a mean over quantiles
    - for discrete actions, the subtraction of the mean over the actions
    - for continuous ones that are clipped, the division by half their range; the head is then
      "scale".
    """
    steps, head = list(network.layers), network.head
    mean = steps.pop()[1] if steps else None
    if not isinstance(mean, acting_layers.QuantileMean):
        steps, mean = list(network.layers), None
    if not steps:
        return network
    name, last = steps[-1]
    if not isinstance(last, nn.Linear):
        return network
    mixes = []
    if mean is not None:
        quantiles = last.out_features // mean.actions
        mixes.append(np.tile(np.eye(mean.actions) / quantiles, quantiles))
    shift = np.zeros(network.num_outputs)
    if head in ("argmax", "argmaxes"):
        mixes.append(_centering(network.sizes or (network.num_outputs,)))
    elif head == "clip":
        assert network.low is not None and network.high is not None
        half = _half(network.low, network.high)
        mixes.append(np.diag(1 / half))
        shift, head = -(network.low.astype(np.float64) + half) / half, "scale"
    steps[-1] = name, layers.mixed(last, mixes, shift)
    return network._replace(layers=tuple(steps), head=head)


def export(
    network: acting_path.PolicyNetwork,
    ranges: schemes.Ranges,
    steps: Mapping[str, np.ndarray] | None = None,
    normalization: zoo_files.Normalization | None = None,
    image_size: tuple[int, int] | None = None,
) -> bytes:
    """Returns a policy as a TFLite model.

    The model takes "observation", int8 [B, D] or [B, C, H, W]. It gives "action", and for discrete
    actions "output" as well. B is 1.

    Args:
      network: The acting path in full precision, or with the values of its training's integers.
      ranges: Smallest and largest input of layers by name, for 8 bits. Discrete actions need the
        range of `prepared`'s outputs too, under `acting_path.OUTPUT`.
      steps: Steps of the integers that the weights have from their training, by layer: one, or
        one for each output. They stay where int8 holds these integers; None: there are none.
      normalization: Normalization of observations for the metadata; None: the caller knows it.
      image_size: Height and width of images; None where there are none.

    Raises:
      errors.UserError: The network has no such form, ranges are not finite, or one is missing.
    """
    check(network)
    return _Exporter(network, ranges, steps or {}).run(normalization, image_size)


class _Exporter:
    """Walks along the layers and writes their operators."""

    def __init__(
        self,
        network: acting_path.PolicyNetwork,
        ranges: schemes.Ranges,
        steps: Mapping[str, np.ndarray],
    ):
        self._network = prepared(network)
        # The last layer may have other weights now than in training.
        own = dict(network.layers)
        kept = {name for name, module in self._network.layers if module is own[name]}
        self._steps = {name: step for name, step in steps.items() if name in kept}
        self._ranges = ranges
        self._graph = tflite_graph.Graph()

    def run(
        self, normalization: zoo_files.Normalization | None, image_size: tuple[int, int] | None
    ) -> bytes:
        """Returns the model."""
        value = observation = self._observation(image_size)
        steps = self._network.layers
        for index, (name, module) in enumerate(steps):
            if isinstance(module, nn.Flatten):
                value = layers.flatten(self._graph, value)
            elif isinstance(module, acting_path.WITH_WEIGHTS):
                activation = steps[index + 1][1] if index + 1 < len(steps) else None
                value = layers.layer(
                    self._graph, name, module, value, activation, self._map_after(index),
                    self._steps.get(name),
                )
            else:
                value = layers.activation(
                    self._graph, module, value, self._map_after(index)
                )
        outputs = self._outputs(value.tensor)
        names_of = (names.OUTPUT, names.ACTION) if len(outputs) > 1 else (names.ACTION,)
        for tensor, name in zip(outputs, names_of, strict=True):
            self._graph.rename(tensor, name)
        count = len(self._network.with_weights())
        return self._graph.model(
            [observation.tensor], outputs,
            f"A policy of {count} quantized layers in int8, for TensorFlow Lite Micro.",
            {names.MARK: self._metadata(normalization, list(names_of))},
        )

    def _observation(self, image_size: tuple[int, int] | None) -> layers.Value:
        """Returns the model's input."""
        shape = self._network.observation_shape(image_size)
        first = self._network.with_weights()[0][0]
        affine = self._map(first)
        tensor = self._graph.input(names.OBSERVATION, (-1, *shape), _INT8, affine)
        if len(shape) == 1:
            return layers.Value(tensor)
        return layers.Value(tensor, (shape[1], shape[2], shape[0]), "observation")

    def _map_after(self, index: int) -> quantization.AffineMap:
        """Returns the map that the tensor behind a layer should have."""
        for name, module in self._network.layers[index + 1 :]:
            if isinstance(module, acting_path.WITH_WEIGHTS):
                return self._map(name)
        if self._network.head == "scale":
            return _OF_BOUNDS
        return self._map(acting_path.OUTPUT)

    def _map(self, name: str) -> quantization.AffineMap:
        """Returns the map of a layer's input, or of the policy's output, for int8."""
        what = "the output" if name == acting_path.OUTPUT else f"the input of {name}"
        if name not in self._ranges:
            raise errors.UserError(f"There is no range for {what}.")
        low, high, *own = self._ranges[name]
        if own and own[0] != names.MICRO_BITS:
            raise errors.UserError(
                f"TensorFlow Lite Micro has integers of {names.MICRO_BITS} bits, and {what} has "
                f"{own[0]}: --tflite_kernels={names.EXACT} takes them, for TFLite."
            )
        try:
            delta, zero_point = quantization.affine_map(low, high, names.MICRO_BITS)
        except ValueError as error:
            raise errors.UserError(f"Activations of {name}: {error}") from None
        return quantization.AffineMap(delta, zero_point - _ZERO_POINT)

    def _outputs(self, output: tflite_graph.Tensor) -> list[tflite_graph.Tensor]:
        """Adds the head; returns the output, if it is another tensor, and the action."""
        add, constant, head = self._graph.add, self._graph.constant, self._network.head
        if head == "scale":
            return [output]
        if head == "positive":
            assert output.affine is not None  # All tensors of integers have a map.
            zero = np.asarray(output.affine.zero_point, np.int8).reshape(1)
            none = constant("zero", zero, output.affine)
            above = add("GREATER", output, none, dtype=_BOOL, version=2)
            return [output, add("CAST", above, dtype=_INT32, inDataType=_BOOL, outDataType=_INT32)]
        best = [self._best(part) for part in self._parts(output)]
        if head == "argmax":
            return [output, best[0]]
        rows = [layers.reshape(self._graph, one, (-1, 1)) for one in best]
        action = rows[0]
        for row in rows[1:]:  # TensorFlow Lite Micro joins at most ten tensors at once.
            action = add(
                "CONCATENATION", action, row, shape=(-1, action.shape[1] + 1), axis=1
            )
        return [output, action]

    def _parts(self, output: tflite_graph.Tensor) -> list[tflite_graph.Tensor]:
        """Returns the outputs of each action."""
        if self._network.head == "argmax":
            return [output]
        found, start = [], 0
        for size in self._network.sizes:
            columns = np.arange(start, start + size, dtype=np.int32)
            found.append(self._graph.add(
                "GATHER", output, self._graph.constant(f"columns from {start}", columns),
                shape=(-1, size), affine=output.affine, axis=1,
            ))
            start += size
        return found

    def _best(self, part: tflite_graph.Tensor) -> tflite_graph.Tensor:
        axis = self._graph.constant("axis", np.array([1], np.int32))
        return self._graph.add(
            "ARG_MAX", part, axis, shape=(-1,), dtype=_INT32, version=2, outputType=_INT32
        )

    def _metadata(
        self, normalization: zoo_files.Normalization | None, outputs: list[str]
    ) -> dict[str, Any]:
        """Returns the file's metadata."""
        network = self._network
        bounds = {
            name: None if bound is None else bound.tolist()
            for name, bound in (("low", network.low), ("high", network.high))
        }
        numbers = None
        if normalization is not None and not network.image:
            mean = normalization.mean.ravel()
            # JSON has no infinity.
            clip = np.minimum(normalization.clip, np.finfo(np.float32).max)
            numbers = {
                "mean": mean.tolist(), "deviation": normalization.deviation.ravel().tolist(),
                "clip": np.broadcast_to(clip, mean.shape).tolist(),
            }
        return {
            "version": names.MARK_VERSION,
            "kernels": names.MICRO,
            "outputs": outputs,
            "layer_bits": {name: names.MICRO_BITS for name, _ in network.with_weights()},
            "ranges": {name: list(ends) for name, ends in self._ranges.items()},
            "bits": names.MICRO_BITS,
            "head": network.head,
            **names.layout(network.fields, network.sizes),
            **bounds,
            "image": network.image,
            "normalizes": False,
            "normalization": numbers,
            "weight_bytes": self._graph.constant_bytes,
        }


def _centering(sizes: tuple[int, ...]) -> np.ndarray:
    """Returns the matrix [A, A] that subtracts the mean of each part."""
    matrix, start = np.eye(sum(sizes)), 0
    for size in sizes:
        matrix[start : start + size, start : start + size] -= 1 / size
        start += size
    return matrix


def _half(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Returns half the range of each action; equal bounds leave no range, but no zero."""
    width = high.astype(np.float64) - low
    return np.where(width > 0, width, 2.0) / 2
