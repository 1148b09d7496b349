"""The integer form of a policy: its integers, and their arithmetic in numpy, step by step.

`baseline.formats.c_policy` writes the same form as C, and is tested against this arithmetic bit for
bit. A layer with weights quantizes its input to integers, and gives floats:

    y = float(sum (q_w - z_w) (q_x - z_x)) * (s_w s_x) + bias

- With calibrated ranges, s_x and z_x are constants: x / s_x is rounded, z_x added, the sum clamped.
- Without, each observation has a scale of its own, as in `actorQ.policy.reference`. Weights then
  are symmetric: 8 bits with one scale for each output, or 4 bits with one for every 64 inputs.
- Weights of 32 and 16 bits are floats, whose sums have no fixed order here.

Numbers round to the nearest, ties to even. All else is in float32 (see `float32`).
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses

import numpy as np
from torch import nn

from actorQ.core import errors
from actorQ.policy import quantization
from actorQ.policy import reference
from baseline.agents import zoo_files
from baseline.quantization import acting_layers
from baseline.quantization import acting_path
from baseline.quantization import float32
from baseline.quantization import schemes

INPUT_BITS = 8
CONVOLUTION_BITS = 8  # Convolutions of policies with fewer bits have so many without ranges.
FAR = 512.0  # Beyond all levels: numbers are clamped to it before they are rounded.
_F = np.float32


@dataclasses.dataclass(frozen=True)
class Form:
    """A policy whose weights are quantized.

    Attributes:
      network: The acting path.
      weights: Integers of each layer with weights, or its floats (float16 where they have 16 bits).
      maps: Maps of layers' inputs to integers, and perhaps that of the last output; None: each
        observation has scales of its own.
      bits: Bits of each map's integers.
      normalization: Normalization of observations, or None.
      image_size: Height and width of images, or None.
    """

    network: acting_path.PolicyNetwork
    weights: Mapping[str, quantization.QuantizedTensor | np.ndarray]
    maps: Mapping[str, quantization.AffineMap] | None
    bits: Mapping[str, int]
    normalization: zoo_files.Normalization | None = None
    image_size: tuple[int, int] | None = None

    def bias(self, name: str) -> np.ndarray:
        """Returns the bias of a layer, float32 [outputs]."""
        module = dict(self.network.with_weights())[name]
        if module.bias is None:
            return np.zeros(len(module.weight), np.float32)
        return module.bias.detach().cpu().numpy().astype(np.float32)

    def not_negative(self, name: str) -> bool:
        """Returns whether the inputs of a layer cannot be negative: pixels, or behind a ReLU."""
        inputs = {step: (module, sources) for step, module, sources in self.network.steps()}
        (source,) = inputs[name][1]
        while source != acting_path.OBSERVATION:
            module, sources = inputs[source]
            if isinstance(module, nn.ReLU):
                return True
            if not isinstance(module, nn.Flatten):
                return False
            (source,) = sources
        return self.network.image


def as_float32(value: float) -> float:
    """Returns the nearest float32 number."""
    return float(np.float32(value))


def make(
    network: acting_path.PolicyNetwork,
    bits: int,
    ranges: schemes.Ranges | None,
    granularity: str = schemes.PAPER,
    normalization: zoo_files.Normalization | None = None,
    weights: Mapping[str, quantization.QuantizedTensor] | None = None,
    image_size: tuple[int, int] | None = None,
) -> Form:
    """Returns the form of a policy.

    Args:
      network: The acting path, its weights in full precision.
      bits: Bits of the weights: 32, 16, or 2 to 8.
      ranges: Smallest and largest input of layers by name; None: each observation finds them.
      granularity: Scales of linear layers' weights with ranges: "paper" or "channel".
      normalization: Normalization of observations, or None.
      weights: Integers to use instead of those made here, by layer.
      image_size: Height and width of images, or None.

    Raises:
      errors.UserError: Weights or ranges are not finite, or a range is missing or too wide.
    """
    found: dict[str, quantization.QuantizedTensor | np.ndarray] = {}
    maps: dict[str, quantization.AffineMap] | None = None
    widths: dict[str, int] = {}
    if ranges is not None and bits <= INPUT_BITS:
        maps = {}
        for name, (low, high, *own) in ranges.items():
            widths[name] = int(own[0]) if own else INPUT_BITS
            if widths[name] > INPUT_BITS:
                raise errors.UserError(
                    f"The input of {name} has {widths[name]} bits: integers in C have at most "
                    f"{INPUT_BITS}."
                )
            try:
                maps[name] = quantization.affine_map(low, high, widths[name])
            except ValueError as error:
                raise errors.UserError(f"Activations of {name}: {error}") from None
    scheme = schemes.Scheme(str(bits), granularity=granularity)
    for name, module in network.with_weights():
        if maps is not None and name not in maps:
            raise errors.UserError(
                f"There is no range for the input of {name}: calibrate with this policy."
            )
        reals = module.weight.detach().cpu().numpy().astype(np.float32)
        convolution = isinstance(module, nn.Conv2d)
        if weights is not None:
            found[name] = weights[name]
        elif bits > INPUT_BITS:
            if not np.all(np.isfinite(reals)):
                raise errors.UserError(f"Weights of {name} hold NaN or infinity.")
            found[name] = reals if bits == 32 else quantization.to_float16(reals)
        elif maps is not None:
            width = CONVOLUTION_BITS if convolution else bits
            found[name] = schemes.integers(name, module, scheme, width)
        else:
            found[name] = _symmetric(name, reals, 8 if convolution else bits)
    return Form(network, found, maps, widths, normalization, image_size)


def _symmetric(name: str, reals: np.ndarray, bits: int) -> quantization.QuantizedTensor:
    """Returns the integers with which ActorQ's actors compute."""
    quantize = {
        8: quantization.quantize_int8_channels, 4: quantization.quantize_int4_groups
    }.get(bits)
    if quantize is None:
        raise errors.UserError(f"Weights alone have 8 or 4 bits here, not {bits}.")
    try:
        return quantize(reals)
    except ValueError as error:
        raise errors.UserError(f"Weights of {name}: {error}") from None


