"""D4PG on the learner's side (Barth-Maron et al. 2018): Acme's learner and its networks."""

from actorQ.learner import acme_compat  # noqa: F401, I001 (must come before acme)

from collections.abc import Mapping
import functools
import math
from typing import Any, NamedTuple

from acme.agents.tf.d4pg import learning as acme_learning
from acme.tf import networks as acme_networks
import reverb
import sonnet as snt
import tensorflow as tf

from actorQ.core import config as config_lib
from actorQ.learner import dataset as dataset_lib
from actorQ.learner import optimizers
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import sonnet_layers
from actorQ.policy import sonnet_policy

PRIORITIZED = False

_LARGEST_GRADIENT_NORM = 40.0  # Acme's limit for the gradient of all weights together.
_RANGE_MARGIN = 1e-3  # Share of the critic's range: rounding puts no target beyond an end.
_LARGEST_ACTION_GRADIENT = 1.0  # Acme's limit for dQ/da of one action.


class Networks(NamedTuple):
    """Online and target networks."""

    policy: sonnet_policy.Policy
    critic: snt.Module
    target_policy: sonnet_policy.Policy
    target_critic: snt.Module


def make_networks(
    config: config_lib.RunConfig,
    architecture: architecture_lib.PolicyArchitecture,
    precision: str,
) -> Networks:
    """Builds the policy, the distributional critic, and their targets.

    Args:
      config: Sizes and range of the critic, and whether gradients of actions are inverted.
      architecture: Shapes of the policy.
      precision: Precision of matrix products, as in `sonnet_layers.linear`.
    """

    def critic() -> snt.Module:
        network = snt.Sequential([
            acme_networks.CriticMultiplexer(action_network=_clip_gradient_of_action),
            sonnet_layers.LayerNormTorso(
                config.critic_sizes,
                math.prod(architecture.observation_shape) + architecture.num_outputs,
                precision,
            ),
            acme_networks.DiscreteValuedHead(config.vmin, config.vmax, config.num_atoms),
        ])
        network(
            tf.zeros((1, *architecture.observation_shape)), tf.zeros((1, architecture.num_outputs))
        )
        return network

    policy = functools.partial(
        sonnet_policy.Policy,
        architecture,
        precision=precision,
        invert_gradients=bool(config.invert_gradients),
    )
    return Networks(policy(), critic(), policy(name="target_policy"), critic())


@tf.custom_gradient
def _clip_gradient_of_action(action: tf.Tensor) -> Any:
    """Passes actions [B, A] on, and limits dQ/da of each action to a norm of 1 on the way back.

    Acme's learner would do this only together with clipping the weights' gradients, which is the
    optimizers' work here.
    """
    return tf.identity(action), lambda gradient: tf.clip_by_norm(
        gradient, _LARGEST_ACTION_GRADIENT, axes=-1
    )


def make_learner(
    networks: Networks,
    config: config_lib.RunConfig,
    dataset: dataset_lib.Batches,
    client: reverb.Client,
    logger: dataset_lib.LastFetches,
    monitors: dataset_lib.Monitors,
) -> acme_learning.D4PGLearner:
    """Builds Acme's learner: 51 atoms, Adam, gradients clipped at a global norm of 40."""
    del client  # Replay is uniform: there are no priorities to write back.
    critic = snt.Sequential([
        networks.critic,
        monitors.watch_output("q_mean", lambda values: tf.reduce_mean(values.mean())),
    ])
    targets = _TargetWatch(config, monitors)
    policy_optimizer = optimizers.Adam(
        config.policy_learning_rate,
        _LARGEST_GRADIENT_NORM,
        monitors.recorder("policy_gradient_norm"),
        decay_steps=config.learning_rate_decay_steps,
    )
    policy_optimizer.initialize(networks.policy.trainable_variables)
    critic_optimizer = optimizers.Adam(
        config.critic_learning_rate,
        _LARGEST_GRADIENT_NORM,
        monitors.recorder("gradient_norm"),
        decay_steps=config.learning_rate_decay_steps,
    )
    critic_optimizer.initialize(networks.critic.trainable_variables)
    return acme_learning.D4PGLearner(
        policy_network=networks.policy,
        critic_network=critic,
        target_policy_network=networks.target_policy,
        target_critic_network=snt.Sequential([networks.target_critic, targets.watch_output]),
        discount=config.discount,
        target_update_period=config.target_update_period,
        dataset_iterator=iter(dataset.watched(targets.watch_batch)),
        policy_optimizer=policy_optimizer,
        critic_optimizer=critic_optimizer,
        clipping=False,
        logger=logger,
        checkpoint=False,
    )


class _TargetWatch:
    """Records how much of the targets' probability mass lies beyond the ends of the range.

    Acme's loss moves this mass to the first or the last atom, where it loses its value.
    """

    def __init__(self, config: config_lib.RunConfig, monitors: dataset_lib.Monitors):
        """Takes the critic's range, and where to record."""
        margin = _RANGE_MARGIN * (config.vmax - config.vmin)
        self._low, self._high = config.vmin - margin, config.vmax + margin
        self._discount = config.discount
        self._record_below = monitors.recorder("targets_below_vmin")
        self._record_above = monitors.recorder("targets_above_vmax")

    def watch_batch(self, reward: tf.Tensor, discounts: tf.Tensor) -> None:
        """Keeps the tensors of the step that is being compiled; its critic comes later."""
        self._reward, self._discounts = reward, discounts

    def watch_output(
        self, output: acme_networks.DiscreteValuedDistribution
    ) -> acme_networks.DiscreteValuedDistribution:
        """Records both shares for a target critic's output, and passes the output on."""
        values = self._reward[:, None] + self._discount * self._discounts[:, None] * output.values
        mass = tf.nn.softmax(output.logits)
        for record, beyond in (
            (self._record_below, values < self._low), (self._record_above, values > self._high)
        ):
            share = tf.reduce_sum(tf.where(beyond, mass, 0.0), axis=-1)
            record(tf.reduce_mean(share))
        return output


def checkpointed(learner: acme_learning.D4PGLearner, networks: Networks) -> Mapping[str, Any]:
    """Returns every stateful part of training, by name."""
    return {
        **networks._asdict(),
        "policy_optimizer": learner._policy_optimizer,
        "critic_optimizer": learner._critic_optimizer,
        "num_steps": learner._num_steps,
    }


def losses(fetches: Mapping[str, float]) -> dict[str, float]:
    """Translates the learner's names into the log's."""
    return {"loss": fetches["critic_loss"], "policy_loss": fetches["policy_loss"]}
