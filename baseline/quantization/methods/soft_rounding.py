"""The relaxation of AdaRound: a number between 0 and 1 for each weight that rounds down or up.

Nagel et al., Up or Down? Adaptive Rounding for Post-Training Quantization (arXiv:2004.10568),
eq. 22 to 24. `adaround` and `action` minimize different errors over it.
"""

from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
import torch

from baseline.quantization.methods import grids

_STRETCH, _SHIFT = 1.2, -0.1  # The rectified sigmoid, clip(1.2 sigmoid(v) - 0.1, 0, 1).
_WARM_UP = 0.2  # Share of the steps without pressure towards 0 and 1.
_BETAS = 20.0, 2.0  # Exponents of the pressure: at its start and at its end.


class Rounding:
    """The choices of one layer."""

    def __init__(self, weight: np.ndarray, grid: grids.Grid):
        """Starts where choices give the weights themselves, as far as levels reach.

        Args:
          weight: Weights, float32 [rows, columns].
          grid: The levels.
        """
        self._delta = torch.from_numpy(np.array(grid.delta))
        self._zero = torch.from_numpy(np.array(grid.zero_point))
        self._highest = grid.highest
        steps = torch.from_numpy(weight) / self._delta
        self._floor = steps.floor()
        share = (steps - self._floor).clamp(0.01, 0.99)
        self.choices = torch.logit((share - _SHIFT) / _STRETCH).requires_grad_()

    def shares(self) -> torch.Tensor:
        """Returns h, 0 (down) to 1 (up), float32 [rows, columns]."""
        return (_STRETCH * torch.sigmoid(self.choices) + _SHIFT).clamp(0.0, 1.0)

    def soft(self) -> torch.Tensor:
        """Returns the weights for the choices as they are, float32 [rows, columns]."""
        return self._reals(self.shares())

    def pressure(self, beta: float) -> torch.Tensor:
        """Returns the sum of 1 - |2h - 1|^beta, which is 0 where all choices are made."""
        return (1.0 - (2.0 * self.shares() - 1.0).abs().pow(beta)).sum()

    def integers(self) -> np.ndarray:
        """Returns the integers of the nearer choices, float32 [rows, columns]."""
        with torch.no_grad():
            up = (self.shares() >= 0.5).float()
            return (self._floor + up + self._zero).clamp(0, self._highest).numpy()

    def _reals(self, shares: torch.Tensor) -> torch.Tensor:
        integers = (self._floor + shares + self._zero).clamp(0, self._highest)
        return (integers - self._zero) * self._delta


def minimize(
    roundings: Sequence[Rounding],
    error: Callable[[int], torch.Tensor],
    steps: int,
    weight: float,
    rate: float = 1e-2,
) -> None:
    """Minimizes an error plus a growing pressure towards whole choices, with Adam.

    Args:
      roundings: Choices of all layers, which change.
      error: Returns the error of a step, a scalar.
      steps: Number of steps.
      weight: Weight of the pressure for each weight of the layers.
      rate: Adam's step size.
    """
    optimizer = torch.optim.Adam([one.choices for one in roundings], lr=rate)
    start = int(_WARM_UP * steps)
    for step in range(steps):
        optimizer.zero_grad()
        loss = error(step)
        if step >= start:
            progress = (step - start) / max(steps - start, 1)
            beta = _BETAS[1] + 0.5 * (_BETAS[0] - _BETAS[1]) * (1.0 + np.cos(progress * np.pi))
            total = sum(one.choices.numel() for one in roundings)
            loss = loss + weight / total * sum(one.pressure(beta) for one in roundings)
        loss.backward()
        optimizer.step()
