"""Adam in one pass over memory, with the clipping of gradients by their global norm before it.

Learner's process only; imports TensorFlow, no torch.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import sonnet as snt
import tensorflow as tf

from actorQ.learner import step_sizes


class Adam(snt.Optimizer):
    """Does what `tf.clip_by_global_norm` and `snt.optimizers.Adam` do, three times as fast.

    Sonnet's Adam is a dozen operations for each variable, and each operation walks through memory.
    At 3x2048 it takes a third as long as the network's arithmetic. TensorFlow's own
    `ResourceApplyAdam` walks through memory once. Gradients are scaled only when their norm exceeds
    the limit. Milliseconds on one core, norm included:

        weights        Sonnet   this class   Sonnet's formula under XLA
        8.4 million      24.9          7.9                         10.7
        0.2 million      0.57         0.38                         0.41

    The variables have the names of Sonnet's, so checkpoints of either fit the other.

    Attributes:
      step: Updates done, int64.
      m: First moments, one for each parameter.
      v: Second moments, one for each parameter.
    """

    def __init__(
        self,
        learning_rate: float,
        max_norm: float | None = None,
        record_norm: Callable[[tf.Tensor], Any] | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        decay_steps: int = 0,
        name: str = "adam",
    ):
        """Makes an optimizer for parameters that it will see at the first `apply`.

        Args:
          learning_rate: Step size, alpha in the paper (arXiv:1412.6980).
          max_norm: Largest global norm of the gradients; None: no clipping.
          record_norm: Receives the global norm before clipping, in every `apply`.
          beta1: Decay of the first moments.
          beta2: Decay of the second moments.
          epsilon: Is added to the root of the bias-corrected second moment.
          decay_steps: Updates over which the step size falls, see `step_sizes`.
          name: Name of the module.
        """
        super().__init__(name=name)
        self._learning_rate = learning_rate
        self._max_norm = max_norm
        self._record_norm = record_norm
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon
        self._decay_steps = decay_steps
        self.step = tf.Variable(0, trainable=False, name="t", dtype=tf.int64)
        self.m: list[tf.Variable] = []
        self.v: list[tf.Variable] = []

    def initialize(self, parameters: Sequence[tf.Variable]) -> None:
        """Makes the moments unless they exist; afterwards the state can be checkpointed."""
        if self.m:
            return
        for moments in (self.m, self.v):
            moments.extend(tf.Variable(tf.zeros_like(p), trainable=False) for p in parameters)

    def apply(
        self, updates: Sequence[tf.Tensor | None], parameters: Sequence[tf.Variable]
    ) -> None:
        """Updates the parameters.

        Args:
          updates: Gradients, dense float32; None leaves a parameter as it is.
          parameters: Float32 variables, in the same order at every call.
        """
        with tf.init_scope():
            self.initialize(parameters)
        slots = [
            slot for slot in zip(updates, parameters, self.m, self.v, strict=True)
            if slot[0] is not None
        ]
        gradients = self._clip([slot[0] for slot in slots])

        # ResourceApplyAdam moves a parameter by alpha sqrt(1 - b2^t) / (1 - b1^t) times
        # m / (sqrt(v) + e), which is the paper's step with epsilon = e / sqrt(1 - b2^t).
        step = tf.cast(self.step.assign_add(1), tf.float32)
        learning_rate = self._learning_rate * step_sizes.share(
            step - 1.0, self._decay_steps, tf.maximum
        )
        beta1_power = tf.pow(self._beta1, step)
        beta2_power = tf.pow(self._beta2, step)
        epsilon = self._epsilon * tf.sqrt(1.0 - beta2_power)
        for gradient, (_, parameter, m, v) in zip(gradients, slots, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=parameter.handle, m=m.handle, v=v.handle, grad=gradient,
                beta1_power=beta1_power, beta2_power=beta2_power, lr=learning_rate,
                beta1=self._beta1, beta2=self._beta2, epsilon=epsilon,
            )

    def _clip(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        if self._max_norm is None and self._record_norm is None:
            return gradients
        norm = tf.linalg.global_norm(gradients)
        if self._record_norm is not None:
            self._record_norm(norm)
        if self._max_norm is None:
            return gradients
        # A norm of NaN is not below the limit: scaling then spreads it, as it should.
        return tf.cond(
            norm <= self._max_norm,
            lambda: gradients,
            lambda: [gradient * (self._max_norm / norm) for gradient in gradients],
        )
