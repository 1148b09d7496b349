"""Applies post-training methods to a network: transformation, ranges, rounding, biases.

Every method takes the same calibration states. The numbers that result are those of the grid of
`actorQ.policy.quantization`: with minmax alone they are exactly `schemes.quantize_weights`'s.
"""

from collections.abc import Mapping
import copy
from typing import NamedTuple

import numpy as np

from actorQ.core import errors
from baseline.quantization import acting_path
from baseline.quantization import recipes
from baseline.quantization import schemes
from baseline.quantization.methods import action
from baseline.quantization.methods import awq
from baseline.quantization.methods import distill
from baseline.quantization.methods import folding
from baseline.quantization.methods import grids
from baseline.quantization.methods import hadamard
from baseline.quantization.methods import layers as layers_lib
from baseline.quantization.methods import ranges as ranges_lib
from baseline.quantization.methods import smooth
from baseline.quantization.methods import steps as steps_lib

Bases = Mapping[str, layers_lib.Basis]


class Quantized(NamedTuple):
    """Says what the weights of a network came to.

    Attributes:
      num_bytes: Bytes of the acting path's parameters as they would be stored, as of
        `schemes.quantize_weights`, with the scales of inputs that could not be folded.
      weight_ranges: Smallest and largest number of each layer's weights, from which
        `quantization.affine_map` makes the map of their integers. They are numbers, or have one for
        each row. None: a layer has groups or another basis, so that its weights have no such map.
    """

    num_bytes: int
    weight_ranges: dict[str, tuple[float | list[float], ...]] | None


def transform(
    network: acting_path.PolicyNetwork, scheme: schemes.Scheme, states: np.ndarray
) -> Bases:
    """Changes the basis of layers, in place; the function of the network stays as it is.

    Args:
      network: The acting path in full precision.
      scheme: Names the method.
      states: Normalized calibration observations [N, ...].

    Returns:
      The bases that could not be folded into the layer before, by layer.

    Raises:
      errors.UserError: Activations are to be integers, and no layer can be folded.
    """
    kind = recipes.recipe(scheme.method).transform
    if kind is None:
        return {}
    left: dict[str, layers_lib.Basis] = {}
    folded = 0
    for name, module in network.with_weights():
        if kind == recipes.HADAMARD:
            turn = hadamard.matrix(module.weight.shape[1])
            if folding.fold_rotation(network, name, turn):
                folded += 1
            elif not left and not folded:  # Of the layers that cannot fold, only the first turns.
                repeats = int(np.prod(module.weight.shape[2:], dtype=int))
                whole = np.kron(turn, np.eye(repeats, dtype=np.float32))
                left[name] = layers_lib.Basis(rotation=whole)
            continue
        scales = _scales(kind, network, name, module, scheme, states)
        if folding.fold_scales(network, name, scales):
            folded += 1
        else:
            left[name] = layers_lib.Basis(scales=folding.per_column(module, scales))
    if scheme.activations:
        if not folded:
            raise errors.UserError(
                f"--method={scheme.method} cannot be folded into any layer of this network, and "
                f"integers of activations need that: --scheme={schemes.WEIGHTS}."
            )
        return {}
    return left


def activation_ranges(
    network: acting_path.PolicyNetwork, scheme: schemes.Scheme, states: np.ndarray
) -> dict[str, tuple[float, float]]:
    """Returns the range of every layer's input by the scheme's way to find ranges.

    Args:
      network: The acting path in full precision.
      scheme: A scheme with activations whose ranges are "mse" or "percentile".
      states: Normalized calibration observations [N, ...].
    """
    names = [name for name, _ in network.with_weights()]
    found = {}
    for name, x in layers_lib.raw_inputs(network, states, names).items():
        low, high = ranges_lib.find(
            recipes.recipe(scheme.method).ranges, x.numpy().reshape(1, -1), int(scheme.bits),
            scheme.rounding,
        )
        found[name] = (float(low[0]), float(high[0]))
    if network.image:
        found[names[0]] = acting_path.PIXEL_RANGE
    return found


