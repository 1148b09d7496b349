"""Writes a policy as a file that ActorQ's kernels play, which a device compiles for itself.

The arithmetic is that of ActorQ's actors, see `actorQ.policy.reference`. With 8 bits or fewer, each
observation gets scales of its own for the inputs of every layer, so that nothing is calibrated.
Weights of 8 bits have a scale for each output, and those of 4 or 3 bits one for every 64 inputs.
With 16 bits weights are halves. `actorQ.policy.native.device` tells how the file is laid out.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np
import torch
from torch import nn

from actorQ.core import errors
from actorQ.core import precisions
from actorQ.policy.native import device
from actorQ.policy.native import library
from baseline.agents import zoo_files
from baseline.formats import names
from baseline.quantization import acting_layers
from baseline.quantization import acting_path
from baseline.quantization import float32

_NONNEGATIVE = ("relu", "sigmoid", "softplus")


def export(
    network: acting_path.PolicyNetwork,
    bits: int = 8,
    normalization: zoo_files.Normalization | None = None,
    image_size: tuple[int, int] | None = None,
) -> bytes:
    """Returns a policy as a file for the native kernels.

    Args:
      network: The acting path, its weights in full precision; it stays as it is.
      bits: Bits of the weights: 32, 16, 8, 4 or 3.
      normalization: Normalization that the player does; None: the caller does it.
      image_size: Height and width of images; None where there are none.

    Raises:
      errors.UserError: The width is not possible, weights are not finite, or a layer has no such
        form.
    """
    names.check_bits("native", bits)
    shape = network.observation_shape(image_size)
    layers = _Builder(network, shape).layers()
    outputs, sizes = network.num_outputs, network.sizes
    actions = {"argmax": 1, "argmaxes": len(sizes)}.get(network.head, outputs)
    discrete = network.low is None
    facts = {
        names.MARK: names.MARK_VERSION,
        "bits": bits,
        "activations": "floats" if bits > 8 else "dynamic",
        "head": network.head,
        **names.layout(network.fields, sizes),
        "normalizes": normalization is not None,
        "shape": [int(size) for size in shape],
        "dtype": "uint8" if network.image else "float32",
        "outputs": outputs,
        "actions": [actions, "int64" if discrete else "float32"],
    }
    head = device.Head(network.head, sizes, _floats(network.low), _floats(network.high))
    return device.content(
        layers, head, precisions.SCHEMES[bits], network.image,
        None if normalization is None or network.image else _statistics(normalization), facts,
    )


@dataclasses.dataclass
class _Shape:
    """Tells what the layers so far give: numbers, or an image [channels, height, width]."""

    image: tuple[int, int, int] | None
    # Channels of the network; those of the file are filled up to whole blocks of the kernels.
    channels: int = 0


class _Builder:
    """Turns the acting path into layers of a device."""

    def __init__(self, network: acting_path.PolicyNetwork, shape: Sequence[int]):
        self._network = network
        self._layers: list[device.DeviceLayer] = []
        self._shape = _Shape(None)
        if len(shape) == 3:
            self._shape = _Shape((shape[0], shape[1], shape[2]), shape[0])
        # Pixels are never negative.
        self._nonnegative = network.image
        self._open = False  # Whether an activation may follow.

    def layers(self) -> list[device.DeviceLayer]:
        """Returns the layers.

        Raises:
          errors.UserError: A layer has no such form.
        """
        before = acting_path.OBSERVATION
        for name, module, sources in self._network.steps():
            if sources != (before,):
                raise _refused(name, module, "joins others")
            self._add(name, module)
            before = name
        if not self._layers:
            raise errors.UserError("The policy has no layer with weights: nothing to export.")
        if len(self._layers) > library.MAX_LAYERS:
            raise errors.UserError(
                f"A native file has room for {library.MAX_LAYERS} layers, and the policy has "
                f"{len(self._layers)}: use --format=onnx."
            )
        return self._layers

    def _add(self, name: str, module: nn.Module) -> None:
        if isinstance(module, acting_path.WITH_WEIGHTS):
            if not all(np.isfinite(_array(each)).all() for each in module.parameters()):
                raise errors.UserError(f"Weights of {name} hold NaN or infinity.")
            if isinstance(module, nn.Conv2d):
                self._add_convolution(name, module)
            else:
                self._add_linear(module)
            self._nonnegative, self._open = False, True
        elif isinstance(module, acting_layers.ACTIVATIONS):
            kind, parameters = activation(module)
            if not self._open:
                raise _refused(name, module, "stands behind no layer with weights")
            if self._shape.image is not None and kind != "relu":
                raise _refused(name, module, "stands behind a convolution and is no ReLU")
            self._layers[-1] = self._layers[-1]._replace(activation=kind, parameters=parameters)
            positive = kind == "hardtanh" and parameters[0] >= 0
            self._nonnegative, self._open = kind in _NONNEGATIVE or positive, False
        elif not isinstance(module, nn.Flatten) or (module.start_dim, module.end_dim) != (1, -1):
            raise _refused(name, module)

    def _add_convolution(self, name: str, module: nn.Conv2d) -> None:
        image = self._shape.image
        (kernel, width), (stride, across) = module.kernel_size, module.stride
        plain = module.groups == 1 and tuple(module.dilation) == (1, 1)
        plain = plain and module.padding in ("valid", (0, 0))
        if image is None or not plain or kernel != width or stride != across:
            raise _refused(name, module, "has padding, groups, dilation, or is no square")
        if not self._network.image or not self._nonnegative:
            raise _refused(name, module, "takes numbers that may be negative")
        channels, *size = image
        filters = -(-module.out_channels // device.LANES) * device.LANES
        weight = np.zeros((filters, channels, kernel, kernel), np.float32)
        weight[: module.out_channels, : module.in_channels] = _array(module.weight)
        bias = np.zeros(filters, np.float32)
        bias[: module.out_channels] = _bias(module)
        self._layers.append(device.DeviceLayer(
            weight, bias, nonnegative=True, stride=int(stride), size=(size[0], size[1]),
        ))
        height, width = ((side - kernel) // stride + 1 for side in size)
        self._shape = _Shape((filters, height, width), module.out_channels)

    def _add_linear(self, module: nn.Linear) -> None:
        weight = _array(module.weight)
        if self._shape.image is not None:  # From torch's order of a flat image to the kernels'.
            filters, height, width = self._shape.image
            planes = np.zeros((len(weight), filters, height, width), np.float32)
            planes[:, : self._shape.channels] = weight.reshape(
                len(weight), self._shape.channels, height, width
            )
            weight = planes.transpose(0, 2, 3, 1).reshape(len(weight), -1)
            self._shape = _Shape(None)
        self._layers.append(
            device.DeviceLayer(weight, _bias(module), nonnegative=self._nonnegative)
        )


def activation(module: nn.Module) -> tuple[str, tuple[float, float]]:
    """Returns an activation's name among the kernels', and its two parameters.

    Args:
      module: One of `acting_layers.ACTIVATIONS`.
    """
    if isinstance(module, nn.LeakyReLU):
        return "leaky_relu", (module.negative_slope, 0.0)
    if isinstance(module, nn.ELU):
        return "elu", (module.alpha, 1.0)
    if isinstance(module, nn.SELU):
        return "elu", (float32.SELU_ALPHA * float32.SELU_SCALE, float32.SELU_SCALE)
    if isinstance(module, nn.GELU):
        return ("gelu_tanh" if module.approximate == "tanh" else "gelu"), (0.0, 0.0)
    if isinstance(module, nn.Softplus):
        return "softplus", (float(module.beta), float(module.threshold))
    if isinstance(module, nn.Hardtanh):
        return "hardtanh", (float(module.min_val), float(module.max_val))
    plain = {nn.ReLU: "relu", nn.SiLU: "silu", nn.Mish: "mish", nn.Tanh: "tanh",
             nn.Sigmoid: "sigmoid"}
    return next(name for kind, name in plain.items() if isinstance(module, kind)), (0.0, 0.0)


def _refused(name: str, module: nn.Module, why: str = "") -> errors.UserError:
    has = ": --format=onnx has one" if isinstance(module, acting_layers.KINDS) else ""
    why = f" ({why})" if why else ""
    return errors.UserError(
        f"Layer {name}, a {type(module).__name__}{why}, has no native form{has}."
    )


def _statistics(
    normalization: zoo_files.Normalization
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    flat = normalization.flat()
    mean, deviation = _floats(flat.mean), _floats(flat.deviation)
    return mean, deviation, np.broadcast_to(np.float32(flat.clip), mean.shape)


def _floats(array: Any) -> Any:
    return None if array is None else np.asarray(array, np.float32).ravel()


def _array(parameter: torch.Tensor) -> np.ndarray:
    return parameter.detach().cpu().numpy().astype(np.float32)


def _bias(module: acting_path.WithWeights) -> np.ndarray:
    if module.bias is None:
        return np.zeros(len(module.weight), np.float32)
    return _array(module.bias)
