"""The policy in torch, the twin of `sonnet_policy`, and its quantized forms.

Only this module uses `torch.ao.quantization`. Imports no TensorFlow.
"""

import collections
from collections.abc import Mapping
import warnings

import numpy as np
import torch

from actorQ.policy import architecture as architecture_lib
from actorQ.policy import model_update
from actorQ.policy import quantization

_PACKED = "._packed_params._packed_params"  # torch's key for (weight, bias) of a packed layer.


class Policy(torch.nn.Module):
    """The function of `architecture.PolicyArchitecture`, without noise.

    Input: observations float32 [B, D], or pixels uint8 [B, H, W, C].
    Output: float32 [B, num_outputs]: actions in [-1, 1], or Q-values.
    """

    def __init__(self, architecture: architecture_lib.PolicyArchitecture):
        super().__init__()
        self.architecture = architecture
        self.compute_dtype = torch.float32
        self._convolutions = []
        for name, inputs, filters, kernel, stride in architecture.convolutions:
            self.add_module(name, torch.nn.Conv2d(inputs, filters, kernel, stride))
            self._convolutions.append(name)
        self._linears = []
        for name, inputs, outputs in architecture.linears:
            self.add_module(name, torch.nn.Linear(inputs, outputs))
            self._linears.append(name)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Computes the policy's output; see the class."""
        hidden = observation
        if self._convolutions:
            hidden = hidden.permute(0, 3, 1, 2).to(self.compute_dtype) / 255.0
            for name in self._convolutions:
                hidden = torch.relu(self._layer(name)(hidden))
            # Flatten in TensorFlow's order, so that the next layer's weights need no shuffling.
            hidden = hidden.permute(0, 2, 3, 1).flatten(1)
        for name in self._linears[:-1]:
            hidden = torch.tanh(self._layer(name)(hidden))
        output = self._layer(self._linears[-1])(hidden)
        if self.architecture.head == architecture_lib.TANH_HEAD:
            output = torch.tanh(output)
        return output

    def _layer(self, name: str) -> torch.nn.Module:
        layer = self._modules[name]  # getattr would search other dictionaries first.
        assert layer is not None
        return layer


def make_policy(
    architecture: architecture_lib.PolicyArchitecture, quantize: int, device: str = "cpu"
) -> Policy:
    """Builds a policy that computes at `quantize` bits, with arbitrary weights.

    * 32: Everything is fp32.
    * 16: Linear layers have fp16 weights (torch's dynamic quantization). On a GPU, everything is
      fp16.
    * 8: Linear layers have int8 weights per output channel (torch's dynamic quantization).
      Activations are quantized on the fly, per tensor, to 7 of 8 bits, so that the kernels do not
      overflow on processors without VNNI.

    torch has no dynamically quantized convolution. Convolutions compute in fp32, with weights that
    were quantized to 16 or 8 bits.
    """
    policy = Policy(architecture).eval()
    if device != "cpu":
        policy.compute_dtype = torch.float16 if quantize == 16 else torch.float32
        return policy.to(device, policy.compute_dtype)
    return quantize_linears(policy, quantize)


def quantize_linears(policy: Policy, bits: int) -> Policy:
    """Returns a policy with the same weights, whose linear layers compute at 32, 16 or 8 bits."""
    with warnings.catch_warnings():
        # torch warns that quantize_dynamic will move to torchao, whose int8 is slower than fp32 at
        # batch 1. The torch that we pin still has it.
        warnings.simplefilter("ignore")
        if bits == 16:
            return torch.ao.quantization.quantize_dynamic(
                policy, {torch.nn.Linear}, dtype=torch.float16
            )
        if bits == 8:
            return torch.ao.quantization.quantize_dynamic(
                policy, {torch.nn.Linear: torch.ao.quantization.per_channel_dynamic_qconfig}
            )
    return policy


def executed_types(policy: Policy) -> dict[str, str]:
    """Returns the type in which each layer computes, by name, first to last."""
    types = {}
    for name, layer in policy.named_children():
        if isinstance(layer, torch.ao.nn.quantized.dynamic.Linear):
            types[name] = "int8" if layer._packed_params.dtype == torch.qint8 else "float16"
        else:
            types[name] = str(policy.compute_dtype).removeprefix("torch.")
    return types


class StateDictTemplate:
    """Arranges received tensors as a state_dict of a policy from `make_policy`."""

    def __init__(self, policy: Policy):
        """Notes the policy's keys once, since packed layers give them slowly."""
        state = policy.state_dict()
        # torch reads the format of packed layers from here and takes a plain dict as an old format.
        self._metadata = state._metadata  # type: ignore[attr-defined]  # torch adds it to a dict.
        self._constants = {
            key: None if key.endswith((_PACKED, ".weight", ".bias")) else value
            for key, value in state.items()
        }

    def fill(self, tensors: Mapping[str, model_update.Tensor]) -> collections.OrderedDict:
        """Returns a complete state_dict.

        Args:
          tensors: torch's names to tensors, from `forms.expand`.
        """
        state: collections.OrderedDict = collections.OrderedDict()
        for key, constant in self._constants.items():
            if constant is not None:
                state[key] = constant
            elif key.endswith(_PACKED):
                layer = key.removesuffix(_PACKED)
                bias = _torch(model_update.to_float32(tensors[f"{layer}.bias"]))
                state[key] = (_packed_weight(tensors[f"{layer}.weight"]), bias)
            else:
                state[key] = _torch(model_update.to_float32(tensors[key]))
        state._metadata = self._metadata  # type: ignore[attr-defined]  # torch adds it to a dict.
        return state


def _packed_weight(weight: model_update.Tensor) -> torch.Tensor:
    if not isinstance(weight, quantization.QuantizedTensor):
        floats = weight if isinstance(weight, np.ndarray) else model_update.to_float32(weight)
        return _torch(floats).to(torch.float32)
    scale = torch.from_numpy(weight.scale.astype(np.float64))
    zero_points = torch.zeros(scale.shape, dtype=torch.int64)
    return torch._make_per_channel_quantized_tensor(
        _torch(weight.values), scale, zero_points, axis=0
    )


def _torch(array: np.ndarray) -> torch.Tensor:
    # torch warns about a received array, which is read-only. Nothing here writes to it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
