"""The policy that acts and is evaluated as an average over the last learner steps.

Learner's process only; imports TensorFlow, no torch.
"""

from typing import Any

import tensorflow as tf

from actorQ.policy import sonnet_policy

_PERIOD = 5  # Learner steps between two updates, so that they cost small networks little.


def acting(networks: Any) -> sonnet_policy.Policy:
    """Returns the policy of an algorithm's networks that acts: the average if there is one."""
    return networks.average_policy or networks.policy


def existing(networks: Any) -> dict[str, Any]:
    """Returns an algorithm's networks by name; the average may be missing."""
    return {name: network for name, network in networks._asdict().items() if network is not None}


class PolicyAverage:
    """Moves an average of the policy's weights behind the policy that learns.

    Each update moves the average by PERIOD / steps of its distance to the policy. The weight of a
    policy in it then falls by a factor of e in `steps` learner steps. The first updates move it
    further, so that it is the plain mean of the policies so far (Polyak and Juditsky 1992).
    """

    def __init__(self, policy: sonnet_policy.Policy, average: sonnet_policy.Policy, steps: int):
        """Begins with the present policy.

        Args:
          policy: Policy that the learner updates.
          average: Policy of the same shapes, whose weights are set.
          steps: Learner steps over which to average.
        """
        self._rate = min(1.0, _PERIOD / steps)
        self._pairs = list(zip(policy.variables, average.variables, strict=True))
        for online, behind in self._pairs:
            behind.assign(online)

    def after_steps(self, steps: int, made: int) -> None:
        """Updates the average if it is time.

        Args:
          steps: Learner steps of the run so far.
          made: How many of them came after the last call of this.
        """
        periods = steps // _PERIOD - (steps - made) // _PERIOD
        if periods:
            rate = max(self._rate, 1.0 / (steps // _PERIOD))
            self._update(tf.constant(min(1.0, periods * rate), tf.float32))

    @tf.function
    def _update(self, rate: tf.Tensor) -> None:
        for online, behind in self._pairs:
            behind.assign_add(rate * (online - behind))
