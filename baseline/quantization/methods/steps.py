"""Quantizes one layer after the other: grid, integers, bias. `pipeline` and `action` share it."""

import dataclasses

import numpy as np
import torch

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.quantization import acting_path
from baseline.quantization import recipes
from baseline.quantization.methods import adaround
from baseline.quantization.methods import bias_correction
from baseline.quantization.methods import gptq
from baseline.quantization.methods import grids
from baseline.quantization.methods import layers as layers_lib
from baseline.quantization.methods import ranges


@dataclasses.dataclass
class Steps:
    """A network whose layers are quantized in their order.

    Attributes:
      network: The acting path, which changes in place.
      full: The same in full precision.
      made: Its layers with weights.
      states: Normalized calibration observations [N, ...].
      bits: Width of the integers.
      nearest: Rounding where no method chooses it.
      corrects: Whether biases take up mean errors.
      tap: Quantizes activations; None: they stay floats.
    """

    network: acting_path.PolicyNetwork
    full: acting_path.PolicyNetwork
    made: list[layers_lib.Layer]
    states: np.ndarray
    bits: int
    nearest: quantization.Rounding = "nearest"
    corrects: bool = False
    tap: acting_path.Tap | None = None

    def ends(self, layer: layers_lib.Layer, kind: str) -> layers_lib.Ends:
        """Returns the ranges of a layer's weights; see `ranges.find`."""
        return ranges.find(kind, layer.layout.units(layer.weight), self.bits, self.nearest)

    def quantize(
        self, layer: layers_lib.Layer, ends: layers_lib.Ends, rounding: str | None
    ) -> None:
        """Quantizes a layer, whose weights and bias change; those before it are done.

        Args:
          layer: The layer.
          ends: Ranges of its weights.
          rounding: "gptq", "adaround", or None: to the nearest integer.

        Raises:
          errors.UserError: The layer has no bias to correct.
        """
        layer.ends = ends
        layer.grid = grids.make(layer.layout, *ends, self.bits, self.nearest)
        layer.write(self._rounded(layer, layer.grid, rounding))
        if self.corrects:
            self._correct(layer)

    def outputs(self, states: np.ndarray) -> np.ndarray:
        """Returns the last output in some states as the network is now, float32 [B, A]."""
        return acting_path.forward(self.network, states, self.tap).numpy()

    def _rounded(
        self, layer: layers_lib.Layer, grid: grids.Grid, rounding: str | None
    ) -> np.ndarray:
        if rounding is None:
            return grid.values(layer.weight)
        found = layers_lib.inputs(self.network, self.states, layer.name, self.tap)
        inputs = layer.basis.inputs(found)
        if rounding == recipes.GPTQ:
            factor = gptq.upper_factor(gptq.hessian(inputs))
            return gptq.round_columns(layer.weight, grid, factor)
        aim = layer.basis.inputs(layers_lib.inputs(self.full, self.states, layer.name))
        return adaround.round_layer(layer.weight, grid, inputs, aim @ layer.weight.T)

    def _correct(self, layer: layers_lib.Layer) -> None:
        original = dict(self.full.with_weights())[layer.name]
        if layer.module.bias is None or original.bias is None:
            raise errors.UserError(
                f"Layer {layer.name} has no bias, which --method=bias-correction would change: "
                "leave it out."
            )
        names = [layer.name]
        aim = layers_lib.raw_inputs(self.full, self.states, names)[layer.name]
        inputs = layers_lib.raw_inputs(self.network, self.states, names, self.tap)[layer.name]
        with torch.no_grad():
            layer.module.bias.copy_(original.bias)
            error = bias_correction.mean_error(original(aim), layer.module(inputs))
            layer.module.bias.add_(error)
