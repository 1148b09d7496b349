"""Finds where ranges of fake quantizers start, if not at the extremes of all numbers seen."""

import numpy as np
import torch
from torch import nn

KEPT = 2**14  # Numbers that are kept of a tensor.
_PER_BATCH = KEPT // 4  # Most numbers that one batch adds, so that several batches count.
# Multiples of a prime, modulo the size of a batch, are spread over all rows and columns.
_PRIME = 2_654_435_761


class RecentNumbers(nn.Module):
    """Keeps the newest numbers of a tensor, for the moment when quantization starts.

    Attributes:
      numbers: Buffer, float32 [KEPT].
      count: Buffer, int64 []: how many numbers were ever kept.
    """

    numbers: torch.Tensor
    count: torch.Tensor

    def __init__(self, device: torch.device | str | None = None):
        """Starts without a number."""
        super().__init__()
        self.register_buffer("numbers", torch.zeros(KEPT, device=device))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64, device=device))

    def add(self, x: torch.Tensor) -> None:
        """Keeps the numbers of `x`, float32 of any shape, or of a large one an even selection."""
        flat = x.detach().flatten()
        size = min(flat.numel(), _PER_BATCH)
        order = torch.arange(size, device=flat.device)
        if size < flat.numel():
            flat = flat[order * _PRIME % flat.numel()]
        self.numbers[(order + self.count) % KEPT] = flat
        self.count += size

    def kept(self) -> torch.Tensor:
        """Returns the newest numbers, float32 [N], at most KEPT."""
        return self.numbers[: min(int(self.count), KEPT)]


def central(x: torch.Tensor, percentile: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the ends of the central share of numbers, widened to contain zero.

    Args:
      x: Numbers, float32 [N], or [rows, N] for one range for each row.
      percentile: The share in percent, above 50, at most 100.

    Returns:
      Smallest and largest, float32 [] or [rows].
    """
    beyond = (100.0 - percentile) / 2.0
    ends = np.percentile(x.detach().cpu().numpy(), [beyond, 100.0 - beyond], axis=-1)
    low, high = torch.from_numpy(ends.astype(np.float32)).to(x.device)
    return low.clamp(max=0.0), high.clamp(min=0.0)
