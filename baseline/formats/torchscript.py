"""Writes a policy as a TorchScript file, normalization included, which torch alone plays.

With 8 bits, weights are the integers of `schemes`, stored as int8. Products are those of torch's
dynamically quantized layers, which add up in int32 and find the range of a layer's inputs in every
call, so that nothing is calibrated. When torch loads the file, it packs weights for the processor's
own kernels: FBGEMM on x86, QNNPACK on ARM. With 32 bits, all is in fp32.

The module in the file returns "output" [B, A] and "action", and knows its observation's shape and
dtype.
"""

from collections.abc import Callable
import copy
import io
import json
import platform
import warnings

import numpy as np
import torch
from torch import fx
from torch import nn

from actorQ.core import errors
from baseline.agents import zoo_files
from baseline.formats import names
from baseline.quantization import acting_layers
from baseline.quantization import acting_path
from baseline.quantization import schemes

METADATA = "policy.json"  # Name of the entry inside the file.
_ARM = "aarch64", "arm64"  # Torch takes kernels of x86 there, and fails, unless told otherwise.
_SHIFT = 128  # From unsigned 8-bit integers to int8.


def export(
    network: acting_path.PolicyNetwork,
    bits: int = 8,
    granularity: str = schemes.PAPER,
    normalization: zoo_files.Normalization | None = None,
    image_size: tuple[int, int] | None = None,
) -> bytes:
    """Returns a policy as a TorchScript file.

    Args:
      network: The acting path, its weights in full precision; it stays as it is.
      bits: Bits of the weights, 32 or 8.
      granularity: Scales of linear layers' weights: "paper" (per tensor) or "channel" (per row).
      normalization: Normalization that the model does; None: the caller does it.
      image_size: Height and width of images; None where there are none.

    Raises:
      errors.UserError: The width is not possible, weights are not finite, or a layer has no such
        form.
    """
    names.check_bits("torchscript", bits)
    if not network.with_weights():
        raise errors.UserError("The policy has no layer with weights: nothing to export.")
    scheme = schemes.Scheme(str(bits), granularity=granularity)
    if platform.machine() in _ARM:
        torch.backends.quantized.engine = "qnnpack"
    with warnings.catch_warnings():
        # Torch announces the end of quantized tensors and of TorchScript, but it is pinned here.
        warnings.simplefilter("ignore")
        layers = [_layer(name, module, scheme) for name, module in network.layers]
        policy = _Policy(network, layers, normalization, image_size).eval()
        metadata = json.dumps({
            names.MARK: names.MARK_VERSION,
            "bits": bits,
            "activations": "floats" if bits == 32 else "dynamic",
            "granularity": granularity,
            "rounding": scheme.rounding,
            "head": network.head,
            **names.layout(network.fields, network.sizes),
            "normalizes": normalization is not None,
        })
        buffer = io.BytesIO()
        torch.jit.save(torch.jit.script(policy), buffer, _extra_files={METADATA: metadata})
    return buffer.getvalue()


