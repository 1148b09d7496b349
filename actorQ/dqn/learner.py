"""DQN on the learner's side (Mnih et al. 2015, double Q-learning): Acme's learner and networks."""

from actorQ.learner import acme_compat  # noqa: F401, I001 (must come before acme)

from collections.abc import Mapping
import functools
import queue
import threading
from typing import Any, NamedTuple

from acme.agents.tf.dqn import learning as acme_learning
import reverb
import sonnet as snt
import tensorflow as tf

from actorQ.core import config as config_lib
from actorQ.learner import dataset as dataset_lib
from actorQ.learner import optimizers
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import sonnet_policy

PRIORITIZED = True


class Networks(NamedTuple):
    """Online and target Q-networks; `policy` is the online one, which actors play."""

    policy: sonnet_policy.Policy
    target_policy: sonnet_policy.Policy


class PriorityWriter:
    """Writes priorities to replay on a thread of its own, so that no step waits for it.

    It stands in for Reverb's client, to which Acme's learner passes a table name of its own. One
    step's priorities are written while the next step is computed; a third step waits.
    """

    def __init__(self, client: reverb.Client, table: str):
        """Starts the thread.

        Args:
          client: Client of the run's server.
          table: Name of the replay table.
        """
        self._client = client
        self._table = table
        self._queue: queue.Queue[Mapping[int, float]] = queue.Queue(maxsize=1)
        self._error: Exception | None = None
        threading.Thread(target=self._work, daemon=True, name="priorities").start()

    def mutate_priorities(self, table: str, updates: Mapping[int, float]) -> None:
        """Hands over new priorities, key to absolute TD error.

        Raises:
          Exception: Earlier priorities could not be written; this is their failure.
        """
        del table
        if self._error is not None:
            raise self._error
        self._queue.put(updates)

    def flush(self) -> None:
        """Waits until everything that was handed over is written."""
        self._queue.join()

    def _work(self) -> None:
        while True:
            updates = self._queue.get()
            try:
                self._client.mutate_priorities(self._table, updates=updates)
            except Exception as error:  # `mutate_priorities` raises it later.
                self._error = error
            self._queue.task_done()


def make_networks(
    config: config_lib.RunConfig,
    architecture: architecture_lib.PolicyArchitecture,
    precision: str,
) -> Networks:
    """Builds the online and the target Q-network.

    Args:
      config: Is not needed here; D4PG's critic has settings.
      architecture: Shapes of the policy.
      precision: Precision of matrix products, as in `sonnet_layers.linear`.
    """
    del config
    policy = functools.partial(sonnet_policy.Policy, architecture, precision=precision)
    return Networks(policy(), policy(name="target_policy"))


def return_scale(config: config_lib.RunConfig) -> float:
    """Returns the largest n-step return that rewards up to `--max_abs_reward` can add up to.

    Acme's learner takes returns for single rewards and clips them to [-1, 1]. With n = 5 every
    window of CartPole would be worth 1. Here returns are divided by the largest one, so that the
    clip does nothing. Q-values then have this unit, and their order stays.
    """
    return config.max_abs_reward * sum(config.discount**i for i in range(config.n_step))


def make_learner(
    networks: Networks,
    config: config_lib.RunConfig,
    dataset: dataset_lib.Batches,
    client: reverb.Client,
    logger: dataset_lib.LastFetches,
    monitors: dataset_lib.Monitors,
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
        replay_client=PriorityWriter(client, config.replay_table_name) if prioritized else None,
        logger=logger,
        checkpoint=False,
    )
    # Acme's learner takes no optimizer as an argument. It looks its own up when the step is
    # compiled, so it can be replaced before.
    optimizer = optimizers.Adam(
        config.learning_rate,
        record_norm=monitors.recorder("gradient_norm"),
        decay_steps=config.learning_rate_decay_steps,
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
