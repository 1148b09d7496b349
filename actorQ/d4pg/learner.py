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
from actorQ.core import settings
from actorQ.learner import dataset as dataset_lib
from actorQ.learner import optimizers
from actorQ.learner import policy_average
from actorQ.learner import return_ranges
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import sonnet_layers
from actorQ.policy import sonnet_policy

PRIORITIZED = False

_LARGEST_GRADIENT_NORM = 40.0  # Acme's limit for the gradient of all weights together.
_RANGE_MARGIN = 1e-3  # Share of the critic's range: rounding puts no target beyond an end.
_LARGEST_ACTION_GRADIENT = 1.0  # Acme's limit for dQ/da of one action.
_STEPS_BETWEEN_TARGETS = 20  # In each step, targets would take 15 % of a step of tiny networks.


class Networks(NamedTuple):
    """Online and target networks, and the average of the policy if that is what acts."""

    policy: sonnet_policy.Policy
    critic: snt.Module
    target_policy: sonnet_policy.Policy
    target_critic: snt.Module
    average_policy: sonnet_policy.Policy | None = None


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
            _make_head(config),
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
    networks = Networks(policy(), critic(), policy(name="target_policy"), critic())
    if config.average_policy_steps:
        networks = networks._replace(average_policy=policy(name="average_policy"))
    return networks


class _FoundAtoms(acme_networks.DiscreteValuedHead):
    """Acme's head, with atoms that are found when learning starts; until then all are 0.

    They are a variable, so that they are in checkpoints.
    """

    def __init__(self, num_atoms: int):
        super().__init__(-1.0, 1.0, num_atoms)
        self._values = tf.Variable(tf.zeros(num_atoms), trainable=False, name="atoms")

    @property
    def atoms(self) -> tf.Variable:
        """The values that have a probability each."""
        return self._values


def _make_head(config: config_lib.RunConfig) -> acme_networks.DiscreteValuedHead:
    if settings.AUTO in (config.vmin, config.vmax):
        return _FoundAtoms(config.num_atoms)
    return acme_networks.DiscreteValuedHead(config.vmin, config.vmax, config.num_atoms)


class CriticSpan:
    """The span of both critics' atoms, which the learner finds."""

    def __init__(self, config: config_lib.RunConfig, networks: Networks):
        """Takes the networks, whose heads have variable atoms."""
        self._config = config
        self._heads = [
            module
            for network in (networks.critic, networks.target_critic)
            for module in network.submodules
            if isinstance(module, _FoundAtoms)
        ]

    def found(self) -> dict[str, float]:
        """Returns the bounds by the names of their flags; none before they are found."""
        atoms = self._heads[0].atoms.numpy()
        low, high = (return_ranges.plain(float(bound)) for bound in atoms[[0, -1]])
        return {"vmin": low, "vmax": high} if low < high else {}

    def find(self, windows: return_ranges.Windows, task: return_ranges.Task) -> str:
        """Sets the atoms; returns a line that says to what, and why."""
        span = return_ranges.find_span(windows, self._config, task)
        for head in self._heads:
            head.atoms.assign(tf.linspace(span.low, span.high, self._config.num_atoms))
        return f"The critic spans returns from {span.low:g} to {span.high:g}: {span.reason}."

    def follow(self, lowest: float, highest: float) -> str:
        """Changes nothing: no wider atoms can express the distributions that were learned."""
        del lowest, highest
        return ""


def make_range(
    config: config_lib.RunConfig, networks: Networks, learner: acme_learning.D4PGLearner
) -> CriticSpan | None:
    """Returns the range that the learner has to find; None if the flags give it."""
    del learner
    return CriticSpan(config, networks) if settings.AUTO in (config.vmin, config.vmax) else None


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
    batches = iter(dataset)

    targets = _TargetWatch(config.discount, monitors)

    def watch_targets(
        output: acme_networks.DiscreteValuedDistribution,
    ) -> acme_networks.DiscreteValuedDistribution:
        """Records the targets of some steps."""
        newest = batches.newest  # The transitions of the step that is being traced.
        tf.cond(
            learner._num_steps % _STEPS_BETWEEN_TARGETS == 1,
            lambda: targets.record(newest.reward, newest.discount, output), lambda: None,
        )
        return output

    critic = snt.Sequential([
        networks.critic,
        monitors.watch_output("q_mean", lambda values: tf.reduce_mean(values.mean())),
    ])
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
    learner = acme_learning.D4PGLearner(
        policy_network=networks.policy,
        critic_network=critic,
        target_policy_network=networks.target_policy,
        target_critic_network=snt.Sequential([networks.target_critic, watch_targets]),
        discount=config.discount,
        target_update_period=config.target_update_period,
        dataset_iterator=batches,
        policy_optimizer=policy_optimizer,
        critic_optimizer=critic_optimizer,
        clipping=False,
        logger=logger,
        checkpoint=False,
    )
    return learner


class _TargetWatch:
    """Records how much of the targets' probability mass lies beyond the ends of the range.

    Acme's loss moves this mass to the first or the last atom, where it loses its value.
    """

    def __init__(self, discount: float, monitors: dataset_lib.Monitors):
        """Takes the discount per environment step, and where to record."""
        self._discount = discount
        self._record_below = monitors.recorder("targets_below_vmin")
        self._record_above = monitors.recorder("targets_above_vmax")

    def record(
        self,
        reward: tf.Tensor,
        discounts: tf.Tensor,
        output: acme_networks.DiscreteValuedDistribution,
    ) -> None:
        """Records both shares of a batch.

        Args:
          reward: N-step rewards, [B].
          discounts: Discounts behind them, [B].
          output: The target critic's output for the next states.
        """
        low, high = output.values[0], output.values[-1]
        margin = _RANGE_MARGIN * (high - low)
        values = reward[:, None] + self._discount * discounts[:, None] * output.values
        mass = tf.nn.softmax(output.logits)
        for record, beyond in (
            (self._record_below, values < low - margin),
            (self._record_above, values > high + margin),
        ):
            share = tf.reduce_sum(tf.where(beyond, mass, 0.0), axis=-1)
            record(tf.reduce_mean(share))


def checkpointed(learner: acme_learning.D4PGLearner, networks: Networks) -> Mapping[str, Any]:
    """Returns every stateful part of training, by name."""
    return {
        **policy_average.existing(networks),
        "policy_optimizer": learner._policy_optimizer,
        "critic_optimizer": learner._critic_optimizer,
        "num_steps": learner._num_steps,
    }


def losses(fetches: Mapping[str, float]) -> dict[str, float]:
    """Translates the learner's names into the log's."""
    return {"loss": fetches["critic_loss"], "policy_loss": fetches["policy_loss"]}
