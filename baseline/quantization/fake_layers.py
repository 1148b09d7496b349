"""Layers whose inputs and weights are fake-quantized.

They share the parameters of the layers that they replace, so that an optimizer stays valid.
"""

from typing import Any
from typing import TypeVar

import torch
from torch import nn
from torch.nn import functional

from baseline.quantization import fake_quantizers

_Layer = TypeVar("_Layer", nn.Linear, nn.Conv2d)


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

    def _adopt(
        self,
        layer: nn.Linear | nn.Conv2d,
        input_quantizer: fake_quantizers.FakeQuantizer,
        weight_quantizer: fake_quantizers.WeightFakeQuantizer,
        output_quantizer: fake_quantizers.FakeQuantizer | None,
        cached: bool,
    ) -> None:
        self.weight, self.bias = layer.weight, layer.bias
        self.input_quantizer = input_quantizer
        self.weight_quantizer = weight_quantizer
        self.output_quantizer = output_quantizer
        # torch finds registered modules slowly, which matters in small networks.
        self.__dict__["_quantizers"] = (input_quantizer, weight_quantizer, output_quantizer)
        self._cached = cached
        self._cache: tuple[tuple[int, int], torch.Tensor] | None = None
        self.train(layer.training)

    def _hand_over(self, layer: _Layer) -> _Layer:
        layer.weight, layer.bias = self.weight, self.bias
        return layer.train(self.training)

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
        key = (version, quantizer.generation)
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

    def __init__(
        self,
        layer: nn.Linear,
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
        nn.Linear.__init__(
            self, layer.in_features, layer.out_features, layer.bias is not None, device="meta"
        )
        self._adopt(layer, input_quantizer, weight_quantizer, output_quantizer, cached)

    def plain(self) -> nn.Linear:
        """Returns a plain layer with the same parameters."""
        layer = nn.Linear(
            self.in_features, self.out_features, self.bias is not None, device="meta"
        )
        return self._hand_over(layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns [B, outputs] for [B, inputs]."""
        return self._finish(functional.linear(self._begin(x), self._weights(), self.bias))


class FakeQuantConv2d(_FakeQuantLayer, nn.Conv2d):
    """A convolution with fake-quantized inputs and weights."""

    def __init__(
        self,
        layer: nn.Conv2d,
        input_quantizer: fake_quantizers.FakeQuantizer,
        weight_quantizer: fake_quantizers.WeightFakeQuantizer,
        output_quantizer: fake_quantizers.FakeQuantizer | None = None,
        cached: bool = True,
    ):
        """Replaces a layer; see `FakeQuantLinear`."""
        nn.Conv2d.__init__(self, **_geometry(layer))
        self._adopt(layer, input_quantizer, weight_quantizer, output_quantizer, cached)

    def plain(self) -> nn.Conv2d:
        """Returns a plain layer with the same parameters."""
        return self._hand_over(nn.Conv2d(**_geometry(self)))

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


def _geometry(layer: nn.Conv2d) -> dict[str, Any]:
    names = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation")
    return {
        **{name: getattr(layer, name) for name in (*names, "groups", "padding_mode")},
        "bias": layer.bias is not None,
        "device": "meta",
    }
