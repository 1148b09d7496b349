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
from actorQ.learner import return_ranges
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import sonnet_layers
from actorQ.policy import sonnet_policy

PRIORITIZED = False

_LARGEST_GRADIENT_NORM = 40.0  # Acme's limit for the gradient of all weights together.
_LARGEST_ACTION_GRADIENT = 1.0  # Acme's limit for dQ/da of one action.
_STEPS_BETWEEN_TARGETS = 20  # In each step, targets would take 15 % of a step of tiny networks.
_SLACK = 0.01  # Targets may leave the span by this share of it without a word.


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
    return Networks(policy(), critic(), policy(name="target_policy"), critic())


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


def complaint(
    config: config_lib.RunConfig, networks: Networks, learner: acme_learning.D4PGLearner
) -> str:
    """Returns what is wrong with the critic's span, judged by the targets so far; or ""."""
    span = make_range(config, networks, learner)
    bounds = {"vmin": config.vmin, "vmax": config.vmax} if span is None else span.found()
    lowest, highest = learner._iterator.extremes.read()
    if not bounds or lowest > highest:
        return ""
    low, high = float(bounds["vmin"]), float(bounds["vmax"])
    slack = _SLACK * (high - low)
    if low - slack <= lowest and highest <= high + slack:
        return ""
    advice = "--vmin=auto and --vmax=auto find a span"
    if span is not None:
        wider = return_ranges.cover(low, high, lowest, highest)
        advice = f"start it anew, for example with --vmin={wider[0]:g} and --vmax={wider[1]:g}"
    return (
        f"Targets of the critic reach from {lowest:.4g} to {highest:.4g}, and it can express "
        f"returns from {low:g} to {high:g} only. If the run does not learn, {advice}."
    )


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

    def watch_targets(distribution: Any) -> Any:
        """Records targets of some steps; a line of log says if they leave the critic's span."""
        newest = batches.newest  # The transitions of the step that is being traced.

        def record() -> None:
            batches.extremes.record(
                newest.reward + config.discount * newest.discount * distribution.mean()
            )

        tf.cond(learner._num_steps % _STEPS_BETWEEN_TARGETS == 1, record, lambda: None)
        return distribution

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