class _Policy(nn.Module):
    """Computes the last layer's outputs, and actions, from raw observations."""

    mean: torch.Tensor
    deviation: torch.Tensor
    clip: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor

    def __init__(
        self,
        network: acting_path.PolicyNetwork,
        layers: list[nn.Module],
        normalization: zoo_files.Normalization | None,
        image_size: tuple[int, int] | None,
    ):
        super().__init__()
        self.observation_shape = network.observation_shape(image_size)
        self.observation_dtype = "uint8" if network.image else "float32"
        self.scale = 1.0 / acting_path.PIXEL_LEVELS if network.image else 1.0
        mean, deviation, clip = np.zeros(1), np.ones(1), np.full(1, np.inf)
        if normalization is not None:
            if len(self.observation_shape) == 1:
                normalization = normalization.flat()
            mean, deviation = normalization.mean, normalization.deviation
            clip = np.atleast_1d(normalization.clip)
        self.register_buffer("mean", _tensor(mean))
        self.register_buffer("deviation", _tensor(deviation))
        self.register_buffer("clip", _tensor(clip))
        self.layers = _graph_module(network, layers)
        self.head = network.head
        self.sizes = list(network.sizes) or [network.num_outputs]
        zeros = np.zeros(network.num_outputs)
        self.register_buffer("low", _tensor(zeros if network.low is None else network.low))
        self.register_buffer("high", _tensor(zeros if network.high is None else network.high))

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns outputs [B, A] and actions, int64 [B] or [B, K], or float32 [B, A]."""
        x = observation.float() * self.scale
        x = ((x - self.mean) / self.deviation).clamp(-self.clip, self.clip)
        x = self.layers(x)
        if self.head == "argmax":
            return x, x.argmax(dim=1)
        if self.head == "argmaxes":
            best = [part.argmax(dim=1) for part in x.split(self.sizes, dim=1)]
            return x, torch.stack(best, dim=1)
        if self.head == "positive":
            return x, (x > 0).long()
        if self.head == "scale":
            return x, self.low + 0.5 * (x + 1.0) * (self.high - self.low)
        return x, torch.minimum(torch.maximum(x, self.low), self.high)


def _graph_module(
    network: acting_path.PolicyNetwork, layers: list[nn.Module]
) -> nn.Module:
    """Returns one module that computes the layers in their order, each from its inputs."""
    graph = fx.Graph()
    values = {acting_path.OBSERVATION: graph.placeholder("observation")}
    modules: dict[str, nn.Module] = {}
    for index, (name, module, sources) in enumerate(network.steps()):
        inputs = [values[source] for source in sources]
        joins = isinstance(module, acting_layers.JOINS)
        modules[f"layer_{index}"] = layers[index]
        values[name] = graph.call_module(f"layer_{index}", (inputs if joins else inputs[0],))
    graph.output(values[name])
    return fx.GraphModule(modules, graph)


class _Linear(nn.Module):
    """A linear layer with int8 weights."""

    def __init__(self, weights: torch.Tensor, bias: torch.Tensor | None):
        super().__init__()
        self.packed = torch.ops.quantized.linear_prepack(weights, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns [B, outputs]."""
        # True gives inputs 7 bits on x86, as in torch's own layers: 8 could overflow 16-bit sums.
        return torch.ops.quantized.linear_dynamic(x, self.packed, True)


class _Convolution(nn.Module):
    """A convolution with int8 weights."""

    def __init__(self, weights: torch.Tensor, module: nn.Conv2d):
        super().__init__()
        self.packed = torch.ops.quantized.conv2d_prepack(
            weights, module.bias, list(module.stride), list(module.padding),
            list(module.dilation), module.groups,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns [B, C, H, W]."""
        return torch.ops.quantized.conv2d_dynamic(x, self.packed, True)


def _layer(name: str, module: nn.Module, scheme: schemes.Scheme) -> nn.Module:
    """Returns a layer as it goes into the file.

    Raises:
      errors.UserError: The layer has no such form.
    """
    if not isinstance(module, acting_layers.KINDS):
        raise errors.UserError(
            f"Layer {name}, a {type(module).__name__}, has no TorchScript form."
        )
    module = copy.copy(module)
    for size in ("in_features", "out_features"):  # SB3 may count them in numpy's integers.
        if hasattr(module, size):
            setattr(module, size, int(getattr(module, size)))
    if isinstance(module, nn.LayerNorm):
        module.normalized_shape = tuple(int(size) for size in module.normalized_shape)
    if not isinstance(module, acting_path.WITH_WEIGHTS):
        return module
    if not all(torch.isfinite(parameter).all() for parameter in module.parameters()):
        raise errors.UserError(f"Weights of {name} hold NaN or infinity.")
    if scheme.width == 32:
        return module
    weights = _int8(name, module, scheme)
    if isinstance(module, nn.Linear):
        return _Linear(weights, module.bias)
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        raise errors.UserError(f"Layer {name}, {module}, has no TorchScript form of 8 bits.")
    return _Convolution(weights, module)


def _int8(name: str, module: acting_path.WithWeights, scheme: schemes.Scheme) -> torch.Tensor:
    """Returns a layer's weights as a quantized tensor of torch with the integers of `schemes`."""
    integers = schemes.integers(name, module, scheme, 8)
    values = torch.from_numpy((integers.values.astype(np.int16) - _SHIFT).astype(np.int8))
    make: Callable[..., torch.Tensor] = torch._make_per_tensor_quantized_tensor
    if integers.scale.size == 1:
        zero = int(np.asarray(integers.zero_point).reshape(())) - _SHIFT
        return make(values, float(integers.scale.reshape(())), zero)
    scales = torch.from_numpy(integers.scale.astype(np.float64))
    zeros = torch.from_numpy(np.asarray(integers.zero_point, np.int64) - _SHIFT)
    return torch._make_per_channel_quantized_tensor(values, scales, zeros, 0)


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array, np.float32))
