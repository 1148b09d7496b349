"""AdaRound: rounds each weight down or up, for the least error of its layer's outputs.

Nagel et al., Up or Down? Adaptive Rounding for Post-Training Quantization (arXiv:2004.10568),
eq. 25: outputs in full precision are the aim, inputs are those of the quantized network. We take
fewer steps than the paper, since our layers are smaller.
"""

import numpy as np
import torch

from baseline.quantization.methods import grids
from baseline.quantization.methods import soft_rounding

STEPS = 500
_BATCH = 256  # Inputs of a step.
_PRESSURE = 10.0  # Weight of whole choices, relative to the error of nearest rounding.


def round_layer(
    weight: np.ndarray, grid: grids.Grid, inputs: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    """Returns the integers, float32 [rows, columns].

    Rounding to the nearest stays where it has the smaller error over all inputs.

    Args:
      weight: Weights, float32 [rows, columns].
      grid: The levels.
      inputs: Inputs in the quantized network, float32 [N, columns].
      wanted: Outputs in full precision without the bias, float32 [N, rows].
    """
    x, y = torch.from_numpy(inputs), torch.from_numpy(wanted)
    nearest = grid.values(weight)
    unit = max(_error(grid.reals(nearest), inputs, wanted), 1e-30)
    rounding = soft_rounding.Rounding(weight, grid)
    generator = torch.Generator().manual_seed(0)

    def error(step: int) -> torch.Tensor:
        del step
        batch = torch.randint(len(x), (min(_BATCH, len(x)),), generator=generator)
        found = x[batch] @ rounding.soft().T
        return (found - y[batch]).square().sum(dim=1).mean() / unit

    soft_rounding.minimize([rounding], error, STEPS, _PRESSURE)
    chosen = rounding.integers()
    better = _error(grid.reals(chosen), inputs, wanted) <= unit
    return chosen if better else nearest


def _error(matrix: np.ndarray, inputs: np.ndarray, wanted: np.ndarray) -> float:
    """Returns the mean over inputs of the squared error of the outputs."""
    found = inputs @ matrix.T
    return float(np.square(found - wanted, dtype=np.float64).sum(axis=1).mean())
