"""Layers of the learner whose matrix products run in float32 or in bfloat16.

In bfloat16 both operands of a product are rounded to it, and so are its result and, on the way
back, the gradients that enter and leave the product: forward, input gradient and weight gradient
all run on a processor's bfloat16 units. Everything else stays float32: variables, bias,
activation, normalization, losses. No loss scaling is needed, as bfloat16 has float32's exponent.

Imports TensorFlow, no torch.
"""

from collections.abc import Sequence

import sonnet as snt
import tensorflow as tf

FLOAT32 = "float32"
BFLOAT16 = "bfloat16"


def linear(layer: snt.Linear, inputs: tf.Tensor, precision: str) -> tf.Tensor:
    """Applies a linear layer.

    Args:
      layer: float32; must have its variables already if `precision` is bfloat16.
      inputs: float32 [B, inputs].
      precision: FLOAT32 or BFLOAT16, of the matrix product.

    Returns:
      float32 [B, outputs].
    """
    if precision == FLOAT32:
        return layer(inputs)
    product = tf.matmul(tf.cast(inputs, tf.bfloat16), tf.cast(layer.w, tf.bfloat16))
    return tf.cast(product, tf.float32) + layer.b


def convolution(layer: snt.Conv2D, inputs: tf.Tensor, precision: str) -> tf.Tensor:
    """Applies a convolution without padding.

    Args:
      layer: float32; must have its variables already if `precision` is bfloat16.
      inputs: float32 [B, H, W, C].
      precision: FLOAT32 or BFLOAT16, of the products.

    Returns:
      float32 [B, H', W', filters].
    """
    if precision == FLOAT32:
        return layer(inputs)
    product = tf.nn.conv2d(
        tf.cast(inputs, tf.bfloat16), tf.cast(layer.w, tf.bfloat16), layer.stride, "VALID"
    )
    return tf.cast(product, tf.float32) + layer.b


class LayerNormTorso(snt.Module):
    """Hidden layers of a critic: layer norm and tanh after the first, elu after the others.

    The function, and the initialization, of Acme's `LayerNormMLP(sizes, activate_final=True)`,
    whose products know no other precision than that of its variables.
    """

    def __init__(self, sizes: Sequence[int], input_size: int, precision: str = FLOAT32):
        """Builds the layers and creates their variables.

        Args:
          sizes: units of the layers.
          input_size: numbers in one input.
          precision: FLOAT32 or BFLOAT16, of the matrix products.
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
        self._precision = FLOAT32  # The first call makes the variables.
        self(tf.zeros((1, input_size)))
        self._precision = precision

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """Maps float32 [B, input_size] to float32 [B, sizes[-1]]."""
        hidden = tf.tanh(self._norm(linear(self._first, inputs, self._precision)))
        for layer in self._rest:
            hidden = tf.nn.elu(linear(layer, hidden, self._precision))
        return hidden
