"""Replay as a dataset, and monitors inside the step, for the learners of both algorithms.

Learner's process only; imports TensorFlow, Reverb and Acme, no torch.
"""

from actorQ.learner import acme_compat  # noqa: F401, I001 (must come before acme)

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import itertools
import math
from typing import Any

from acme import types
import numpy as np
import reverb
import tensorflow as tf

from actorQ.core import config as config_lib
from actorQ.wire import replay

_PREFETCH_BATCHES = 2
_GPU_READERS = 3  # Threads that form batches: one forms 630 to 850 batches of 256 a second.
_HOST = "/CPU:0"  # TensorFlow's name of the device on which tf.data computes.


@dataclasses.dataclass(frozen=True)
class Batches:
    """Batches of transitions for Acme's learners; may be iterated several times.

    A batch is sliced into a transition inside the compiled learner step, where this costs a few
    operations. A stage of the dataset would hand every batch from one thread to another once more
    (measured: 0.12 of 0.42 ms for 64 transitions).

    Attributes:
      packed: Dataset of reverb.ReplaySample, whose data `layout` unpacks.
      layout: Layout of the transitions.
      reward_scale: Rewards are divided by this. A variable stands for a scale that the learner
        finds.
      watchers: Functions of each batch's n-step rewards and discounts, both [B] and not scaled.
      extremes: Extremes of the n-step rewards, not scaled; None where nobody asks for them.
    """

    packed: tf.data.Dataset
    layout: replay.Layout
    reward_scale: float | tf.Variable = 1.0
    watchers: tuple[Callable[[tf.Tensor, tf.Tensor], None], ...] = ()
    extremes: "Extremes | None" = None

    def __iter__(self) -> "BatchIterator":
        """Starts to sample."""
        return BatchIterator(iter(self.packed), self)

    def scaled(self, reward_scale: float | tf.Variable) -> "Batches":
        """Returns the same batches with rewards divided by `reward_scale`."""
        return dataclasses.replace(self, reward_scale=reward_scale)

    def watched(self, watcher: Callable[[tf.Tensor, tf.Tensor], None]) -> "Batches":
        """Returns the same batches, which a function sees inside the compiled step."""
        return dataclasses.replace(self, watchers=(*self.watchers, watcher))

    def with_extremes(self) -> "Batches":
        """Returns the same batches, whose extremes are recorded inside the compiled step."""
        return dataclasses.replace(self, extremes=Extremes())

    @property
    def finds_scale(self) -> bool:
        """Says whether the scale of rewards is one that the learner finds."""
        return isinstance(self.reward_scale, tf.Variable)

    def unpack(self, sample: reverb.ReplaySample) -> reverb.ReplaySample:
        """Slices a batch into an acme.types.Transition of [B, ...]."""
        transition = self.layout.unpack(sample.data)
        action, reward = transition.action, transition.reward
        for watcher in self.watchers:
            watcher(reward, transition.discount)
        if self.extremes is not None:
            self.extremes.record(reward)
        if self.layout.discrete:
            action = tf.cast(action, tf.int32)
        if self.finds_scale or self.reward_scale != 1.0:
            reward = reward / self.reward_scale
        data = types.Transition(
            transition.observation, action, reward, transition.discount,
            transition.next_observation, (),
        )
        return reverb.ReplaySample(sample.info, data)


class Extremes:
    """The lowest and the highest of all values that compiled steps have met."""

    def __init__(self) -> None:
        """Starts without any value."""
        self._lowest = tf.Variable(np.inf, trainable=False, dtype=tf.float32, name="lowest")
        self._highest = tf.Variable(-np.inf, trainable=False, dtype=tf.float32, name="highest")

    def record(self, values: tf.Tensor) -> None:
        """Takes values into account, [B]; this is called in a step."""
        self._lowest.assign(tf.minimum(self._lowest, tf.reduce_min(values)))
        self._highest.assign(tf.maximum(self._highest, tf.reduce_max(values)))

    def read(self) -> tuple[float, float]:
        """Returns the extremes; infinity and minus infinity before the first value."""
        return float(self._lowest.numpy()), float(self._highest.numpy())


