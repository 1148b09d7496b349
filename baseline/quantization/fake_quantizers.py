"""Fake quantizers for training: they watch ranges, then quantize and let gradients through.

The formulas are those of `actorQ.policy.quantization`: for the same range, a fake quantizer gives
the numbers of `quantize_affine` and `dequantize`.
`FakeQuantizer` (activations) and `WeightFakeQuantizer` (weights) describe the estimators of their
gradients.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.quantization import range_starts

NAME = "fake_quantization"  # The module's name in a policy, and the prefix of its keys.
CONTROL_BITS = 32  # A quantizer of this width watches ranges, but never quantizes.
# The function takes gradients, numbers and edges. It gives zero for numbers beyond the edges.
_CLIPPED_GRADIENT = torch.ops.aten.hardtanh_backward.default
MAX_BITS = 16  # float32 cannot tell wider integers apart.


def check_bits(bits: int) -> None:
    """Raises errors.UserError for a width that cannot be trained with."""
    if bits != CONTROL_BITS and not quantization.MIN_BITS <= bits <= MAX_BITS:
        raise errors.UserError(
            f"Cannot train with {bits} bits: possible are {quantization.MIN_BITS} to {MAX_BITS}, "
            f"and {CONTROL_BITS} (the control, which never quantizes)."
        )


class Levels(NamedTuple):
    """The numbers that a quantized tensor can have: delta times whole numbers.

    Attributes:
      delta: float32 [], or [rows, 1, ...] for axis 0.
      smallest: Smallest whole number; a tensor has the shape of delta.
      largest: Largest whole number, likewise.
      low_edge: Lower end of gradients: half a step below the smallest number of the range.
      high_edge: Upper end of gradients: half a step above the largest number of the range.
    """

    delta: torch.Tensor
    smallest: Any
    largest: Any
    low_edge: float
    high_edge: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Returns `x`, float32, rounded to the levels."""
        steps = torch.div(x, self.delta).round_()
        return steps.clamp_(self.smallest, self.largest).mul_(self.delta)


def make_levels(
    low: np.ndarray | float, high: np.ndarray | float, bits: int, device: Any = None, axes: int = 0
) -> Levels:
    """Returns the levels of one range, or of one range for each row.

    Args:
      low: Smallest number, or [rows].
      high: Largest number, or [rows].
      bits: 2 to 16.
      device: Device of the tensors.
      axes: Axes of the tensor to quantize, behind the rows.

    Raises:
      ValueError: A range holds NaN or infinity.
    """
    delta, zero_point = quantization.affine_map(low, high, bits)
    largest = 2**bits - 1 - zero_point
    if not delta.ndim:
        half = 0.5 * float(delta)
        return Levels(
            torch.tensor(float(delta), dtype=torch.float32, device=device),
            -int(zero_point),
            int(largest),
            min(float(low), 0.0) - half,
            max(float(high), 0.0) + half,
        )
    columns = [
        torch.from_numpy(part.astype(np.float32).reshape((-1,) + (1,) * axes)).to(device)
        for part in (delta, -zero_point, largest)
    ]
    steps, smallest, largest_numbers = columns
    return Levels(steps, smallest, largest_numbers, -np.inf, np.inf)


