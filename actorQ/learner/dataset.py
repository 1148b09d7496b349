"""Replay as a dataset, and monitors inside the step, for the learners of both algorithms.

Learner's process only; imports TensorFlow, Reverb and Acme, no torch.
"""

from actorQ.learner import acme_compat  # noqa: F401, I001 (must come before acme)

from collections.abc import Callable, Mapping
import dataclasses
import itertools
import math
from typing import Any

from acme import types
import reverb
import tensorflow as tf

from actorQ.core import config as config_lib
from actorQ.wire import replay

_PREFETCH_BATCHES = 2


@dataclasses.dataclass(frozen=True)
class Batches:
    """Batches of transitions for Acme's learners; may be iterated several times.

    A batch is sliced into a transition inside the compiled learner step, where this costs a few
    operations. A stage of the dataset would hand every batch from one thread to another once more
    (measured: 0.12 of 0.42 ms for 64 transitions).

    Attributes:
      packed: Dataset of reverb.ReplaySample, whose data `layout` unpacks.
      layout: Layout of the transitions.
      reward_scale: Rewards are divided by this.
      watchers: Functions of each batch's n-step rewards and discounts, both [B] and not scaled.
    """

    packed: tf.data.Dataset
    layout: replay.Layout
    reward_scale: float = 1.0
    watchers: tuple[Callable[[tf.Tensor, tf.Tensor], None], ...] = ()

    def __iter__(self) -> "_BatchIterator":
        """Starts to sample."""
        return _BatchIterator(iter(self.packed), self._unpack)

    def scaled(self, reward_scale: float) -> "Batches":
        """Returns the same batches with rewards divided by `reward_scale`."""
        return dataclasses.replace(self, reward_scale=reward_scale)

    def watched(self, watcher: Callable[[tf.Tensor, tf.Tensor], None]) -> "Batches":
        """Returns the same batches, which a function sees inside the compiled step."""
        return dataclasses.replace(self, watchers=(*self.watchers, watcher))

    def _unpack(self, sample: reverb.ReplaySample) -> reverb.ReplaySample:
        transition = self.layout.unpack(sample.data)
        action, reward = transition.action, transition.reward
        for watcher in self.watchers:
            watcher(reward, transition.discount)
        if self.layout.discrete:
            action = tf.cast(action, tf.int32)
        if self.reward_scale != 1.0:
            reward = reward / self.reward_scale
        data = types.Transition(
            transition.observation, action, reward, transition.discount,
            transition.next_observation, (),
        )
        return reverb.ReplaySample(sample.info, data)


class _BatchIterator:
    """Yields reverb.ReplaySample whose data is an acme.types.Transition of [B, ...]."""

    def __init__(
        self, iterator: Any, unpack: Callable[[reverb.ReplaySample], reverb.ReplaySample]
    ):
        self._iterator = iterator
        self._unpack = unpack

    def __iter__(self) -> "_BatchIterator":
        return self

    def __next__(self) -> reverb.ReplaySample:
        # TensorFlow's iterators refuse `next` inside a compiled function.
        return self._unpack(self._iterator.get_next())


def make_dataset(
    config: config_lib.RunConfig, server_address: str, layout: replay.Layout
) -> Batches:
    """Returns batches from replay.

    As the server is in this process, samplers read the table directly, without gRPC.

    Args:
      config: Batch size and name of the table.
      server_address: HOST:PORT of the server in this process.
      layout: Layout of the transitions.
    """
    dataset = reverb.TrajectoryDataset.from_table_signature(
        server_address=server_address,
        table=config.replay_table_name,
        max_in_flight_samples_per_worker=2 * config.batch_size,
    )
    dataset = dataset.batch(config.batch_size, drop_remainder=True).prefetch(_PREFETCH_BATCHES)
    options = tf.data.Options()
    options.autotune.enabled = False  # It would time every item, and there is nothing to tune.
    return Batches(dataset.with_options(options), layout)


class Monitors:
    """Scalars recorded inside the compiled learner step, without changing Acme's learners.

    No Sonnet module owns the variables, so Acme's pairing of online and target variables never
    sees them.
    """

    def __init__(self) -> None:
        """Starts without any scalar."""
        self._variables: dict[str, tf.Variable] = {}

    def _variable(self, name: str, start: float = 0.0) -> tf.Variable:
        return self._variables.setdefault(
            name, tf.Variable(start, trainable=False, dtype=tf.float32, name=name)
        )

    def watch_output(self, name: str, measure: Callable[[Any], tf.Tensor]) -> Callable[[Any], Any]:
        """Returns a layer that passes its input on and records `measure` of it.

        Both learners call their online network twice a step: first on the batch's observations,
        then on the next ones. Many of the latter are terminal, where values mean nothing. So only
        the first call of each pair is recorded when the step is compiled.
        """
        variable = self._variable(name)
        calls = itertools.count()

        def layer(output: Any) -> Any:
            if next(calls) % 2 == 0:
                variable.assign(tf.stop_gradient(measure(output)))
            return output

        return layer

    def rewards_watcher(
        self, discount: float, seen: Mapping[str, float] | None = None
    ) -> Callable[[tf.Tensor, tf.Tensor], None]:
        """Returns a watcher of batches that records the lowest and the highest reward per step.

        A window of k steps has the discount d = discount^(k-1), also where a time limit cuts it.
        Its mean reward, weighted as in the sum, is the sum * (1 - discount) / (1 - discount * d).
        So one constant reward gives one number. A terminal state has d = 0 and gives another.

        Args:
          discount: Discount per environment step.
          seen: Newest row of the log of a run that is resumed.
        """
        seen = seen or {}
        low = self._variable("reward_low", seen.get("reward_low", math.inf))
        high = self._variable("reward_high", seen.get("reward_high", -math.inf))

        def watch(reward: tf.Tensor, discounts: tf.Tensor) -> None:
            if discount < 1.0:  # Otherwise nothing tells a window's length.
                reward = reward * ((1.0 - discount) / (1.0 - discount * discounts))
            low.assign(tf.minimum(low, tf.reduce_min(reward)))
            high.assign(tf.maximum(high, tf.reduce_max(reward)))

        return watch

    def recorder(self, name: str) -> Callable[[tf.Tensor], Any]:
        """Returns a function that records the scalar that it is called with."""
        return self._variable(name).assign

    def read(self) -> dict[str, float]:
        """Returns the newest values."""
        return {name: float(variable.numpy()) for name, variable in self._variables.items()}


class LastFetches:
    """A logger for Acme's learners that keeps the newest step's tensors, and writes nothing."""

    def __init__(self) -> None:
        """Starts without any step."""
        self._data: Mapping[str, Any] = {}

    def write(self, data: Mapping[str, Any]) -> None:
        """Keeps the tensors that a step returns."""
        self._data = data

    def close(self) -> None:
        """Does nothing; Acme's interface of loggers has this method."""

    def read(self) -> dict[str, float]:
        """Returns the newest losses as floats, after waiting for the device."""
        return {k: float(v) for k, v in self._data.items() if "loss" in k}
