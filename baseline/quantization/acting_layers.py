"""The kinds of layers that acting paths consist of: torch's own, and ours for what joins them.

Ours have no weights. They stand for steps that policies compute outside of modules: encodings of
observations, sums, concatenations. All can be compiled by TorchScript.
"""

from collections.abc import Sequence
import math

import torch
from torch import nn

from actorQ.core import errors

WITH_WEIGHTS = (nn.Linear, nn.Conv2d)
WithWeights = nn.Linear | nn.Conv2d
# nn.Hardtanh includes nn.ReLU6.
ACTIVATIONS = (
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.SiLU, nn.Mish, nn.GELU, nn.Tanh, nn.Sigmoid,
    nn.Softplus, nn.Hardtanh,
)
OF_TORCH = (*WITH_WEIGHTS, *ACTIVATIONS, nn.LayerNorm, nn.Flatten)
NEVER_ALLOWED = 1e8  # The outputs of masked actions fall by so much; sb3-contrib sets them to -1e8.
FAR = 1e6  # Larger differences between outputs come from masks.


class Part(nn.Module):
    """Cuts one part out of flat observations [B, D]; returns [B, *shape]."""

    def __init__(self, start: int, shape: Sequence[int], divisor: float = 1.0):
        """Takes the first column, the shape of the part, and a divisor of its numbers."""
        super().__init__()
        self.start, self.end = start, start + math.prod(shape)
        self.shape = list(shape)
        self.divisor = divisor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the part."""
        part = x[:, self.start : self.end] / self.divisor
        return part.reshape([x.shape[0]] + self.shape)


class OneHot(nn.Module):
    """Encodes columns of whole numbers [B, K], counted from 0, as [B, sum(sizes)] of 0 and 1."""

    columns: torch.Tensor
    values: torch.Tensor

    def __init__(self, sizes: Sequence[int]):
        """Takes the number of values of every column."""
        super().__init__()
        self.num_columns = len(sizes)
        columns = [column for column, size in enumerate(sizes) for _ in range(size)]
        values = [value for size in sizes for value in range(size)]
        self.register_buffer("columns", torch.tensor(columns), persistent=False)
        self.register_buffer("values", torch.tensor(values, dtype=torch.float32), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the encoding, float32."""
        return (x[:, self.columns] == self.values).float()


class Scaled(nn.Module):
    """Returns x times a number, plus a number."""

    def __init__(self, factor: float = 1.0, summand: float = 0.0):
        """Takes both numbers."""
        super().__init__()
        self.factor, self.summand = float(factor), float(summand)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the result, of the same shape."""
        return x * self.factor + self.summand


class QuantileMean(nn.Module):
    """Returns the mean over the quantiles of every action: [B, quantiles * A] becomes [B, A]."""

    def __init__(self, actions: int):
        """Takes the number of actions."""
        super().__init__()
        self.actions = actions

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the means."""
        return x.reshape(x.shape[0], -1, self.actions).mean(dim=1)


class _Join(nn.Module):
    """The common part of layers with several inputs, which come as a list."""


class Concatenate(_Join):
    """Lays vectors [B, D] side by side, or images [B, C, H, W] channel by channel."""

    def forward(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """Returns the whole."""
        return torch.cat(parts, dim=1)


class Add(_Join):
    """Adds two tensors of one shape."""

    def forward(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """Returns the sum."""
        return parts[0] + parts[1]


class Multiply(_Join):
    """Multiplies two tensors of one shape, number by number."""

    def forward(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """Returns the product."""
        return parts[0] * parts[1]


class Masked(_Join):
    """Lowers the outputs [B, A] of actions that a mask [B, A] of 0 and 1 forbids."""

    def __init__(self) -> None:
        super().__init__()
        self.fall = NEVER_ALLOWED

    def forward(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """Returns the outputs, of which those with a mask of 1 are as before."""
        return parts[0] + (parts[1] - 1.0) * self.fall


JOINS = (Concatenate, Add, Multiply, Masked)
OWN = (Part, OneHot, Scaled, QuantileMean, *JOINS)
KINDS = (*OF_TORCH, *OWN)


def call(module: nn.Module, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns a layer's output [B, ...] for its inputs [B, ...]."""
    return module(list(inputs)) if isinstance(module, _Join) else module(inputs[0])


def output_shape(
    name: str, module: nn.Module, shapes: Sequence[tuple[int, ...]]
) -> tuple[int, ...]:
    """Returns the shape of a layer's output without its batch, and checks that its inputs fit.

    Args:
      name: Name of the layer, for messages.
      module: One of KINDS.
      shapes: Shapes of its inputs, without the batch.

    Raises:
      errors.UserError: The layer is known for other shapes only.
    """
    shape = shapes[0]
    fits, found = True, shape
    if isinstance(module, nn.Linear):
        fits, found = shape == (module.in_features,), (module.out_features,)
    elif isinstance(module, nn.Conv2d):
        fits = len(shape) == 3 and shape[0] == module.in_channels
        found = (module.out_channels, *_convolved(module, shape[1:])) if fits else shape
    elif isinstance(module, nn.LayerNorm):
        fits = len(shape) == 1 and shape == tuple(module.normalized_shape)
    elif isinstance(module, nn.Flatten):
        fits, found = (module.start_dim, module.end_dim) == (1, -1), (math.prod(shape),)
    elif isinstance(module, Part):
        found = tuple(module.shape)
    elif isinstance(module, OneHot):
        fits, found = shape == (module.num_columns,), (len(module.values),)
    elif isinstance(module, QuantileMean):
        found = (module.actions,)
    elif isinstance(module, Concatenate):
        fits = all(len(each) == len(shape) and each[1:] == shape[1:] for each in shapes)
        fits = fits and len(shape) in (1, 3)
        found = (sum(each[0] for each in shapes if each), *shape[1:])
    elif isinstance(module, _Join):
        fits = len(shapes) == 2 and shapes[0] == shapes[1]
    if not fits:
        given = " and ".join(str(list(each)) for each in shapes)
        raise errors.UserError(
            f"Layer {name}, {module}, has inputs of shape {given}, for which it has no quantized "
            "form here."
        )
    return found


def _convolved(module: nn.Conv2d, size: Sequence[int]) -> tuple[int, ...]:
    """Returns height and width behind a convolution with numbers as its padding."""
    if isinstance(module.padding, str):  # "same" keeps the size, "valid" pads nothing.
        padding = [0, 0]
        if module.padding == "same":
            return tuple(size)
    else:
        padding = list(module.padding)
    return tuple(
        (side + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
        for side, pad, dilation, kernel, stride in zip(
            size, padding, module.dilation, module.kernel_size, module.stride, strict=True
        )
    )
