"""Layers whose inputs and weights are fake-quantized.

They share the parameters of the layers that they replace, so that an optimizer stays valid.
"""

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from baseline.quantization import fake_quantizers


class _FakeQuantLayer(nn.Module):
    """The common part of layers with weights.

    Attributes:
      input_quantizer: Quantizer of the input.
      weight_quantizer: Quantizer of the weights.
      output_quantizer: Quantizer of the output, where that is the policy's output.
    """

    weight: Any  # torch's layers declare a tensor and assign a parameter.
    bias: Any  # A parameter or None, declared in different ways.
    _quantizers: tuple[
        fake_quantizers.FakeQuantizer,
        fake_quantizers.WeightFakeQuantizer,
        fake_quantizers.FakeQuantizer | None,
    ]
    _replaced: nn.Linear | nn.Conv2d

    def __init__(
        self,
        layer: nn.Linear | nn.Conv2d,
        input_quantizer: fake_quantizers.FakeQuantizer,
        weight_quantizer: fake_quantizers.WeightFakeQuantizer,
        output_quantizer: fake_quantizers.FakeQuantizer | None = None,
        cached: bool = True,
    ):
        """Replaces a layer, whose parameters it shares.

        Args:
          layer: The layer to replace.
          input_quantizer: Quantizer of its input.
          weight_quantizer: Quantizer of its weights.
          output_quantizer: Quantizer of its output, if that is the policy's.
          cached: Whether quantized weights are kept until an optimizer changes them. Target
            networks need False: their weights change without torch's knowledge.
        """
        nn.Module.__init__(self)
        # Shallow copies bring the layer's shape and its very parameters, but no common registry.
        self.__dict__.update({name: copy.copy(part) for name, part in layer.__dict__.items()})
        self.input_quantizer = input_quantizer
        self.weight_quantizer = weight_quantizer
        self.output_quantizer = output_quantizer
        # torch finds registered modules slowly, which matters in small networks.
        self.__dict__["_quantizers"] = (input_quantizer, weight_quantizer, output_quantizer)
        self.__dict__["_replaced"] = layer
        self._cached = cached
        self._cache: tuple[tuple[int, tuple[int, ...]], torch.Tensor] | None = None

    def plain(self) -> nn.Linear | nn.Conv2d:
        """Returns the plain layer, which has the same parameters."""
        self._replaced.weight, self._replaced.bias = self.weight, self.bias
        return self._replaced.train(self.training)

    def _weights(self) -> torch.Tensor:
        """Returns the weights for a pass. Without gradients, it quantizes them once per update."""
        quantizer, weights = self._quantizers[1], self.weight
        version = weights._version if self._cached else None
        if torch.is_grad_enabled():
            return quantizer(weights, version)
        if not quantizer.started:
            return weights
        if version is None:
            return quantizer.quantize(weights)
        key = version, quantizer.version
        if self._cache is None or self._cache[0] != key:
            self._cache = key, quantizer.quantize(weights, version)
        return self._cache[1]

    def _begin(self, x: torch.Tensor) -> torch.Tensor:
        return self._quantizers[0].forward(x)

    def _finish(self, y: torch.Tensor) -> torch.Tensor:
        quantizer = self._quantizers[2]
        return y if quantizer is None else quantizer.forward(y)


class FakeQuantLinear(_FakeQuantLayer, nn.Linear):
    """A linear layer with fake-quantized inputs and weights."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns [B, outputs] for [B, inputs]."""
        return self._finish(functional.linear(self._begin(x), self._weights(), self.bias))


class FakeQuantConv2d(_FakeQuantLayer, nn.Conv2d):
    """A convolution with fake-quantized inputs and weights."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns [B, outputs, H, W] for [B, inputs, H, W]."""
        return self._finish(self._conv_forward(self._begin(x), self._weights(), self.bias))


class FakeQuantTanh(nn.Tanh):
    """A tanh as the policy's last layer, with fake-quantized output."""

    def __init__(self, output_quantizer: fake_quantizers.FakeQuantizer):
        """Keeps the quantizer of the output."""
        super().__init__()
        self.output_quantizer = output_quantizer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the fake-quantized tanh of `x`."""
        return self.output_quantizer(super().forward(x))


def note_steps(optimizer: torch.optim.Optimizer) -> None:
    """Makes an optimizer's steps raise the versions of its weights, which renews kept weights.

    Steps of torch's fused optimizers (2.13) leave a weight's version as it was.
    """

    def count(stepped: torch.optim.Optimizer, *_: Any) -> None:
        for group in stepped.param_groups:
            torch.autograd.graph.increment_version(group["params"])

    optimizer.register_step_post_hook(count)