class BatchIterator:
    """Yields reverb.ReplaySample whose data is an acme.types.Transition of [B, ...].

    Attributes:
      batches: The batches that it iterates over.
      newest: The transition that was yielded last; while a step is traced, its own.
    """

    def __init__(self, iterator: Any, batches: Batches):
        """Takes TensorFlow's iterator over the packed batches."""
        self._iterator = iterator
        self.batches = batches
        self.newest: Any = None
        self._handed: Any = None
        self._kept: Any = None  # Batches that were fetched ahead, stacked.
        with tf.device("CPU:0"):  # Replay's batches come from there.
            self._given = tf.Variable(0, trainable=False, dtype=tf.int64, name="given")
        self._ahead = 0

    def __iter__(self) -> "BatchIterator":
        return self

    def __next__(self) -> reverb.ReplaySample:
        sample = self.fetch() if self._handed is None else self._handed
        sample = self.batches.unpack(sample)
        self.newest = sample.data
        return sample

    def fetch(self) -> reverb.ReplaySample:
        """Returns the next batch as it lies in replay."""
        # TensorFlow's iterators refuse `next` inside a compiled function.
        return self._iterator.get_next() if self._kept is None else tf.cond(
            self._given < self._ahead, self._give, self._iterator.get_next
        )

    @contextlib.contextmanager
    def handing(self, sample: reverb.ReplaySample) -> Iterator[None]:
        """Yields this batch, which was fetched before, within the context."""
        self._handed = sample
        try:
            yield
        finally:
            self._handed = None

    def look_ahead(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Fetches batches before the first step is compiled; the first steps then get them.

        So no sample is lost: replay gives away only so many.

        Args:
          count: Number of batches.

        Returns:
          Their rewards and discounts as they lie in replay, [count * B] each.
        """
        with tf.device("CPU:0"):
            samples = [self._iterator.get_next() for _ in range(count)]
            self._kept = tf.nest.map_structure(lambda *parts: tf.stack(parts), *samples)
            self._ahead = count
        transitions = [self.batches.layout.unpack(sample.data) for sample in samples]
        return (
            np.concatenate([transition.reward.numpy() for transition in transitions]),
            np.concatenate([transition.discount.numpy() for transition in transitions]),
        )

    def _give(self) -> reverb.ReplaySample:
        """Returns the next of the batches that were fetched ahead."""
        index = self._given.assign_add(1) - 1
        return tf.nest.map_structure(lambda parts: parts[index], self._kept)


def make_dataset(
    config: config_lib.RunConfig,
    server_address: str,
    layout: replay.Layout,
    device: str = _HOST,
    readers: int | None = None,
) -> Batches:
    """Returns batches from replay.

    As the server is in this process, samplers read the table directly, without gRPC.

    Args:
      config: Batch size and name of the table.
      server_address: HOST:PORT of the server in this process.
      layout: Layout of the transitions.
      device: TensorFlow's name of the learner's device, such as "/GPU:0". Two batches lie ready in
        its memory, so that no step waits for a copy.
      readers: Threads that form batches; None: 1 for a CPU, whose cores have other work, and
        3 for a GPU.
    """

    def formed() -> tf.data.Dataset:
        samples = reverb.TrajectoryDataset.from_table_signature(
            server_address=server_address,
            table=config.replay_table_name,
            max_in_flight_samples_per_worker=2 * config.batch_size,
        )
        return samples.batch(config.batch_size, drop_remainder=True)

    if readers is None:
        readers = 1 if device == _HOST else _GPU_READERS
    dataset = formed() if readers == 1 else tf.data.Dataset.range(readers).interleave(
        lambda _: formed(), cycle_length=readers, num_parallel_calls=readers, deterministic=False
    )
    if device == _HOST:
        dataset = dataset.prefetch(_PREFETCH_BATCHES)
    else:
        on_device = tf.data.experimental.prefetch_to_device(device, _PREFETCH_BATCHES)
        dataset = dataset.apply(on_device)
    return Batches(untuned(dataset), layout)


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a dataset that tf.data does not tune.

    Tuning would time every item, and there is nothing to tune. Its thread sleeps up to a minute,
    and whoever drops an iterator would wait for it.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


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
