"""What the learners share: replay as a dataset, and monitors inside the step.

Learner's process only; imports TensorFlow, Reverb and Acme, no torch.
"""

from actorQ import acme_compat  # noqa: F401, I001 (must come before acme)

from collections.abc import Callable, Mapping
import itertools
from typing import Any

from acme import types
import reverb
import tensorflow as tf

from actorQ import config as config_lib
from actorQ import replay

_PREFETCH_BATCHES = 2


def make_dataset(
    config: config_lib.RunConfig, server_address: str, layout: replay.Layout
) -> tf.data.Dataset:
    """Returns batches from replay in the form that Acme's learners take.

    One sampler: the server is in this process, so that it reads the table directly, without gRPC.
    A batch is sliced into a transition as a whole, after batching.

    Args:
      config: batch size, table.
      server_address: HOST:PORT of the server in this process.
      layout: of the transitions.

    Returns:
      A dataset of reverb.ReplaySample with acme.types.Transition of [B, ...] as data.
    """
    dataset = reverb.TrajectoryDataset.from_table_signature(
        server_address=server_address,
        table=config.replay_table_name,
        max_in_flight_samples_per_worker=2 * config.batch_size,
    ).batch(config.batch_size, drop_remainder=True)

    def to_acme(sample: reverb.ReplaySample) -> reverb.ReplaySample:
        transition = layout.unpack(sample.data)
        action = transition.action
        if layout.discrete:
            action = tf.cast(action, tf.int32)
        data = types.Transition(
            transition.observation, action, transition.reward, transition.discount,
            transition.next_observation, (),
        )
        return reverb.ReplaySample(sample.info, data)

    return dataset.map(to_acme, deterministic=True).prefetch(_PREFETCH_BATCHES)


class Monitors:
    """Scalars picked up inside the compiled learner step, without changing Acme's learners.

    Holds variables that no module owns, so that Acme's pairing of online and target variables
    never sees them.
    """

    def __init__(self):
        self._variables: dict[str, tf.Variable] = {}

    def _variable(self, name: str) -> tf.Variable:
        return self._variables.setdefault(
            name, tf.Variable(0.0, trainable=False, dtype=tf.float32, name=name)
        )

    def watch_output(self, name: str, measure: Callable[[Any], tf.Tensor]) -> Callable[[Any], Any]:
        """Returns a layer that passes its input on and records `measure` of it.

        Both learners call their online network twice a step: on the batch's observations first,
        then on the next ones (many of them terminal, where values mean nothing). Only the first
        call of each pair is recorded, as the step is compiled.
        """
        variable = self._variable(name)
        calls = itertools.count()

        def layer(output: Any) -> Any:
            if next(calls) % 2 == 0:
                variable.assign(tf.stop_gradient(measure(output)))
            return output

        return layer

    def watch_gradients(self, name: str, optimizer: Any) -> Any:
        """Makes an optimizer record the global norm of the gradients that it applies."""
        variable = self._variable(name)
        apply = optimizer.apply

        def recording_apply(updates: Any, parameters: Any) -> Any:
            variable.assign(tf.linalg.global_norm(updates))
            return apply(updates, parameters)

        optimizer.apply = recording_apply
        return optimizer

    def read(self) -> dict[str, float]:
        """Returns the newest values."""
        return {name: float(variable.numpy()) for name, variable in self._variables.items()}


class LastFetches:
    """A logger for Acme's learners that keeps the newest step's tensors, and writes nothing."""

    def __init__(self):
        self._data: Mapping[str, Any] = {}

    def write(self, data: Mapping[str, Any]) -> None:
        """Takes what a step returns."""
        self._data = data

    def close(self) -> None:
        """Nothing to close."""

    def read(self) -> dict[str, float]:
        """Returns the newest losses as floats (this waits for the device)."""
        return {k: float(v) for k, v in self._data.items() if "loss" in k}
