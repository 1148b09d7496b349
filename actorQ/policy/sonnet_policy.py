"""The Sonnet policy of the learner, twin of the torch one in `policies`. Imports no torch."""

from collections.abc import Callable
from collections.abc import Mapping
import functools
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf

from actorQ.policy import architecture as architecture_lib
from actorQ.policy import sonnet_layers

# Acme's D4PG initialisation: uniform, variance 0.333 over the fan-out; the head starts near zero,
# so that first actions are near the middle of their range. Many units behind few observations are
# all but linear at first then, which Q-values are not: they begin with Sonnet's own weights.
_UNIFORM = {"scale": 0.333, "mode": "fan_out", "distribution": "uniform"}
_NEAR_ZERO = {"scale": 1e-4}


def _initialiser(
    architecture: architecture_lib.PolicyArchitecture, layer: str
) -> snt.initializers.Initializer | None:
    """Returns what draws a layer's first weights; None: Sonnet's own, of variance 1 / fan-in."""
    if architecture.head == architecture_lib.Q_VALUES_HEAD:
        return None
    kind = _NEAR_ZERO if layer == architecture_lib.HEAD else _UNIFORM
    return snt.initializers.VarianceScaling(**kind)


@tf.custom_gradient
def _inverting_tanh(inputs: tf.Tensor) -> Any:
    """Computes tanh, whose gradients are inverted (Hausknecht and Stone 2016, eq. 11).

    tanh's own derivative, 1 - action^2, is next to nothing at both bounds: actions that once were
    pushed there are stuck, whatever the critic says later. Here a gradient is multiplied by what
    is left, as a share of the range, on the side that descending it moves the action to: nothing
    at the bound itself, all at the other one. The paper's actions have no tanh, and where they
    leave the range its factor is negative; these cannot leave it.
    """
    action = tf.tanh(inputs)
    return action, lambda gradient: gradient * (1.0 + tf.sign(gradient) * action) / 2.0


class Policy(snt.Module):
    """The function of `architecture.PolicyArchitecture`, without noise.

    Input: observations float32 [B, D], or pixels uint8 [B, H, W, C].
    Output: float32 [B, num_outputs]: actions in [-1, 1], or Q-values.
    """

    def __init__(
        self,
        architecture: architecture_lib.PolicyArchitecture,
        name: str = "policy",
        precision: str = sonnet_layers.FLOAT32,
        invert_gradients: bool = False,
    ):
        """Builds the layers and creates their variables.

        Sonnet's initialisers draw anew for every variable (Keras 2.15's unseeded ones repeat the
        same numbers), from TensorFlow's global seed.

        Args:
          architecture: of the policy.
          name: of the module.
          precision: of the products in hidden layers and convolutions, as in `layers.linear`.
            The head, too small to gain, and all variables are float32 in any case.
          invert_gradients: of actions, on their way back through the tanh: `_inverting_tanh`.
        """
        super().__init__(name=name)
        self.architecture = architecture
        self._convolutions = [
            snt.Conv2D(filters, kernel, stride, padding="VALID", name=layer)
            for layer, _, filters, kernel, stride in architecture.convolutions
        ]
        self._linears = [
            snt.Linear(outputs, name=layer, w_init=_initialiser(architecture, layer))
            for layer, _, outputs in architecture.linears
        ]
        self._bound = _inverting_tanh if invert_gradients else tf.tanh
        dtype = np.uint8 if architecture.pixels else np.float32
        self._apply(tf.zeros((1, *architecture.observation_shape), dtype), sonnet_layers.FLOAT32)
        self._precision = precision

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        """See the class."""
        return self._apply(observation, self._precision)

    def _apply(self, observation: tf.Tensor, precision: str) -> tf.Tensor:
        hidden = observation
        if self._convolutions:
            hidden = tf.cast(hidden, tf.float32) / 255.0
            for layer in self._convolutions:
                hidden = tf.nn.relu(sonnet_layers.convolution(layer, hidden, precision))
            hidden = snt.flatten(hidden)
        for layer in self._linears[:-1]:
            hidden = tf.tanh(sonnet_layers.linear(layer, hidden, precision))
        output = self._linears[-1](hidden)
        if self.architecture.head == architecture_lib.TANH_HEAD:
            output = self._bound(output)
        return output

    def compile_for(self, batch: int) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns the policy as a compiled function of observations [batch, ...].

        In float32 at any precision of the learner: that is what is evaluated, and for few
        observations casting the weights would cost more than it saves.
        """
        architecture = self.architecture
        dtype = tf.uint8 if architecture.pixels else tf.float32
        signature = tf.TensorSpec((batch, *architecture.observation_shape), dtype)
        apply = functools.partial(self._apply, precision=sonnet_layers.FLOAT32)
        return tf.function(apply, input_signature=[signature], autograph=False)

    def named_variables(self) -> dict[str, tf.Variable]:
        """Returns `layer/w` and `layer/b` of every layer, first to last."""
        variables = {}
        for layer in (*self._convolutions, *self._linears):
            variables[f"{layer.name}/w"] = layer.w
            variables[f"{layer.name}/b"] = layer.b
        return variables

    def assign(self, weights: Mapping[str, np.ndarray]) -> None:
        """Sets the weights from arrays in the wire's (torch's) names and layouts."""
        for layer in (*self._convolutions, *self._linears):
            weight = weights[f"{layer.name}.weight"]
            layer.w.assign(weight.transpose(2, 3, 1, 0) if weight.ndim == 4 else weight.T)
            layer.b.assign(weights[f"{layer.name}.bias"])