class _Clipped(torch.autograd.Function):
    """Rounds to levels; gradients pass inside the range."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, levels: Levels) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.edges = levels.low_edge, levels.high_edge
        return levels(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return _CLIPPED_GRADIENT(gradient, x, *ctx.edges), None


class _PassedThrough(torch.autograd.Function):
    """Rounds to levels; gradients pass everywhere."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, levels: Levels) -> torch.Tensor:
        del ctx
        return levels(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        del ctx
        return gradient, None


class Quantizer(nn.Module):
    """A range that is watched until quantization starts. It always contains zero.

    Attributes:
      name: Name for messages.
      bits: Width of the quantized numbers; 32 never quantizes.
      moving: Whether the range still moves once quantization has started; otherwise it freezes.
      low: Buffer, float32 [] or [rows]: the smallest number seen, or zero.
      high: Buffer, likewise: the largest number seen, or zero.
      quantizing: Buffer, bool []: whether quantization has started.
      generation: Number of changes of the levels.
    """

    _estimate: Callable[..., torch.Tensor]
    low: torch.Tensor
    high: torch.Tensor
    quantizing: torch.Tensor

    def __init__(self, name: str, bits: int, moving: bool, shape: tuple[int, ...], device: Any):
        super().__init__()
        check_bits(bits)
        self.name = name
        self.bits = bits
        self.moving = moving
        self.generation = 0
        self.register_buffer("low", torch.zeros(shape, device=device))
        self.register_buffer("high", torch.zeros(shape, device=device))
        self.register_buffer("quantizing", torch.zeros((), dtype=torch.bool, device=device))
        self._levels: Levels | None = None
        self._watches = True

    def start(self) -> None:
        """Starts to quantize.

        Raises:
          errors.UserError: The range holds NaN or infinity.
        """
        self._begin()
        self.quantizing.fill_(self.bits != CONTROL_BITS)
        self._refresh()

    @property
    def started(self) -> bool:
        """Says whether numbers are quantized now."""
        return self._levels is not None

    @property
    def version(self) -> tuple[int, ...]:
        """The version of the levels, which changes whenever they do."""
        return (self.generation,)

    def quantize(self, x: torch.Tensor) -> torch.Tensor:
        """Returns `x` rounded to its levels, or unchanged before the start."""
        levels = self._levels
        if levels is None:
            return x
        if x.requires_grad and torch.is_grad_enabled():
            return self._estimate(x, levels)
        return levels(x)

    def extra_repr(self) -> str:
        """Returns the settings that `print` shows."""
        state = "quantizes" if self._levels is not None else "watches"
        return f"{self.bits} bits, {'moving' if self.moving else 'frozen'} range, {state}"

    def _begin(self) -> None:
        """Sets the range that quantization starts with."""

    def _refresh(self) -> None:
        """Updates everything that depends on the buffers."""
        self.generation += 1
        quantizing = bool(self.quantizing)
        self._watches = not quantizing or self.moving
        self._levels = self._make_levels(self.low, self.high) if quantizing else None

    def _make_levels(self, low: torch.Tensor, high: torch.Tensor) -> Levels:
        least, most = (end.cpu().numpy() if end.ndim else end.item() for end in (low, high))
        try:
            return make_levels(least, most, self.bits, self.low.device, self._axes())
        except ValueError as error:
            raise errors.UserError(f"{self.name}: {error}") from None

    def _axes(self) -> int:
        return 0

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._refresh()


class FakeQuantizer(Quantizer):
    """Quantizes activations, with one range for the tensor.

    The estimator is clipped. Gradients pass where a number lies inside the range, which is widened
    by half a step so that its ends count. They are zero outside, where quantized numbers no longer
    change.

    Attributes:
      seen: Whether anything was watched, here or by the process whose checkpoint was loaded.
      percentile: Central share of the newest numbers that the range starts with, in percent; None:
        it starts with all numbers seen.
      recent: These numbers; None where they are not needed.
    """

    _estimate = staticmethod(_Clipped.apply)

    def __init__(
        self,
        name: str,
        bits: int,
        moving: bool = False,
        device: Any = None,
        percentile: float | None = None,
    ):
        """Starts with a range that holds only zero.

        Raises:
          errors.UserError: There is no such width.
        """
        super().__init__(name, bits, moving, (), device)
        self.seen = False
        self.percentile = percentile
        self.recent = None if percentile is None else range_starts.RecentNumbers(device)
        self._ends = (0.0, 0.0)  # The buffers as numbers, which saves time in each batch.

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Watches and quantizes float32 of any shape."""
        if self._watches:
            self.watch(x)
        return self.quantize(x)

    def watch(self, x: torch.Tensor) -> None:
        """Widens the range to include the numbers of `x`."""
        self.seen = True
        if self.recent is not None:
            self.recent.add(x)
        low, high = (end.item() for end in torch.aminmax(x.detach()))
        # The comparisons are negated so that they also notice NaN.
        if not (low >= self._ends[0] and high <= self._ends[1]):
            self.set_range(
                low if not low >= self._ends[0] else self._ends[0],
                high if not high <= self._ends[1] else self._ends[1],
            )

    def set_range(self, low: float, high: float) -> None:
        """Replaces the range."""
        self.low.fill_(low)
        self.high.fill_(high)
        self._refresh()

    def ends(self) -> tuple[float, float]:
        """Returns the smallest and the largest number of the range."""
        return float(self.low), float(self.high)

    def _begin(self) -> None:
        if self.percentile is not None and self.recent is not None and self.recent.count:
            low, high = range_starts.central(self.recent.kept(), self.percentile)
            self.set_range(float(low), float(high))

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        before = self._ends  # The range of pixels is set from the start.
        super()._load_from_state_dict(*args, **kwargs)
        self.seen = self.seen or self._ends != before

    def _refresh(self) -> None:
        self._ends = (self.low.item(), self.high.item())
        super()._refresh()


class WeightFakeQuantizer(Quantizer):
    """Quantizes weights, with one range for the tensor or for each row (output channel).

    The estimator lets gradients pass everywhere. With a clipped one, a weight that an update pushes
    out of a frozen range would stay there for ever, because no gradient could bring it back. Here,
    such a weight acts as the range's end until the gradient turns. Moving ranges are those of the
    current weights, so that no weight is outside.
    """

    _estimate = staticmethod(_PassedThrough.apply)

    def __init__(
        self,
        name: str,
        bits: int,
        moving: bool = False,
        rows: int | None = None,
        axes: int = 0,
        device: Any = None,
        percentile: float | None = None,
    ):
        """Starts with ranges that hold only zero.

        Args:
          name: Name for messages.
          bits: 2 to 16, or 32.
          moving: Whether the ranges are those of the current weights, not those watched.
          rows: Number of rows with ranges of their own; None for one range of the tensor.
          axes: Axes of the weights, behind the rows.
          device: Device of the weights.
          percentile: Central share of the weights that the ranges start with, in percent; None:
            they start with all weights seen.

        Raises:
          errors.UserError: There is no such width.
        """
        super().__init__(name, bits, moving, () if rows is None else (rows,), device)
        self.percentile = percentile
        self._num_axes = 0 if rows is None else axes
        self._weights_version: int | None = None  # That of moving levels.

    def forward(self, weights: torch.Tensor, version: int | None = None) -> torch.Tensor:
        """Watches and quantizes float32 [rows, ...].

        Args:
          weights: Weights to quantize.
          version: Changes whenever the weights change. None means that they may have changed.
        """
        if self._levels is None:
            self.watch(weights)
        return self.quantize(weights, version)

    def watch(self, weights: torch.Tensor) -> None:
        """Widens the ranges to include the weights."""
        low, high = self._extremes(weights)
        torch.minimum(self.low, low, out=self.low)
        torch.maximum(self.high, high, out=self.high)

    def start_from(self, weights: torch.Tensor) -> None:
        """Starts to quantize; watches the weights first, whose last update has not been seen yet.

        Raises:
          errors.UserError: The range holds NaN or infinity.
        """
        if self.percentile is None:
            self.watch(weights)
        else:
            low, high = range_starts.central(self._by_range(weights), self.percentile)
            self.low.copy_(low)
            self.high.copy_(high)
        self.start()

    def quantize(self, x: torch.Tensor, version: int | None = None) -> torch.Tensor:
        """Returns weights rounded to their levels, or unchanged before the start."""
        if self.moving and self._levels is not None:
            if version is None or version != self._weights_version:
                self._levels = self._make_levels(*self._extremes(x))
            self._weights_version = version
        return super().quantize(x)

    def ends(self, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns smallest and largest numbers of the ranges that these weights have."""
        return self._extremes(weights) if self.moving else (self.low, self.high)

    def _extremes(self, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights = weights.detach()
        if not self.low.ndim:
            return torch.aminmax(weights)
        return torch.aminmax(weights.flatten(1), dim=1)

    def _by_range(self, weights: torch.Tensor) -> torch.Tensor:
        """Returns weights as [N], or as [rows, N] where each row has a range of its own."""
        return weights.detach().flatten(self.low.ndim)

    def _refresh(self) -> None:
        super()._refresh()
        self._weights_version = None

    def _axes(self) -> int:
        return self._num_axes
