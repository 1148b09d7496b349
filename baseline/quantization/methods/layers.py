"""One layer as a matrix, the inputs that it meets, and how other layers are joined to it.

A convolution is the matrix [out channels, in channels * kernel], whose inputs are patches.
"""

import dataclasses

import numpy as np
import torch
from torch import nn

from baseline.quantization import acting_path
from baseline.quantization.methods import grids

Ends = tuple[np.ndarray, np.ndarray]  # Lower and upper ends of all units, see `ranges.find`.
MAX_INPUTS = 8192  # Patches of a convolution that methods look at, evenly thinned.


@dataclasses.dataclass(frozen=True)
class Basis:
    """Says in which basis a layer's weights are quantized; the device transforms its inputs.

    With x the inputs [N, columns] and W the weights [rows, columns], x' W'^T = x W^T. Either
    attribute may be None.

    Attributes:
      scales: float32 [columns]: W' = W * scales, x' = x / scales.
      rotation: float32 [columns, columns], orthogonal: W' = W R, x' = x R.
    """

    scales: np.ndarray | None = None
    rotation: np.ndarray | None = None

    def weights(self, matrix: np.ndarray) -> np.ndarray:
        """Returns W' for W."""
        if self.scales is not None:
            return matrix * self.scales
        return matrix if self.rotation is None else matrix @ self.rotation

    def inputs(self, inputs: np.ndarray) -> np.ndarray:
        """Returns x' for x."""
        if self.scales is not None:
            return inputs / self.scales
        return inputs if self.rotation is None else inputs @ self.rotation

    def original(self, matrix: np.ndarray) -> np.ndarray:
        """Returns W for W'."""
        if self.scales is not None:
            return matrix / self.scales
        return matrix if self.rotation is None else matrix @ self.rotation.T

    @property
    def num_bytes(self) -> int:
        """Bytes that it takes on a device. Signs and sums make the rotation: it takes none."""
        return 0 if self.scales is None else 4 * self.scales.size


@dataclasses.dataclass
class Layer:
    """A layer with weights while they are quantized.

    Attributes:
      name: Name in the acting path.
      module: The layer; its weights change.
      layout: Which weights share a scale.
      basis: The basis in which they are quantized.
      weight: Weights in that basis, float32 [rows, columns], in full precision.
      ends: Smallest and largest number of every unit, see `ranges.find`; set once chosen.
      grid: The levels; set with the ends.
      values: Integers, float32 [rows, columns]; set once they are chosen.
    """

    name: str
    module: acting_path.WithWeights
    layout: grids.Layout
    basis: Basis
    weight: np.ndarray
    ends: Ends | None = None
    grid: grids.Grid | None = None
    values: np.ndarray | None = None

    @property
    def weight_range(self) -> tuple[float | list[float], ...]:
        """The ends: two numbers for the whole tensor, or two lists with one for each unit."""
        assert self.ends is not None
        return tuple(end.tolist() if self.layout.by_row else end.item() for end in self.ends)

    def write(self, values: np.ndarray) -> None:
        """Takes integers, and writes the numbers for which they stand into the module."""
        assert self.grid is not None
        self.values = values
        reals = self.basis.original(self.grid.reals(values))
        write_matrix(self.module, reals)


def matrix_of(module: acting_path.WithWeights) -> np.ndarray:
    """Returns a copy of a layer's weights, float32 [rows, columns]."""
    weight = module.weight.detach().cpu().numpy()
    return weight.reshape(len(weight), -1).astype(np.float32, copy=True)


def write_matrix(module: acting_path.WithWeights, matrix: np.ndarray) -> None:
    """Writes weights [rows, columns] into a layer."""
    with torch.no_grad():
        whole = np.ascontiguousarray(matrix, np.float32).reshape(tuple(module.weight.shape))
        module.weight.copy_(torch.from_numpy(whole))


def inputs(
    network: acting_path.PolicyNetwork,
    states: np.ndarray,
    name: str,
    tap: acting_path.Tap | None = None,
) -> np.ndarray:
    """Returns what a layer multiplies with its weights in the states, float32 [N, columns].

    Args:
      network: The acting path as it is now.
      states: Normalized observations [B, ...].
      name: Name of the layer.
      tap: Quantizes activations; None: they stay as they are.
    """
    module = dict(network.with_weights())[name]
    return patches(module, raw_inputs(network, states, [name], tap)[name])


def raw_inputs(
    network: acting_path.PolicyNetwork,
    states: np.ndarray,
    names: list[str],
    tap: acting_path.Tap | None = None,
) -> dict[str, torch.Tensor]:
    """Returns the input tensors of several layers, by their names; see `inputs`."""
    found: dict[str, torch.Tensor] = {}

    def watch(layer: str, x: torch.Tensor) -> torch.Tensor:
        x = x if tap is None else tap(layer, x)
        if layer in names:
            found[layer] = x
        return x

    acting_path.forward(network, states, watch)
    return found


def patches(module: acting_path.WithWeights, x: torch.Tensor) -> np.ndarray:
    """Returns a layer's input as rows [N, columns]; convolutions meet one row at each place."""
    if isinstance(module, nn.Linear):
        return x.numpy()
    padding = module.padding
    if isinstance(padding, str):  # "same" keeps the size; odd remainders go to the right.
        total = [
            dilation * (kernel - 1) if padding == "same" else 0
            for dilation, kernel in zip(module.dilation, module.kernel_size, strict=True)
        ]
        x = nn.functional.pad(
            x, (total[1] // 2, -(-total[1] // 2), total[0] // 2, -(-total[0] // 2))
        )
        padding = (0, 0)
    places = _places(module, x, padding)
    step = max(1, -(-len(x) * places // MAX_INPUTS))
    # Whole images are thinned first, so that few are unfolded; then places, evenly.
    kept = x[:: max(1, len(x) // MAX_INPUTS)]
    rows = []
    offset = 0
    for image in kept:
        unfolded = nn.functional.unfold(
            image[None], module.kernel_size, module.dilation, padding, module.stride
        )[0].T
        rows.append(unfolded[offset % step :: step].clone())
        offset += places
    return torch.cat(rows).numpy()


def _places(
    module: nn.Conv2d, x: torch.Tensor, padding: tuple[int, ...]
) -> int:
    first = nn.functional.unfold(
        x[:1], module.kernel_size, module.dilation, padding, module.stride
    )
    return int(first.shape[2])
