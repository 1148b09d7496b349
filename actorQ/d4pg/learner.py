"""D4PG on the learner's side (Barth-Maron et al. 2018): Acme's learner and its networks."""

from actorQ.learner import acme_compat  # noqa: F401, I001 (must come before acme)

from collections.abc import Mapping
import functools
import math
from typing import Any, NamedTuple

from acme.agents.tf.d4pg import learning as acme_learning
from acme.tf import networks as acme_networks
import numpy as np
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
from actorQ.policy import sonnet_quantizers

PRIORITIZED = False

_LARGEST_GRADIENT_NORM = 40.0  # Acme's limit for the gradient of all weights together.
_RANGE_MARGIN = 1e-3  # Share of the critic's range: rounding puts no target beyond an end.
_FEW_TARGETS = 0.02  # Share of their probability mass beyond an end that does no harm.
_UNLIKELY = 3.0  # Atoms in a new half have the mean logit of all less this.
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
      config: Sizes and range of the critic, whether gradients of actions are inverted, and the
        quantizer of the policies.
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
        quantizer=sonnet_quantizers.make(config.learner_fake_quantize, config.inference_mode),
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

    @property
    def parameters(self) -> tuple[tf.Variable, tf.Variable]:
        """Weights [H, A] and biases [A] of the layer that makes the logits."""
        return self._distributional_layer.w, self._distributional_layer.b


def _make_head(config: config_lib.RunConfig) -> acme_networks.DiscreteValuedHead:
    if settings.AUTO in (config.vmin, config.vmax):
        return _FoundAtoms(config.num_atoms)
    return acme_networks.DiscreteValuedHead(config.vmin, config.vmax, config.num_atoms)


class CriticSpan:
    """The span of both critics' atoms, which the learner finds, and which grows with returns."""

    def __init__(
        self,
        config: config_lib.RunConfig,
        networks: Networks,
        optimizer: optimizers.Adam,
        monitors: dataset_lib.Monitors,
    ):
        """Takes the parts of learning; the networks' heads have variable atoms."""
        self._config = config
        self._critic = networks.critic
        self._heads = [
            module
            for network in (networks.critic, networks.target_critic)
            for module in network.submodules
            if isinstance(module, _FoundAtoms)
        ]
        self._optimizer = optimizer
        self._monitors = monitors

    def found(self) -> dict[str, float]:
        """Returns the bounds by the names of their flags; none before they are found."""
        low, high = (return_ranges.plain(bound) for bound in self._bounds())
        return {"vmin": low, "vmax": high} if low < high else {}

    def find(self, windows: return_ranges.Windows, task: return_ranges.Task) -> str:
        """Sets the atoms; returns a line that says to what, and why."""
        span = return_ranges.find_span(windows, self._config, task)
        self._assign(span.low, span.high)
        return f"The critic spans returns from {span.low:g} to {span.high:g}: {span.reason}."

    def follow(self, lowest: float, highest: float, task: return_ranges.Task) -> str:
        """Doubles the span until it holds the returns that are met, if its ends are not flags.

        An end moves where a single n-step return lies beyond it. It also moves where targets do,
        if the rewards so far allow returns beyond it.

        Args:
          lowest: Lowest n-step return of any step so far.
          highest: Highest one.
          task: Facts of the task.

        Returns:
          A line that says so; "" if the span stays.
        """
        before = self._bounds()
        seen = self._monitors.read()
        reach = return_ranges.horizon(self._config.discount, task.episode_steps)
        if self._config.vmax == settings.AUTO:
            self._reach(
                True, highest, seen["reward_high"] * reach, seen["targets_above_vmax"]
            )
        if self._config.vmin == settings.AUTO:
            self._reach(
                False, lowest, seen["reward_low"] * reach, seen["targets_below_vmin"]
            )
        after = self._bounds()
        if after == before:
            return ""
        return (
            "The critic's span grows from [{:g}, {:g}] to [{:g}, {:g}], since returns leave it. "
            "What it has learned stays, with fewer atoms.".format(*before, *after)
        )

    def _reach(self, upward: bool, extreme: float, limit: float, share: float) -> None:
        """Moves one end as far as it has to.

        Args:
          upward: Whether it is the upper end.
          extreme: The n-step return that is farthest out there.
          limit: Farthest return that the rewards so far allow.
          share: Share of the targets' mass beyond the end.
        """
        outward = 1.0 if upward else -1.0
        while True:
            low, high = self._bounds()
            moving, fixed = (high, low) if upward else (low, high)
            span = high - low
            left = outward * (extreme - moving) > _RANGE_MARGIN * span
            pressed = share > _FEW_TARGETS and outward * (limit - moving) > 0.0
            if not (left or pressed) or span > return_ranges.LARGEST:
                return
            self._double(moving, fixed)
            share = 0.0  # It was that of the span before.

    def _double(self, moving: float, fixed: float) -> None:
        """Moves an end away from the other one.

        Every second atom stays where it is, with its logit. So a distribution keeps its shape. The
        others go to the new half, where nothing is likely so far.
        """
        upward = moving > fixed
        for head in self._heads:
            for variable, less in zip(head.parameters, (0.0, _UNLIKELY), strict=True):
                values = variable.numpy()
                rest = values.mean(-1, keepdims=True) - less
                variable.assign(_every_second(values, upward, rest))
        of_head = {variable.ref() for variable in self._heads[0].parameters}
        adam = self._optimizer
        for parameter, *moments in zip(
            self._critic.trainable_variables, adam.m, adam.v, strict=True
        ):
            if parameter.ref() in of_head:
                for moment in moments:
                    moment.assign(_every_second(moment.numpy(), upward, 0.0))
        self._assign(*sorted((fixed, fixed + 2.0 * (moving - fixed))))

    def _bounds(self) -> tuple[float, float]:
        low, high = self._heads[0].atoms.numpy()[[0, -1]]
        return float(low), float(high)

    def _assign(self, low: float, high: float) -> None:
        for head in self._heads:
            head.atoms.assign(tf.linspace(low, high, self._config.num_atoms))


def _every_second(values: np.ndarray, upward: bool, rest: np.ndarray | float) -> np.ndarray:
    """Returns numbers of atoms, [..., A], for a span that is twice as wide.

    Args:
      values: Numbers of the present atoms.
      upward: Whether the upper end moves.
      rest: Numbers of the atoms in the new half.
    """
    wider = np.full(values.shape, rest, values.dtype)
    # The atoms are counted from the end that stays.
    counted, own = (wider, values) if upward else (wider[..., ::-1], values[..., ::-1])
    counted[..., : (values.shape[-1] + 1) // 2] = own[..., ::2]
    return wider


def make_range(
    config: config_lib.RunConfig,
    networks: Networks,
    learner: acme_learning.D4PGLearner,
    monitors: dataset_lib.Monitors,
) -> CriticSpan | None:
    """Returns the range that the learner has to find; None if the flags give it."""
    if settings.AUTO not in (config.vmin, config.vmax):
        return None
    return CriticSpan(config, networks, learner._critic_optimizer, monitors)


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
    if settings.AUTO in (config.vmin, config.vmax):
        dataset = dataset.with_extremes()
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
