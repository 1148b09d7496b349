"""DQN on the learner's side (Mnih et al. 2015, double Q-learning): Acme's learner and networks."""

from actorQ import acme_compat  # noqa: F401, I001 (must come before acme)

from collections.abc import Mapping
import functools
from typing import Any, NamedTuple

from acme.agents.tf.dqn import learning as acme_learning
import reverb
import sonnet as snt
import tensorflow as tf

from actorQ import architecture as architecture_lib
from actorQ import config as config_lib
from actorQ import layers
from actorQ import learning
from actorQ import networks as networks_lib
from actorQ import optimizers

PRIORITIZED = True


class Networks(NamedTuple):
    """Online and target Q-networks; `policy` is the online one, which actors play."""

    policy: networks_lib.Policy
    target_policy: networks_lib.Policy


class _ReplayClient:
    """Lets Acme's learner, which knows replay by a fixed name, write priorities to our table."""

    def __init__(self, client: reverb.Client, table: str):
        self._client = client
        self._table = table

    def mutate_priorities(self, table: str, updates: Mapping[int, float]) -> None:
        """Writes new priorities, key to absolute TD error."""
        del table
        self._client.mutate_priorities(self._table, updates=updates)


def make_networks(
    config: config_lib.RunConfig, architecture: architecture_lib.PolicyArchitecture
) -> Networks:
    """Builds the online and the target Q-network."""
    layers.warn_if_slow(config.learner_precision)
    policy = functools.partial(
        networks_lib.Policy, architecture, precision=config.learner_precision
    )
    return Networks(policy(), policy(name="target_policy"))


def return_scale(config: config_lib.RunConfig) -> float:
    """Returns the largest n-step return that rewards up to `--max_abs_reward` can add up to.

    Acme's learner clips what it takes for single rewards to [-1, 1], which would flatten n-step
    returns: with n = 5 every window of CartPole would be worth 1. Returns are divided by this
    instead, so that the clip does nothing; Q-values are in these units, their order is the same.
    """
    return config.max_abs_reward * sum(config.discount**i for i in range(config.n_step))


def make_learner(
    networks: Networks,
    config: config_lib.RunConfig,
    dataset: learning.Batches,
    client: reverb.Client,
    logger: learning.LastFetches,
    monitors: learning.Monitors,
) -> acme_learning.DQNLearner:
    """Builds Acme's learner: double Q-learning, Huber loss."""
    scale = return_scale(config)
    network = snt.Sequential([
        networks.policy,
        monitors.watch_output(
            "q_mean", lambda q: scale * tf.reduce_mean(tf.reduce_max(q, axis=-1))
        ),
    ])
    prioritized = config.priority_exponent > 0
    learner = acme_learning.DQNLearner(
        network=network,
        target_network=networks.target_policy,
        discount=config.discount,
        importance_sampling_exponent=config.importance_sampling_exponent,
        learning_rate=config.learning_rate,
        target_update_period=config.target_update_period,
        dataset=dataset.scaled(scale),
        replay_client=_ReplayClient(client, config.replay_table_name) if prioritized else None,
        logger=logger,
        checkpoint=False,
    )
    # Acme's learner takes no optimizer; it looks its own up when the step is compiled.
    optimizer = optimizers.Adam(
        config.learning_rate, record_norm=monitors.recorder("gradient_norm")
    )
    optimizer.initialize(networks.policy.trainable_variables)
    learner._optimizer = optimizer
    return learner


def checkpointed(learner: acme_learning.DQNLearner, networks: Networks) -> Mapping[str, Any]:
    """Returns every stateful part of training, by name."""
    return {
        **networks._asdict(),
        "optimizer": learner.state["optimizer"],
        "num_steps": learner.state["num_steps"],
    }


def losses(fetches: Mapping[str, float]) -> dict[str, float]:
    """Translates the learner's names into the log's."""
    return {"loss": fetches["loss"]}
