"""GPTQ: rounds column by column, and lets later columns take up the error of earlier ones.

Frantar et al., GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers
(arXiv:2210.17323), algorithm 1, without blocks. The grid is fixed beforehand, as with the static
groups of its code. Columns come in their order.
"""

import numpy as np

from baseline.quantization.methods import grids

DAMPING = 0.01  # Share of the mean diagonal that is added to it, as in the paper.


def hessian(inputs: np.ndarray) -> np.ndarray:
    """Returns 2 X^T X / N, float64 [columns, columns], for inputs X [N, columns]."""
    wide = inputs.astype(np.float64)
    return 2.0 * wide.T @ wide / len(wide)


def round_columns(weight: np.ndarray, grid: grids.Grid, upper: np.ndarray) -> np.ndarray:
    """Returns the integers, float32 [rows, columns].

    Args:
      weight: Weights, float32 [rows, columns].
      grid: The levels.
      upper: The factor that `upper_factor` gives for the inputs' Hessian.
    """
    left = weight.astype(np.float64)
    integers = np.empty(weight.shape, np.float32)
    for index in range(weight.shape[1]):
        part = grid.column(index)
        column = left[:, index : index + 1]
        integers[:, index : index + 1] = part.values(column)
        error = column - part.reals(integers[:, index : index + 1])
        left[:, index + 1 :] -= error / upper[index, index] * upper[index, index + 1 :]
    return integers


def upper_factor(hessian: np.ndarray) -> np.ndarray:
    """Returns U with U^T U = H^-1, upper triangular, after damping, float64 [columns, columns].

    An input that is always zero gets a derivative of its own, so that its weight is rounded alone.
    """
    damped = hessian.copy()
    diagonal = np.diag(damped).copy()
    mean = float(diagonal.mean()) or 1.0
    diagonal[diagonal == 0] = mean
    np.fill_diagonal(damped, diagonal + DAMPING * mean)
    return np.linalg.cholesky(np.linalg.inv(damped)).T
