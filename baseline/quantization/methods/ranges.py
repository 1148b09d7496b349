"""Ranges of numbers that share a scale: extremes, percentiles, or the least squared error.

* minmax: the paper's, arXiv:1910.01055, sec. 3.
* percentile: Wu et al., Integer Quantization for Deep Learning Inference (arXiv:2004.09602),
  sec. 5.2. Numbers beyond the ends are clipped.
* mse: Choukroun et al., Low-bit Quantization of Neural Networks for Efficient Inference
  (arXiv:1902.06822), sec. 3.1, here with both ends of the range apart.
"""

import numpy as np

from actorQ.policy import quantization
from baseline.quantization import recipes
from baseline.quantization.methods import grids

PERCENT = 99.9  # Share of the numbers that lie below the upper end, and above the lower one.
# Ends that `mse` tries, as multiples of the extremes. 2^n levels reach one step less than the upper
# extreme: with 2 bits, 4/3 of the extreme is the end whose last level is the extreme.
FACTORS = np.arange(4, 28) / 20.0
_BLOCK = 4_000_000  # Numbers that `mse` rounds at once.


def find(
    kind: str, units: np.ndarray, bits: int, rounding: quantization.Rounding = "nearest"
) -> tuple[np.ndarray, np.ndarray]:
    """Returns lower and upper ends, each float64 [units].

    Args:
      kind: "minmax", "mse" or "percentile".
      units: Numbers that share a scale, [units, n].
      bits: Width of the integers, 2 to 16.
      rounding: Rounding to them.
    """
    low = np.minimum(units.min(axis=1), 0.0).astype(np.float64)
    high = np.maximum(units.max(axis=1), 0.0).astype(np.float64)
    if kind == recipes.PERCENTILE:
        ends = np.percentile(units, [100.0 - PERCENT, PERCENT], axis=1)
        # Few numbers, such as a row of mostly zeros, may have both percentiles on one side of zero.
        return np.minimum(ends[0], 0.0), np.maximum(ends[1], 0.0)
    if kind == recipes.MSE:
        return _least_squares(units, low, high, bits, rounding)
    return low, high


def _least_squares(
    units: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    bits: int,
    rounding: quantization.Rounding,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pair of ends with the least squared error; of equals the widest factors' first.

    A range with one end at zero needs no factor for it.
    """
    best_low, best_high = low.copy(), high.copy()
    least = squared_error(units, low, high, bits, rounding)
    lows = FACTORS[::-1] if np.any(low < 0) else [1.0]
    highs = FACTORS[::-1] if np.any(high > 0) else [1.0]
    for low_factor in lows:
        for high_factor in highs:
            ends = low_factor * low, high_factor * high
            error = squared_error(units, *ends, bits, rounding)
            better = error < least
            least = np.where(better, error, least)
            best_low = np.where(better, ends[0], best_low)
            best_high = np.where(better, ends[1], best_high)
    return best_low, best_high


def squared_error(
    units: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    bits: int,
    rounding: quantization.Rounding = "nearest",
) -> np.ndarray:
    """Returns the sum of squared errors of each unit, float64 [units]; see `find`."""
    delta, zero = quantization.affine_map(low, high, bits, rounding)
    zero = zero.astype(np.float32)
    errors = np.zeros(len(units))
    step = max(1, _BLOCK // len(units))
    for start in range(0, units.shape[1], step):
        part = units[:, start : start + step]
        steps = grids.values(part, delta[:, None], zero[:, None], bits, rounding) - zero[:, None]
        errors += np.square(steps * delta[:, None] - part, dtype=np.float64).sum(axis=1)
    return errors
