"""The policy at every precision in numpy: the arithmetic of each scheme, step by step.

This is slow and plain, and every inference backend is tested against it. `quantization` defines the
weights; this module defines the activations:

* float32, float16: The arithmetic is fp32, on weights that are rounded to that type.
* int8, int4: Products are integers, and sums are int32. A layer's inputs are quantized on the fly,
  with one scale for each observation: s = max |x| / 127 for signed integers. Int8 layers whose
  inputs cannot be negative use unsigned integers: s = 1/255 for pixels, s = max x / 255 behind a
  ReLU. With int8 weights (one scale per output channel w):

      y = float(sum q_w q_x) * (s_w s_x) + bias

  With int4 weights (one scale for every group g of 64 inputs):

      y = (sum over g of float(sum q_w q_x) * s_g) * s_x + bias

* int8 in torch's dynamic quantization (`Activations.AFFINE_7_BITS`): Inputs are affine, to 7 of 8
  bits, with one scale and zero point for the whole batch. No scale is below 6.1e-5, so that inputs
  whose whole range is below 0.0077 have fewer levels, and below 3e-5 none. Convolutions compute in
  fp32.

Numbers round to the nearest, ties to even, and float arithmetic is float32. Imports no framework.
"""

from collections.abc import Callable
from collections.abc import Mapping
import enum

import numpy as np

from actorQ.policy import architecture as architecture_lib
from actorQ.policy import model_update
from actorQ.policy import quantization

SMALLEST = np.float32(1e-30)  # Largest magnitudes below this quantize to zeros.
TORCH_SMALLEST_SCALE = 6.1e-5  # SMALL_SCALE_THRESHOLD of ATen's quantization.

Watch = Callable[[str, np.ndarray], None]


class Activations(enum.Enum):
    """Names the ways in which inputs of int8 and int4 layers are quantized."""

    SYMMETRIC = enum.auto()
    AFFINE_7_BITS = enum.auto()


def forward(
    architecture: architecture_lib.PolicyArchitecture,
    tensors: Mapping[str, model_update.Tensor],
    observations: np.ndarray,
    activations: Activations = Activations.SYMMETRIC,
    together: int | None = None,
    watch: Watch = lambda layer, numbers: None,
) -> np.ndarray:
    """Computes the policy, without noise.

    Args:
      architecture: Layers of the policy.
      tensors: Weights from `forms.expand`. Their types decide how each layer computes.
      observations: float32 [B, D], or pixels uint8 [B, H, W, C].
      activations: Decides how the inputs of quantized layers are quantized.
      together: Observations in one of torch's calls, which share a scale and zero point there. B
        is a multiple of it; None: B.
      watch: Is called with each layer's name and its output before tanh or ReLU, [B, ...].

    Returns:
      float32 [B, num_outputs].
    """
    hidden = observations
    for name, *_, kernel, stride in architecture.convolutions:
        weight, bias = tensors[f"{name}.weight"], _bias(tensors, name)
        hidden = _convolution(hidden, weight, bias, kernel, stride, activations)
        watch(name, hidden)
        hidden = np.maximum(hidden, 0)
    behind_relu = architecture.pixels
    hidden = np.ascontiguousarray(hidden.reshape(len(hidden), -1), np.float32)
    for name, _, _ in architecture.linears:
        weight, bias = tensors[f"{name}.weight"], _bias(tensors, name)
        hidden = _linear(hidden, weight, bias, behind_relu, activations, together or len(hidden))
        watch(name, hidden)
        if name != architecture_lib.HEAD or architecture.head == architecture_lib.TANH_HEAD:
            hidden = tanh(hidden)
        behind_relu = False
    return hidden


def tanh(x: np.ndarray) -> np.ndarray:
    """Returns tanh within 1.5e-7, in float32 operations that all processors round alike.

    The formulas are, with e^r by Taylor's series:

        tanh |x| = 1 - 2 / (e^{2|x|} + 1)
        e^y = 2^n e^r with |r| <= ln(2) / 2
    """
    f = np.float32
    y = np.minimum(f(2) * np.abs(x), f(20))
    n = np.rint(y * f(1.44269504))
    r = (y - n * f(0.693359375)) - n * f(-2.12194440e-4)
    e = np.full_like(r, f(1 / 720))
    for coefficient in (1 / 120, 1 / 24, 1 / 6, 1 / 2, 1, 1):
        e = e * r + f(coefficient)
    power = np.ldexp(f(1), n.astype(np.int32)).astype(f)
    return np.copysign(f(1) - f(2) / (e * power + f(1)), x)