def quantize(
    network: acting_path.PolicyNetwork,
    scheme: schemes.Scheme,
    states: np.ndarray,
    bases: Bases,
    tap: acting_path.Tap | None = None,
    play: distill.Play | None = None,
) -> Quantized:
    """Replaces the weights of the acting path by quantized ones, in place; biases may change.

    Args:
      network: The acting path, after `transform`.
      scheme: How to quantize; the width is of integers, and the method is not `auto`.
      states: Normalized calibration observations [N, ...].
      bases: What `transform` returned.
      tap: Quantizes activations; None: they stay floats.
      play: Plays the network as it is; only `distill` needs it.

    Raises:
      errors.UserError: Weights hold NaN or infinity, or a layer lacks a bias to correct.
    """
    recipe = recipes.recipe(scheme.method)
    made = [
        _layer(name, module, scheme, bases.get(name, layers_lib.Basis()))
        for name, module in network.with_weights()
    ]
    steps = steps_lib.Steps(
        network, network._replace(layers=copy.deepcopy(network.layers)), made, states,
        int(scheme.bits), scheme.rounding, recipe.bias_correction, tap,
    )
    if recipe.ranges == recipes.ACTION:
        action.choose(steps)
    elif recipe.ranges == recipes.DISTILL:
        assert play is not None
        distill.choose(steps, play)
    else:
        for layer in made:
            steps.quantize(layer, steps.ends(layer, recipe.ranges), recipe.rounding)
    mapped = not bases and not scheme.group_size
    return Quantized(
        num_bytes(network, made),
        {layer.name: layer.weight_range for layer in made} if mapped else None,
    )


def num_bytes(network: acting_path.PolicyNetwork, made: list[layers_lib.Layer]) -> int:
    """Returns the bytes of packed integers, scales, zero points, and parameters in fp32."""
    by_name = {layer.name: layer for layer in made}
    total = 0
    for name, module in network.layers:
        parameters = sum(parameter.numel() for parameter in module.parameters())
        if name in by_name:
            layer = by_name[name]
            assert layer.grid is not None
            bits, size = layer.grid.bits, layer.weight.size
            total += -(-bits * size // 8) + (4 + -(-bits // 8)) * layer.layout.num_units
            total += layer.basis.num_bytes
            parameters -= size
        total += 4 * parameters
    return total


def _layer(
    name: str, module: acting_path.WithWeights, scheme: schemes.Scheme, basis: layers_lib.Basis
) -> layers_lib.Layer:
    weight = basis.weights(layers_lib.matrix_of(module))
    if not np.all(np.isfinite(weight)):
        raise errors.UserError("The policy's weights hold NaN or infinity: it cannot be quantized.")
    return layers_lib.Layer(name, module, _layout(module, weight, scheme), basis, weight)


def _layout(
    module: acting_path.WithWeights, weight: np.ndarray, scheme: schemes.Scheme
) -> grids.Layout:
    rows, columns = weight.shape
    by_row = schemes.quantizes_by_channel(module, scheme)
    return grids.Layout(rows, columns, by_row, scheme.group_size)


def _scales(
    kind: str,
    network: acting_path.PolicyNetwork,
    name: str,
    module: acting_path.WithWeights,
    scheme: schemes.Scheme,
    states: np.ndarray,
) -> np.ndarray:
    """Returns the scales of a layer's input channels, float32 [channels]."""
    x = layers_lib.raw_inputs(network, states, [name])[name]
    weight = layers_lib.matrix_of(module)
    if kind == recipes.SMOOTH:
        by_channel = weight.reshape(len(weight), module.weight.shape[1], -1)
        return folding.normalized(smooth.scales(folding.input_maxima(x), by_channel))
    return awq.scales(
        folding.input_maxima(x, mean=True), weight, layers_lib.patches(module, x),
        _layout(module, weight, scheme), int(scheme.bits),
        weight.shape[1] // module.weight.shape[1],
    )
