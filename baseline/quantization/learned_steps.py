"""Fake quantizers whose steps are learned with the weights: LSQ (Esser et al., arXiv:1902.08153).

A number v becomes s * round(clamp(v / s, -Qn, Qp)), with a step s that gradients change:

    dq/ds = -v/s + round(v/s) inside of -Qn < v/s < Qp, else -Qn or Qp     (equation 3)
    dq/dv = 1 inside, else 0                                              (equation 5)

The step's gradient is multiplied by g = 1 / sqrt(N * Qp), N being the numbers that share the step.
Signed numbers have Qn = 2^(b-1) and Qp = 2^(b-1) - 1, others 0 and 2^b - 1. These are the integers
of `actorQ.policy.quantization.affine_map` for the range from -Qn * s to (Qp + 1) * s.

The optimizer holds log(s). Its gradient is that of the paper divided by s, so that plain gradient
descent changes s as in the paper, to first order. Adam and RMSprop divide gradients by their size,
which undoes g: they would change a small step of 8 bits as much as a large one of 2 bits, and push
it below zero. Here they change all steps by the same share, and every step stays positive.
"""

import math
from typing import Any

import torch

from actorQ.core import errors
from baseline.quantization import fake_quantizers
from baseline.quantization import range_starts

Levels = fake_quantizers.Levels


def bounds(bits: int, signed: bool) -> tuple[int, int]:
    """Returns Qn and Qp, the largest whole numbers below and above zero."""
    if signed:
        return 2 ** (bits - 1), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1


def first_step(
    x: torch.Tensor, bits: int, signed: bool, percentile: float | None = None
) -> torch.Tensor:
    """Returns the step that training starts with: 2 * mean|x| / sqrt(Qp), as in the paper.

    Args:
      x: Numbers, float32 [N], or [rows, N] for one step for each row.
      bits: Width, 2 to 16.
      signed: Whether numbers may be negative.
      percentile: Central share of the numbers, in percent, whose range the levels cover instead.

    Returns:
      Steps, float32 [] or [rows]; 1 where all numbers are zero.
    """
    if percentile is None:
        step = 2.0 * x.abs().mean(dim=-1) / math.sqrt(bounds(bits, signed)[1])
    else:
        low, high = range_starts.central(x, percentile)
        step = torch.maximum(-low, high) / 2.0 ** (bits - signed)
    return torch.where(step == 0.0, torch.ones_like(step), step)


def change_by_step(x: torch.Tensor, levels: Levels) -> torch.Tensor:
    """Returns dq/ds of every number of `x`, float32 of the same shape."""
    steps = x / levels.delta
    inside = (steps > levels.smallest) & (steps < levels.largest)
    return torch.where(
        inside, torch.round(steps) - steps, steps.clamp(levels.smallest, levels.largest)
    )


class _Learned(torch.autograd.Function):
    """Rounds to levels whose step is learned."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, learned: torch.Tensor, levels: Levels, sharing: int
    ) -> torch.Tensor:
        ctx.save_for_backward(x, learned)
        ctx.levels, ctx.sharing = levels, sharing
        return levels(x)

    @staticmethod
    def backward(
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        x, learned = ctx.saved_tensors
        levels: Levels = ctx.levels
        steps = x / levels.delta
        of_x = gradient * ((steps > levels.smallest) & (steps < levels.largest))
        of_step = gradient * change_by_step(x, levels)
        of_step = of_step.flatten(learned.ndim).sum(dim=-1)
        scale = math.sqrt(ctx.sharing * levels.largest) * levels.delta.reshape(learned.shape)
        return of_x, of_step / scale, None, None


class _LearnedSteps(fake_quantizers.Quantizer):
    """The common part of both quantizers.

    Attributes:
      learned: Buffer, float32 [] or [rows], for an optimizer: log(s), 0 before the start. It is no
        parameter, since networks and their targets share it.
    """

    learned: torch.Tensor
    _levels_of: int  # Version of `learned` that the levels were made from.

    @property
    def version(self) -> tuple[int, ...]:
        """The version of the levels, which changes whenever they do."""
        return self.generation, self.learned._version

    def _add_learned(self) -> None:
        self.register_buffer("learned", torch.zeros_like(self.low).requires_grad_())

    def _set_step(self, step: torch.Tensor) -> None:
        if not torch.isfinite(step).all():
            raise errors.UserError(
                f"{self.name}: Cannot quantize a tensor that holds NaN or infinity."
            )
        with torch.no_grad():
            self.learned.copy_(step.log())

    def _signed(self) -> bool:
        raise NotImplementedError

    def _make_levels(self, low: torch.Tensor, high: torch.Tensor) -> Levels:
        """Returns the levels of the step as it is now; the ranges seen make no difference."""
        negative, positive = bounds(self.bits, self._signed())
        self._levels_of = self.learned._version
        step = self._step()
        step = step.reshape(step.shape + (1,) * self._axes())
        return Levels(step, -negative, positive, -math.inf, math.inf)

    def _step(self) -> torch.Tensor:
        """Returns s, float32 in the shape of `learned`."""
        return self.learned.detach().exp()

    def _round(self, x: torch.Tensor, sharing: int) -> torch.Tensor:
        """Returns `x` rounded to its levels; `sharing` is the number N of the paper."""
        if self._levels is None:
            return x
        if self._levels_of != self.learned._version:
            self._levels = self._make_levels(self.low, self.high)
        if torch.is_grad_enabled():
            return _Learned.apply(x, self.learned, self._levels, sharing)
        return self._levels(x)

    def _range(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the ends that `affine_map` takes; they are exact, being powers of two times s."""
        negative, positive = bounds(self.bits, self._signed())
        step = self._step()
        return -negative * step, (positive + 1) * step