def quantize_activations(x: np.ndarray, unsigned: bool) -> tuple[np.ndarray, np.ndarray]:
    """Quantizes each observation with a scale of its own.

    Args:
      x: Finite float32 [B, ...].
      unsigned: Whether to use 0 to 255 (no number is negative) instead of -127 to 127.

    Returns:
      Integers, int32 in the shape of x, and scales, float32 [B].
    """
    levels = np.float32(255 if unsigned else 127)
    rows = x.reshape(len(x), -1)
    largest = np.abs(rows).max(axis=1, initial=0).astype(np.float32)
    small = largest < SMALLEST
    largest[small] = levels
    factors = levels / largest
    integers = np.rint(rows * factors[:, None]).astype(np.int32)
    integers[small] = 0
    return integers.reshape(x.shape), largest / levels


def _bias(tensors: Mapping[str, model_update.Tensor], layer: str) -> np.ndarray:
    return model_update.to_float32(tensors[f"{layer}.bias"])


def _linear(
    x: np.ndarray,
    weight: model_update.Tensor,
    bias: np.ndarray,
    nonnegative: bool,
    activations: Activations,
    together: int,
) -> np.ndarray:
    if not isinstance(weight, quantization.QuantizedTensor):
        return x @ model_update.to_float32(weight).T + bias
    if activations is Activations.AFFINE_7_BITS:
        return _affine_product(x, weight, bias, together)
    integers, scale = quantize_activations(x, nonnegative and weight.scale.ndim == 1)
    return _integer_product(integers, scale, weight, bias)


def _integer_product(
    x: np.ndarray, x_scale: np.ndarray, weight: quantization.QuantizedTensor, bias: np.ndarray
) -> np.ndarray:
    # Sums of products of integers are exact in float64, which numpy multiplies much faster.
    x, values = x.astype(np.float64), weight.values.reshape(len(weight.values), -1).astype(float)
    if weight.scale.ndim == 1:
        sums = (x @ values.T).astype(np.float32)
        return sums * (weight.scale * x_scale[:, None]) + bias
    total = np.zeros((len(x), len(values)), np.float32)
    for group in range(weight.scale.shape[1]):
        columns = slice(group * quantization.INT4_GROUP, (group + 1) * quantization.INT4_GROUP)
        sums = (x[:, columns] @ values[:, columns].T).astype(np.float32)
        total = total + sums * weight.scale[:, group]
    return total * x_scale[:, None] + bias


def _affine_product(
    x: np.ndarray, weight: quantization.QuantizedTensor, bias: np.ndarray, together: int
) -> np.ndarray:
    calls = x.reshape(len(x) // together, -1).astype(np.float64)
    low, high = calls.min(axis=1, initial=0.0), calls.max(axis=1, initial=0.0)
    step = (high - low) / 127
    step[step == 0.0] = 1.0
    zero_point = np.repeat(np.clip(np.rint(-low / step), 0, 127), together)[:, None]
    scale = np.repeat(np.maximum(step, TORCH_SMALLEST_SCALE), together).astype(np.float32)[:, None]
    integers = np.clip(np.rint(x / scale) + zero_point, 0, 127) - zero_point
    sums = integers @ weight.values.astype(np.float64).T
    return (sums * (weight.scale * scale) + bias).astype(np.float32)


def _convolution(
    x: np.ndarray,
    weight: model_update.Tensor,
    bias: np.ndarray,
    kernel: int,
    stride: int,
    activations: Activations,
) -> np.ndarray:
    """Convolves [B, H, W, C] with weights [out, C, kernel, kernel] without padding."""
    pixels = x.dtype == np.uint8
    if (
        isinstance(weight, quantization.QuantizedTensor)
        and activations is Activations.SYMMETRIC
    ):
        scale = np.full(len(x), 1 / np.float32(255), np.float32)
        integers = x.astype(np.int32)
        if not pixels:
            integers, scale = quantize_activations(x, unsigned=True)
        patches = _patches(integers, kernel, stride)
        ordered = weight._replace(values=weight.values.transpose(0, 2, 3, 1))
        count = patches.shape[1] * patches.shape[2]
        flat = patches.reshape(len(x) * count, -1)
        result = _integer_product(flat, np.repeat(scale, count), ordered, bias)
        return result.reshape(*patches.shape[:3], -1)
    floats = x.astype(np.float32) / np.float32(255) if pixels else x
    matrix = model_update.to_float32(weight).transpose(0, 2, 3, 1).reshape(len(bias), -1)
    return _patches(floats, kernel, stride) @ matrix.T + bias


def _patches(x: np.ndarray, kernel: int, stride: int) -> np.ndarray:
    """Returns [B, height, width, kernel * kernel * C] for [B, H, W, C]."""
    windows = np.lib.stride_tricks.sliding_window_view(
        x, (kernel, kernel), axis=(1, 2)  # type: ignore[call-overload]  # Stubs lack tuples here.
    )
    windows = windows[:, ::stride, ::stride].transpose(0, 1, 2, 4, 5, 3)
    return np.ascontiguousarray(windows).reshape(*windows.shape[:3], -1)
