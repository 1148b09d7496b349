"""The learner's policy in Sonnet, the twin of `torch_policy`. Imports no torch."""

from collections.abc import Callable
from collections.abc import Mapping
import functools
from typing import Any

import numpy as np
import sonnet as snt
import tensorflow as tf

from actorQ.policy import architecture as architecture_lib
from actorQ.policy import sonnet_layers
from actorQ.policy import sonnet_quantizers

# Acme's D4PG initialisation is uniform with a variance of 0.333 over the fan-out. The head starts
# near zero, so that first actions are near the middle of their range. Many units behind few
# observations are almost linear at first. Q-values are not linear, so that Q-networks begin with
# Sonnet's own weights.
_UNIFORM = {"scale": 0.333, "mode": "fan_out", "distribution": "uniform"}
_NEAR_ZERO = {"scale": 1e-4}


def _initialiser(
    architecture: architecture_lib.PolicyArchitecture, layer: str
) -> snt.initializers.Initializer | None:
    """Returns the initialiser of a layer; None selects Sonnet's own, of variance 1 / fan-in."""
    if architecture.head == architecture_lib.Q_VALUES_HEAD:
        return None
    kind = _NEAR_ZERO if layer == architecture_lib.HEAD else _UNIFORM
    return snt.initializers.VarianceScaling(**kind)


@tf.custom_gradient
def _inverting_tanh(inputs: tf.Tensor) -> Any:
    """Computes tanh with inverted gradients (Hausknecht and Stone 2016, eq. 11).

    tanh's own derivative, 1 - action^2, almost vanishes at both bounds: actions that reach a bound
    stay there, whatever the critic says later. Here, the factor of a gradient is the share of the
    range that is left on the side to which a descent moves the action. It is 0 at that bound and 1
    at the other. The paper's actions have no tanh, and its factor is negative where they leave the
    range; a tanh cannot leave it.
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
        quantizer: sonnet_quantizers.Quantizer | None = None,
    ):
        """Builds the layers and creates their variables.

        Sonnet's initialisers draw new numbers for every variable, from TensorFlow's global seed
        (Keras 2.15's unseeded ones repeat the same numbers).

        Args:
          architecture: Layers of the policy.
          name: Name of the module.
          precision: Precision of the products in hidden layers and convolutions, as in
            `sonnet_layers.linear`. All variables are float32, and so is the head, which is too
            small to gain.
          invert_gradients: Whether the gradients of actions pass `_inverting_tanh`.
          quantizer: Quantizes weights and inputs of all layers as actors do; None: nothing does.
            With it, all products are in plain float32.
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
        self._quantizer: sonnet_quantizers.Quantizer | None = None  # It needs the variables.
        dtype = np.uint8 if architecture.pixels else np.float32
        self._apply(tf.zeros((1, *architecture.observation_shape), dtype), sonnet_layers.FLOAT32)
        self._precision, self._quantizer = precision, quantizer

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        """Computes the policy's output; see the class."""
        return self._apply(observation, self._precision)

    def _apply(self, observation: tf.Tensor, precision: str) -> tf.Tensor:
        hidden = observation
        if self._convolutions:
            hidden = tf.cast(hidden, tf.float32) / 255.0
            for index, layer in enumerate(self._convolutions):
                if self._quantizer is not None:
                    hidden = self._quantizer.convolution(layer, hidden, pixels=index == 0)
                else:
                    hidden = sonnet_layers.convolution(layer, hidden, precision)
                hidden = tf.nn.relu(hidden)
            hidden = snt.flatten(hidden)
        for index, layer in enumerate(self._linears[:-1]):
            hidden = tf.tanh(self._linear(layer, hidden, precision, index))
        output = self._linear(self._linears[-1], hidden, sonnet_layers.FLOAT32, len(self._linears))
        if self.architecture.head == architecture_lib.TANH_HEAD:
            output = self._bound(output)
        return output

    def _linear(
        self, layer: snt.Linear, inputs: tf.Tensor, precision: str, index: int
    ) -> tf.Tensor:
        """Applies the linear layer with this index; the first one may be behind a ReLU."""
        if self._quantizer is None:
            return sonnet_layers.linear(layer, inputs, precision)
        return self._quantizer.linear(layer, inputs, self.architecture.pixels and index == 0)

    def compile_for(self, batch: int) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns the policy as a compiled function of observations [batch, ...].

        It computes in float32, with the quantizer if there is one, at any precision of the learner.
        Evaluations measure that policy. For few observations, casting the weights would cost more
        than it saves.
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
        """Sets the weights from arrays with the wire's names and layouts, which are torch's."""
        for layer in (*self._convolutions, *self._linears):
            weight = weights[f"{layer.name}.weight"]
            layer.w.assign(weight.transpose(2, 3, 1, 0) if weight.ndim == 4 else weight.T)
            layer.b.assign(weights[f"{layer.name}.bias"])