class LearnedFakeQuantizer(_LearnedSteps, fake_quantizers.FakeQuantizer):
    """Quantizes activations. They are signed where a negative number was seen before the start."""

    def __init__(
        self, name: str, bits: int, device: Any = None, percentile: float | None = None
    ):
        """Starts without a step.

        Args:
          name: Name for messages.
          bits: Width, 2 to 16.
          device: Device of the activations.
          percentile: See `first_step`.

        Raises:
          errors.UserError: There is no such width.
        """
        fake_quantizers.FakeQuantizer.__init__(self, name, bits, False, device, percentile)
        self.recent = range_starts.RecentNumbers(device)
        self._add_learned()

    def quantize(self, x: torch.Tensor) -> torch.Tensor:
        """Returns activations [B, ...] rounded to their levels, or unchanged before the start."""
        return self._round(x, x[0].numel())

    def ends(self) -> tuple[float, float]:
        """Returns the smallest and the largest number of the range."""
        if not self.started:
            return super().ends()
        low, high = self._range()
        return float(low), float(high)

    def _signed(self) -> bool:
        return self._ends[0] < 0.0

    def _begin(self) -> None:
        assert self.recent is not None
        self._set_step(first_step(self.recent.kept(), self.bits, self._signed(), self.percentile))


class LearnedWeightFakeQuantizer(_LearnedSteps, fake_quantizers.WeightFakeQuantizer):
    """Quantizes weights, with one step for the tensor or for each row. They are signed."""

    def __init__(
        self,
        name: str,
        bits: int,
        rows: int | None = None,
        axes: int = 0,
        device: Any = None,
        percentile: float | None = None,
    ):
        """Starts without steps.

        Args:
          name: Name for messages.
          bits: Width, 2 to 16.
          rows: Number of rows with steps of their own; None for one step of the tensor.
          axes: Axes of the weights, behind the rows.
          device: Device of the weights.
          percentile: See `first_step`.

        Raises:
          errors.UserError: There is no such width.
        """
        fake_quantizers.WeightFakeQuantizer.__init__(
            self, name, bits, False, rows, axes, device, percentile
        )
        self._add_learned()

    def start_from(self, weights: torch.Tensor) -> None:
        """Starts to quantize weights; see the base class."""
        self.watch(weights)
        self._set_step(first_step(self._by_range(weights), self.bits, True, self.percentile))
        self.start()

    def quantize(self, x: torch.Tensor, version: int | None = None) -> torch.Tensor:
        """Returns weights rounded to their levels, or unchanged before the start."""
        del version
        return self._round(x, x[0].numel() if self.low.ndim else x.numel())

    def ends(self, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns smallest and largest numbers of the ranges."""
        return self._range() if self.started else super().ends(weights)

    def _signed(self) -> bool:
        return True


LEARNED = LearnedFakeQuantizer, LearnedWeightFakeQuantizer
