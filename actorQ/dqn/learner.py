"""DQN on the learner's side (Mnih et al. 2015, double Q-learning): Acme's learner and networks."""

from actorQ.learner import acme_compat  # noqa: F401, I001 (must come before acme)

from collections.abc import Mapping
import functools
import math
import queue
import threading
from typing import Any, NamedTuple

from acme.agents.tf.dqn import learning as acme_learning
import numpy as np
import reverb
import sonnet as snt
import tensorflow as tf

from actorQ.core import config as config_lib
from actorQ.dqn import exploration
from actorQ.learner import dataset as dataset_lib
from actorQ.learner import optimizers
from actorQ.learner import policy_average
from actorQ.learner import return_ranges
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import sonnet_policy
from actorQ.policy import sonnet_quantizers

PRIORITIZED = True


class Networks(NamedTuple):
    """Online and target Q-networks; `policy` is the online one.

    Actors play the average of the online ones if there is one.
    """

    policy: sonnet_policy.Policy
    target_policy: sonnet_policy.Policy
    average_policy: sonnet_policy.Policy | None = None


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
      config: Whether there is an average, and the quantizer of all networks.
      architecture: Shapes of the policy.
      precision: Precision of matrix products, as in `sonnet_layers.linear`.
    """
    policy = functools.partial(
        sonnet_policy.Policy,
        architecture,
        precision=precision,
        quantizer=sonnet_quantizers.make(config.learner_fake_quantize, config.inference_mode),
    )
    networks = Networks(policy(), policy(name="target_policy"))
    if config.average_policy_steps:
        networks = networks._replace(average_policy=policy(name="average_policy"))
    return networks


def return_scale(config: config_lib.RunConfig) -> float:
    """Returns the largest n-step return that rewards up to `--max_abs_reward` can add up to.

    Acme's learner takes returns for single rewards and clips them to [-1, 1]. With n = 5 every
    window of CartPole would be worth 1. Here returns are divided by the largest one, so that the
    clip does nothing. Q-values then have this unit, and their order stays.

    Returns:
      The scale; infinity if the actors do not clip, so that the learner has to find it.
    """
    limit = exploration.reward_limit(config)
    return limit * sum(config.discount**i for i in range(config.n_step))


def _head(network: sonnet_policy.Policy) -> tuple[tf.Variable, tf.Variable]:
    variables = network.named_variables()
    return variables["head/w"], variables["head/b"]


class ReturnScale:
    """The scale of n-step returns, which the learner finds, and which grows with them."""

    def __init__(
        self,
        config: config_lib.RunConfig,
        networks: Networks,
        optimizer: optimizers.Adam,
        scale: tf.Variable,
    ):
        """Takes the parts of learning; the scale is 0 until it is found."""
        self._config = config
        self._networks = networks
        self._optimizer = optimizer
        self._scale = scale

    def found(self) -> dict[str, float]:
        """Returns the scale by its name in config.json; nothing before it is found."""
        scale = float(self._scale.numpy())
        return {"return_scale": return_ranges.plain(scale)} if scale else {}

    def find(self, windows: return_ranges.Windows, task: return_ranges.Task) -> str:
        """Sets the scale; returns a line that says to what, and why."""
        del task
        scale, reason = return_ranges.find_scale(windows, self._config)
        self._scale.assign(scale)
        return f"Sums of rewards over n steps are divided by {scale:g}: {reason}."

    def follow(self, lowest: float, highest: float, task: return_ranges.Task) -> str:
        """Lets the scale grow if returns leave it.

        The head is linear: divided by the growth, it expresses the same returns exactly. Adam's
        moments are divided as the gradients are, those below the head twice. Otherwise steps would
        be too small for thousands of them.

        Args:
          lowest: Lowest n-step return of any step so far.
          highest: Highest one.
          task: Facts of the task; nothing depends on them here.

        Returns:
          A line that says so; "" if the scale is large enough.
        """
        del task
        largest, before = max(-lowest, highest), float(self._scale.numpy())
        if not largest > before:
            return ""
        scale = return_ranges.wider_scale(largest)
        if np.float32(scale) <= before:  # No larger one fits into float32.
            return ""
        share = before / scale
        for network in policy_average.existing(self._networks).values():
            for variable in _head(network):
                variable.assign(variable * share)
        head = {variable.ref() for variable in _head(self._networks.policy)}
        adam = self._optimizer
        for parameter, m, v in zip(
            self._networks.policy.trainable_variables, adam.m, adam.v, strict=True
        ):
            factor = share if parameter.ref() in head else share**2
            m.assign(m * factor)
            v.assign(v * factor**2)
        self._scale.assign(scale)
        return (
            f"The scale of returns grows from {before:g} to {scale:g}: there are sums over n steps "
            f"of {largest:.3g}. The Q-network expresses the same returns as before."
        )


def make_range(
    config: config_lib.RunConfig,
    networks: Networks,
    learner: acme_learning.DQNLearner,
    monitors: dataset_lib.Monitors,
) -> ReturnScale | None:
    """Returns the range that the learner has to find; None if the flags give it."""
    del monitors
    batches = learner._iterator.batches
    if not batches.finds_scale:
        return None
    return ReturnScale(config, networks, learner._optimizer, batches.reward_scale)


def make_learner(
    networks: Networks,
    config: config_lib.RunConfig,
    dataset: dataset_lib.Batches,
    client: reverb.Client,
    logger: dataset_lib.LastFetches,
    monitors: dataset_lib.Monitors,
) -> acme_learning.DQNLearner:
    """Builds Acme's learner: double Q-learning, Huber loss."""
    scale: float | tf.Variable = return_scale(config)
    if scale == math.inf:
        scale = tf.Variable(0.0, trainable=False, dtype=tf.float32, name="return_scale")
        dataset = dataset.with_extremes()
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
    parts = {
        **policy_average.existing(networks),
        "optimizer": learner.state["optimizer"],
        "num_steps": learner.state["num_steps"],
    }
    batches = learner._iterator.batches
    return {**parts, "return_scale": batches.reward_scale} if batches.finds_scale else parts


def losses(fetches: Mapping[str, float]) -> dict[str, float]:
    """Translates the learner's names into the log's."""
    return {"loss": fetches["loss"]}
