"""Layers of the learner whose matrix products run in float32, plain or padded, or in bfloat16.

With bfloat16, the operands and the result of a product are rounded to it, and so are the gradients
that enter and leave the product. Forward pass, input gradient and weight gradient then run on a
processor's bfloat16 units. Variables, bias, activation, normalization and losses stay float32. No
loss scaling is needed, because bfloat16 has float32's exponent.

Rows of 1,024 or 2,048 floats lie a multiple of 4,096 bytes apart. A column of weights then finds
room in few places of a small first-level cache only. Padding copies the weights for each product
and adds some zeros to each row. Products then take up to half the time on processors with AVX2
alone. `learner.device` measures which variant is faster.

Imports TensorFlow, no torch.
"""

from collections.abc import Sequence

import sonnet as snt
import tensorflow as tf

FLOAT32 = "float32"
FLOAT32_PADDED = "float32, padded"
BFLOAT16 = "bfloat16"

_PAGE = 4096  # Bytes. Addresses that differ by a multiple share a place in the cache.
_PADDING = 16  # Columns: one cache line.
_FLOAT_BYTES = 4
_SMALL = 256  # Layers with fewer inputs gain nothing from padding.


def linear(layer: snt.Linear, inputs: tf.Tensor, precision: str) -> tf.Tensor:
    """Applies a linear layer.

    Args:
      layer: float32 layer, whose variables must exist if `precision` is bfloat16.
      inputs: float32 [B, inputs].
      precision: Precision of the matrix product: FLOAT32, FLOAT32_PADDED or BFLOAT16.

    Returns:
      float32 [B, outputs].
    """
    if precision == FLOAT32_PADDED and inputs.shape[-1] >= _SMALL and aligned(layer.output_size):
        return padded_product(inputs, layer.w) + layer.b
    if precision != BFLOAT16:
        return layer(inputs)
    product = tf.matmul(tf.cast(inputs, tf.bfloat16), tf.cast(layer.w, tf.bfloat16))
    return tf.cast(product, tf.float32) + layer.b


def aligned(columns: int) -> bool:
    """Returns whether rows of so many floats gain from padding."""
    return columns * _FLOAT_BYTES % _PAGE == 0


def padded_product(inputs: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Multiplies float32 [B, K] by [K, N] and pads the rows of [K, N], also for gradients."""
    padded = tf.pad(weights, ((0, 0), (0, _PADDING)))
    return tf.matmul(inputs, padded)[:, : weights.shape[1]]


def convolution(layer: snt.Conv2D, inputs: tf.Tensor, precision: str) -> tf.Tensor:
    """Applies a convolution without padding.

    Args:
      layer: float32 layer, whose variables must exist if `precision` is bfloat16.
      inputs: float32 [B, H, W, C].
      precision: Precision of the products, as in `linear`. There is nothing to pad.

    Returns:
      float32 [B, H', W', filters].
    """
    if precision != BFLOAT16:
        return layer(inputs)
    product = tf.nn.conv2d(
        tf.cast(inputs, tf.bfloat16), tf.cast(layer.w, tf.bfloat16), layer.stride, "VALID"
    )
    return tf.cast(product, tf.float32) + layer.b


class LayerNormTorso(snt.Module):
    """Hidden layers of a critic: layer norm and tanh after the first, elu after the others.

    Function and initialization equal those of Acme's `LayerNormMLP(sizes, activate_final=True)`.
    Acme's products always have the precision of the variables.
    """

    def __init__(self, sizes: Sequence[int], input_size: int, precision: str = FLOAT32):
        """Builds the layers and creates their variables.

        Args:
          sizes: Units of the layers.
          input_size: Numbers in one input.
          precision: Precision of the matrix products, as in `linear`.
        """
        super().__init__(name="torso")
        w_init = snt.initializers.VarianceScaling(
            scale=0.333, mode="fan_out", distribution="uniform"
        )
        self._first, *self._rest = [
            snt.Linear(units, w_init=w_init, name=f"linear_{index}")
            for index, units in enumerate(sizes)
        ]
        self._norm = snt.LayerNorm(axis=slice(1, None), create_scale=True, create_offset=True)
        self._precision = FLOAT32  # The first call creates the variables.
        self(tf.zeros((1, input_size)))
        self._precision = precision

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """Maps float32 [B, input_size] to float32 [B, sizes[-1]]."""
        hidden = tf.tanh(self._norm(linear(self._first, inputs, self._precision)))
        for layer in self._rest:
            hidden = tf.nn.elu(linear(layer, hidden, self._precision))
        return hidden