def normalized(form: Form, observations: np.ndarray) -> np.ndarray:
    """Returns normalized observations in float32 operations."""
    if form.normalization is None:
        return observations.astype(np.float32)
    mean, deviation, clip = constants(form.normalization)
    x = (observations.astype(np.float32) - mean) / deviation
    return np.where(x > -clip, np.where(x < clip, x, clip), -clip).astype(np.float32)


def constants(
    normalization: zoo_files.Normalization
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns mean, deviation and clip, float32 [D]."""
    mean = normalization.mean.astype(np.float32).ravel()
    largest = np.finfo(np.float32).max
    clip = np.minimum(np.broadcast_to(normalization.clip, mean.shape), largest)
    return mean, normalization.deviation.astype(np.float32).ravel(), clip.astype(np.float32)


def outputs(form: Form, observations: np.ndarray) -> np.ndarray:
    """Returns the last layer's outputs [B, A], float32.

    Args:
      form: The policy.
      observations: Raw observations, float [B, ...] or pixels uint8 [B, C, H, W].
    """
    x = observations if form.network.image else normalized(form, observations)
    values = {acting_path.OBSERVATION: x}
    for name, module, sources in form.network.steps():
        inputs = [values[source] for source in sources]
        if isinstance(module, acting_layers.WITH_WEIGHTS):
            values[name] = _layer(form, name, module, inputs[0])
        else:
            values[name] = without_weights(module, inputs)
    last = values[name]
    if form.maps is not None and acting_path.OUTPUT in form.maps:
        levels = to_levels(last, form.maps[acting_path.OUTPUT], form.bits[acting_path.OUTPUT])
        last = levels.astype(np.float32) * form.maps[acting_path.OUTPUT].delta
    return last


def actions(form: Form, found: np.ndarray) -> np.ndarray:
    """Returns the actions for outputs [B, A], in float32 operations."""
    network = form.network
    if network.head == "clip":
        assert network.low is not None and network.high is not None
        above = np.where(found > network.low, found, network.low)
        return np.where(above < network.high, above, network.high).astype(np.float32)
    if network.head == "scale":
        assert network.low is not None and network.high is not None
        return network.low + (_F(0.5) * (found + _F(1))) * (network.high - network.low)
    return acting_path.to_actions(network, found)


def to_levels(x: np.ndarray, affine: quantization.AffineMap, bits: int) -> np.ndarray:
    """Returns q - z for numbers, int32 of the same shape; NaN counts as the smallest."""
    zero = int(affine.zero_point)
    steps = np.rint(float32.clamp(x / affine.delta, -FAR, FAR)).astype(np.int32)
    return np.clip(steps + zero, 0, 2**bits - 1) - zero


def _layer(
    form: Form, name: str, module: nn.Linear | nn.Conv2d, x: np.ndarray
) -> np.ndarray:
    """Returns a layer's output [B, ...], float32."""
    weight, bias = form.weights[name], form.bias(name)
    pixels = x.dtype == np.uint8
    if not isinstance(weight, quantization.QuantizedTensor):
        floats = x.astype(np.float32) / _F(acting_path.PIXEL_LEVELS) if pixels else x
        matrix = weight.astype(np.float32).reshape(len(weight), -1)
        if isinstance(module, nn.Conv2d):
            return _of_patches(module, floats, lambda rows: rows @ matrix.T + bias)
        return floats @ matrix.T + bias
    if pixels:
        levels = x.astype(np.int32)
        scale = np.full(len(x), 1 / _F(acting_path.PIXEL_LEVELS), np.float32)
    elif form.maps is not None:
        levels = to_levels(x, form.maps[name], form.bits[name])
        scale = np.full(len(x), form.maps[name].delta, np.float32)
    else:
        unsigned = form.not_negative(name) and weight.scale.ndim == 1
        levels, scale = reference.quantize_activations(x, unsigned)
    values = weight.values.reshape(len(weight.values), -1).astype(np.float64)
    zero = np.asarray(weight.zero_point, np.float64).reshape(-1, 1)
    if isinstance(module, nn.Conv2d):
        return _of_patches(
            module, levels,
            lambda rows: _product(rows, np.repeat(scale, len(rows) // len(scale)), values - zero,
                                  weight.scale, bias),
        )
    return _product(levels, scale, values - zero, weight.scale, bias)


def _product(
    levels: np.ndarray, x_scale: np.ndarray, values: np.ndarray, scale: np.ndarray,
    bias: np.ndarray,
) -> np.ndarray:
    """Returns the reals that products of integers stand for, float32 [rows, outputs].

    float64 holds the sums exactly.
    """
    if scale.ndim == 1:
        sums = (levels.astype(np.float64) @ values.T).astype(np.float32)
        return sums * (scale * x_scale[:, None]) + bias
    total = np.zeros((len(levels), len(values)), np.float32)
    for group in range(scale.shape[1]):
        columns = slice(group * quantization.INT4_GROUP, (group + 1) * quantization.INT4_GROUP)
        sums = (levels[:, columns].astype(np.float64) @ values[:, columns].T).astype(np.float32)
        total = total + sums * scale[:, group]
    return total * x_scale[:, None] + bias


def _of_patches(
    module: nn.Conv2d, x: np.ndarray, product: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Returns a convolution's output [B, C, H, W] by the products of its patches."""
    (up, down), (left, right) = padding(module)
    kernel, stride, dilation = module.kernel_size, module.stride, module.dilation
    x = np.pad(x, ((0, 0), (0, 0), (up, down), (left, right)))
    reach = [dilation[axis] * (kernel[axis] - 1) + 1 for axis in (0, 1)]
    windows = np.lib.stride_tricks.sliding_window_view(
        x, tuple(reach), axis=(2, 3)  # type: ignore[call-overload]  # Stubs lack tuples here.
    )[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    batch, _, height, width, *_ = windows.shape
    rows = windows.transpose(0, 2, 3, 1, 4, 5).reshape(batch * height * width, -1)
    found = product(np.ascontiguousarray(rows))
    return found.reshape(batch, height, width, -1).transpose(0, 3, 1, 2)


def padding(module: nn.Conv2d) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the zeros before and behind both axes of an image."""
    if isinstance(module.padding, str):
        if module.padding == "valid":
            return (0, 0), (0, 0)
        totals = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        (up, down), (left, right) = ((total // 2, total - total // 2) for total in totals)
        return (up, down), (left, right)
    vertical, horizontal = module.padding
    return (vertical, vertical), (horizontal, horizontal)


def without_weights(module: nn.Module, inputs: list[np.ndarray]) -> np.ndarray:
    """Returns the output of a layer without products of weights, in float32 operations."""
    x = inputs[0]
    function = float32.of_module(module)
    if function is not None:
        return function(x)
    if isinstance(module, nn.Flatten):
        return x.reshape(len(x), -1)
    if isinstance(module, nn.LayerNorm):
        return _layer_norm(module, x)
    if isinstance(module, acting_layers.Part):
        part = x[:, module.start : module.end] / _F(module.divisor)
        return part.reshape(len(x), *module.shape)
    if isinstance(module, acting_layers.OneHot):
        return (x[:, module.columns.numpy()] == module.values.numpy()).astype(np.float32)
    if isinstance(module, acting_layers.Scaled):
        return x * _F(module.factor) + _F(module.summand)
    if isinstance(module, acting_layers.QuantileMean):
        parts = x.reshape(len(x), -1, module.actions)
        return _sum(parts) / _F(parts.shape[1])
    if isinstance(module, acting_layers.Concatenate):
        return np.concatenate(inputs, axis=1)
    if isinstance(module, acting_layers.Add):
        return inputs[0] + inputs[1]
    if isinstance(module, acting_layers.Multiply):
        return inputs[0] * inputs[1]
    assert isinstance(module, acting_layers.Masked), type(module)
    return x + (inputs[1] - _F(1)) * _F(module.fall)


def _sum(x: np.ndarray) -> np.ndarray:
    """Returns the sum over axis 1, one number after the other: numpy's own adds in pairs."""
    total = np.zeros_like(x[:, 0])
    for index in range(x.shape[1]):
        total = total + x[:, index]
    return total


def _layer_norm(module: nn.LayerNorm, x: np.ndarray) -> np.ndarray:
    count = _F(x.shape[1])
    centred = x - (_sum(x) / count)[:, None]
    variance = _sum(centred * centred) / count
    found = centred / np.sqrt(variance + _F(module.eps))[:, None]
    if module.weight is not None:
        found = found * module.weight.detach().numpy()
    return found if module.bias is None else found + module.bias.detach().numpy()
