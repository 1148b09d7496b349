"""SmoothQuant: moves the sizes of inputs into weights, half-way.

Xiao et al., SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language
Models (arXiv:2211.10438), eq. 4: s_j = max|x_j|^a / max|w_j|^(1 - a), x' = x / s, w' = w s.
"""

import numpy as np

MIGRATION = 0.5  # The paper's a.


def scales(largest_inputs: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Returns s for every input channel, float64 [channels].

    Args:
      largest_inputs: Largest absolute input of each channel, [channels].
      weight: Weights by channel, [rows, channels, n].
    """
    largest_weights = np.abs(weight).max(axis=(0, 2))
    inputs = largest_inputs.astype(np.float64)
    # A channel that is always zero, or whose weights are, has no size to move.
    alive = (inputs > 0) & (largest_weights > 0)
    found = np.where(alive, inputs, 1.0) ** MIGRATION
    return found / np.where(alive, largest_weights, 1.0) ** (1.0 - MIGRATION)
