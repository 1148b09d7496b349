"""Hadamard rotation: spreads large weights over all inputs of a layer.

Ashkboos et al., QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs (arXiv:2404.00456), sec. 3.
A rotation passes no activation function. So it is folded into the layer before where there is no
function between the two, and otherwise the first layer's input is rotated when the policy acts.
"""

import numpy as np


def matrix(size: int) -> np.ndarray:
    """Returns an orthogonal, symmetric matrix, float32 [size, size].

    Blocks of Sylvester's matrices, the largest first, have sizes that are powers of two.
    """
    found = np.zeros((size, size), np.float32)
    start = 0
    while start < size:
        block = _sylvester(1 << (size - start).bit_length() - 1)
        found[start : start + len(block), start : start + len(block)] = block
        start += len(block)
    return found


def _sylvester(size: int) -> np.ndarray:
    block = np.ones((1, 1))
    while len(block) < size:
        block = np.block([[block, block], [block, -block]])
    return block / np.sqrt(size)
