"""Bias correction: a layer's bias takes up the mean error of its output.

Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction
(arXiv:1906.04721), sec. 4.2, in its empirical form (appendix D): layer by layer, with means over
calibration states.
"""

import torch


def mean_error(wanted: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Returns what a layer's bias lacks, float32 [channels]; with it the mean error is zero.

    Args:
      wanted: The layer's outputs in full precision, float32 [B, channels, ...].
      found: Its outputs now, in the same states.
    """
    error = (wanted.double() - found.double()).transpose(0, 1).flatten(1).mean(dim=1)
    return error.float()
