"""AdaRound: rounds each weight down or up, for the least error of its layer's outputs.

Nagel et al., Up or Down? Adaptive Rounding for Post-Training Quantization (arXiv:2004.10568), eq.
22 to 25. Each weight has a number between 0 and 1, which rounds it down or up in the end. Outputs
in full precision are the aim, and inputs are those of the quantized network. We take fewer steps
than the paper, since our layers are smaller.
"""

from collections.abc import Callable

import numpy as np
import torch

from baseline.quantization.methods import grids

STEPS = 500
_BATCH = 256  # Inputs of a step.
_PRESSURE = 10.0  # Weight of whole choices, relative to the error of nearest rounding.
_RATE = 1e-2  # Adam's step size.
_STRETCH, _SHIFT = 1.2, -0.1  # The rectified sigmoid, clip(1.2 sigmoid(v) - 0.1, 0, 1).
_WARM_UP = 0.2  # Share of the steps without pressure towards 0 and 1.
_BETAS = 20.0, 2.0  # Exponents of the pressure: at its start and at its end.


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
    rounding = _Rounding(weight, grid)
    generator = torch.Generator().manual_seed(0)

    def error() -> torch.Tensor:
        batch = torch.randint(len(x), (min(_BATCH, len(x)),), generator=generator)
        found = x[batch] @ rounding.soft().T
        return (found - y[batch]).square().sum(dim=1).mean() / unit

    _minimize(rounding, error)
    chosen = rounding.integers()
    better = _error(grid.reals(chosen), inputs, wanted) <= unit
    return chosen if better else nearest


def _error(matrix: np.ndarray, inputs: np.ndarray, wanted: np.ndarray) -> float:
    """Returns the mean over inputs of the squared error of the outputs."""
    found = inputs @ matrix.T
    return float(np.square(found - wanted, dtype=np.float64).sum(axis=1).mean())


class _Rounding:
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


def _minimize(rounding: _Rounding, error: Callable[[], torch.Tensor]) -> None:
    """Minimizes an error plus a growing pressure towards whole choices."""
    optimizer = torch.optim.Adam([rounding.choices], lr=_RATE)
    start = int(_WARM_UP * STEPS)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = error()
        if step >= start:
            progress = (step - start) / (STEPS - start)
            beta = _BETAS[1] + 0.5 * (_BETAS[0] - _BETAS[1]) * (1.0 + np.cos(progress * np.pi))
            loss = loss + _PRESSURE / rounding.choices.numel() * rounding.pressure(beta)
        loss.backward()
        optimizer.step()
