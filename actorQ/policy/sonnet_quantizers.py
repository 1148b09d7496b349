"""The actors' quantizers inside the learner's policy: the same numbers forward, identity backward.

`quantization` and `reference` define the numbers: integers and scales of weights, and of the inputs
of quantized layers. A gradient passes a quantizer unchanged (the straight-through estimator, Bengio
et al. 2013). So the variables stay float32, and the policy that learns is the one that acts.

Imports TensorFlow, no torch.
"""

import dataclasses

import numpy as np
import sonnet as snt
import tensorflow as tf

from actorQ.policy import architecture as architecture_lib
from actorQ.policy import quantization
from actorQ.policy import reference

_TINY = float(np.finfo(np.float32).tiny)
_LARGEST_FLOAT16 = float(np.finfo(np.float16).max)


@dataclasses.dataclass(frozen=True)
class Quantizer:
    """Computes layers with the weights and inputs that actors have.

    Attributes:
      bits: Precision of the actors: 16, 8, 4 or 3.
      activations: How inputs of quantized layers are quantized; None: they stay float32.
    """

    bits: int
    activations: reference.Activations | None

    def linear(self, layer: snt.Linear, inputs: tf.Tensor, nonnegative: bool) -> tf.Tensor:
        """Applies a linear layer.

        Args:
          layer: float32 layer, whose variables exist.
          inputs: float32 [B, inputs].
          nonnegative: Whether no input can be negative.

        Returns:
          float32 [B, outputs].
        """
        in_groups = self.bits < 8 and architecture_lib.computes_in_int4(layer.name, 2)
        inputs = self._inputs(inputs, unsigned=nonnegative and not in_groups)
        return tf.matmul(inputs, self.weights(layer)) + layer.b

    def convolution(self, layer: snt.Conv2D, inputs: tf.Tensor, pixels: bool) -> tf.Tensor:
        """Applies a convolution without padding.

        Args:
          layer: float32 layer, whose variables exist.
          inputs: float32 [B, H, W, C], not negative.
          pixels: Whether they are pixels / 255, which 8 bits hold as they are.

        Returns:
          float32 [B, H', W', filters].
        """
        # torch's convolutions compute in float32.
        if not pixels and self.activations is reference.Activations.SYMMETRIC:
            inputs = self._inputs(inputs, unsigned=True)
        return tf.nn.conv2d(inputs, self.weights(layer), layer.stride, "VALID") + layer.b

    def weights(self, layer: snt.Linear | snt.Conv2D) -> tf.Tensor:
        """Returns a layer's weights as actors compute with them, in the variable's layout."""
        weights = tf.convert_to_tensor(layer.w)
        if self.bits == 16:
            return tf.grad_pass_through(_to_float16)(weights)
        if self.bits < 8 and architecture_lib.computes_in_int4(layer.name, weights.shape.rank):
            levels = quantization.group_levels(self.bits)
            return tf.grad_pass_through(lambda numbers: _to_groups(numbers, levels))(weights)
        return tf.grad_pass_through(_to_int8_channels)(weights)

    def _inputs(self, inputs: tf.Tensor, unsigned: bool) -> tf.Tensor:
        """Returns the numbers that stand for a layer's inputs."""
        if self.activations is None:
            return inputs
        if self.activations is reference.Activations.AFFINE_7_BITS:
            return tf.grad_pass_through(_to_affine)(inputs)
        levels = 255.0 if unsigned else 127.0
        return tf.grad_pass_through(lambda numbers: _to_symmetric(numbers, levels))(inputs)


def make(bits: int, inference_mode: str) -> Quantizer | None:
    """Returns the quantizer of actors; None for those that compute in fp32.

    Args:
      bits: Precision of the actors.
      inference_mode: Their backend, one of `config.INFERENCE_MODES`.
    """
    if bits == 32:
        return None
    activations = {
        "native": reference.Activations.SYMMETRIC,
        "pytorch": reference.Activations.AFFINE_7_BITS,
        "tensorflow": None,
    }[inference_mode]
    return Quantizer(bits, activations if bits <= 8 else None)


def _to_float16(weights: tf.Tensor) -> tf.Tensor:
    """Returns `quantization.to_float16` as float32."""
    clipped = tf.clip_by_value(weights, -_LARGEST_FLOAT16, _LARGEST_FLOAT16)
    return tf.cast(tf.cast(clipped, tf.float16), tf.float32)


def _to_int8_channels(weights: tf.Tensor) -> tf.Tensor:
    """Returns the numbers of `quantization.quantize_int8_channels`; the last axis has channels."""
    axes = list(range(weights.shape.rank - 1))
    scale = tf.reduce_max(tf.abs(weights), axis=axes, keepdims=True) / quantization.INT8_LEVELS
    scale = tf.where(scale < _TINY, 1.0, scale)
    return tf.round(weights / scale) * scale


def _to_groups(weights: tf.Tensor, levels: int) -> tf.Tensor:
    """Returns the numbers of `quantization.quantize_int4_groups`, for weights [inputs, outputs]."""
    inputs, outputs = weights.shape
    groups = quantization.num_groups(inputs)
    padded = tf.pad(weights, ((0, groups * quantization.INT4_GROUP - inputs), (0, 0)))
    grouped = tf.reshape(padded, (groups, quantization.INT4_GROUP, outputs))
    scale = tf.reduce_max(tf.abs(grouped), axis=1, keepdims=True) / levels
    scale = tf.cast(tf.cast(scale, tf.bfloat16), tf.float32)
    scale = tf.where(scale < _TINY, 1.0, scale)
    numbers = tf.round(grouped / scale) * scale
    return tf.reshape(numbers, padded.shape)[:inputs]


def _to_symmetric(inputs: tf.Tensor, levels: float) -> tf.Tensor:
    """Returns the numbers of `reference.quantize_activations`."""
    axes = list(range(1, inputs.shape.rank))
    largest = tf.reduce_max(tf.abs(inputs), axis=axes, keepdims=True)
    small = largest < reference.SMALLEST
    largest = tf.where(small, levels, largest)
    integers = tf.where(small, 0.0, tf.round(inputs * (levels / largest)))
    return integers * (largest / levels)


def _to_affine(inputs: tf.Tensor) -> tf.Tensor:
    """Returns the numbers of torch's inputs, [B, inputs], where it computes one observation."""
    numbers = tf.cast(inputs, tf.float64)
    low = tf.minimum(tf.reduce_min(numbers, axis=1, keepdims=True), 0.0)
    high = tf.maximum(tf.reduce_max(numbers, axis=1, keepdims=True), 0.0)
    step = (high - low) / 127.0
    step = tf.where(step == 0.0, tf.ones_like(step), step)
    zero_point = tf.cast(tf.clip_by_value(tf.round(-low / step), 0.0, 127.0), tf.float32)
    scale = tf.cast(tf.maximum(step, reference.TORCH_SMALLEST_SCALE), tf.float32)
    integers = tf.clip_by_value(tf.round(inputs / scale) + zero_point, 0.0, 127.0) - zero_point
    return integers * scale
