"""AWQ: scales up the weights that meet large inputs, before the weights are rounded.

Lin et al., AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration
(arXiv:2306.00978), eq. 4 and 5: s = mean|x|^a, with the a of 0 to 1 for which the layer's output
has the least squared error.
"""

import numpy as np

from baseline.quantization.methods import folding
from baseline.quantization.methods import grids
from baseline.quantization.methods import ranges

EXPONENTS = np.arange(20) / 20.0  # As in the paper's code.


def scales(
    mean_inputs: np.ndarray,
    weight: np.ndarray,
    inputs: np.ndarray,
    layout: grids.Layout,
    bits: int,
    repeats: int,
) -> np.ndarray:
    """Returns s for every input channel, float32 [channels].

    Args:
      mean_inputs: Mean absolute input of each channel, [channels].
      weight: Weights, float32 [rows, columns].
      inputs: Inputs, float32 [N, columns].
      layout: Which weights share a scale.
      bits: Width of the integers.
      repeats: Columns of each channel.
    """
    wanted = inputs @ weight.T
    best, least = np.ones(len(mean_inputs), np.float32), np.inf
    for exponent in EXPONENTS:
        tried = folding.normalized(np.maximum(mean_inputs, 1e-4).astype(np.float64) ** exponent)
        columns = np.repeat(tried, repeats)
        scaled = weight * columns
        low, high = ranges.find("minmax", layout.units(scaled), bits)
        grid = grids.make(layout, low, high, bits)
        reals = grid.reals(grid.values(scaled)) / columns
        error = float(np.square(inputs @ reals.T - wanted, dtype=np.float64).mean())
        if error < least:
            best, least = tried, error
    return best
