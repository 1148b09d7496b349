"""What the learners share: replay as a dataset, monitors inside the step, and publishing weights.

Learner's process only; imports TensorFlow, Reverb and Acme, no torch.
"""

from actorQ import acme_compat  # noqa: F401, I001 (must come before acme)

from collections.abc import Callable, Mapping
import itertools
import threading
import time
from typing import Any

from acme import types
import numpy as np
import reverb
import tensorflow as tf

from actorQ import config as config_lib
from actorQ import conversion
from actorQ import messages
from actorQ import replay
from actorQ import wire

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


class VariablePublisher:
    """Pushes weights to the broadcaster without holding the learner up.

    The weights are copied on the learner's thread (so that they are of one step) and inserted by
    a background thread. At most one push is under way; what falls in between is skipped, so that
    the next push carries the newest weights.

    Attributes:
      pushes: pushes that reached Reverb.
      version: learner steps of the newest of them; -1 before the first.
      last_push: when the newest push was started, on time.monotonic's clock.
      snapshot_s: seconds that pushing took from the learner's thread.
      insert_s: seconds of inserting in the background.
    """

    def __init__(
        self,
        variables: Mapping[str, tf.Variable],
        connection: wire.Connection,
        table: str,
        period_s: float,
    ):
        """Starts the background thread.

        Args:
          variables: name to online variable of the policy.
          connection: to the run's server.
          table: mailbox towards the broadcaster.
          period_s: least seconds between the starts of two pushes.
        """
        self._variables = variables
        self._connection = connection
        self._table = table
        self._period_s = period_s
        self.last_push = -float("inf")
        self._pending: tuple[int, dict[str, np.ndarray]] | None = None
        self._condition = threading.Condition()
        self._busy = False
        self._error: BaseException | None = None
        self.pushes = 0
        self.version = -1
        self.snapshot_s = 0.0
        self.insert_s = 0.0
        threading.Thread(target=self._work, daemon=True, name="publisher").start()

    def publish(self, version: int, wait: bool = False) -> bool:
        """Pushes the weights if it is time and no push is under way.

        Args:
          version: learner steps done.
          wait: push in any case, and wait until the server has it (the first weights).

        Returns:
          Whether a push was started.

        Raises:
          Exception: an earlier push failed; the failure that it met.
        """
        self._raise_error()
        started = time.perf_counter()
        with self._condition:
            if wait:
                self._condition.wait_for(lambda: not self._busy)
            elif self._busy or time.monotonic() - self.last_push < self._period_s:
                return False
            self._busy = True
        self.last_push = time.monotonic()
        snapshot = {name: variable.numpy() for name, variable in self._variables.items()}
        with self._condition:
            self._pending = (version, snapshot)
            self._condition.notify_all()
        self.snapshot_s += time.perf_counter() - started
        if wait:
            with self._condition:
                self._condition.wait_for(lambda: not self._busy)
            self._raise_error()
        return True

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._pending is not None)
                version, snapshot = self._pending
                self._pending = None
            started = time.perf_counter()
            try:
                update = messages.ModelUpdate(version, conversion.LEARNER_SCHEME, snapshot)
                self._connection.publish(self._table, messages.encode(update))
                self.pushes += 1
                self.version = version
            except Exception as error:  # Raised again on the learner's thread.
                self._error = error
            self.insert_s += time.perf_counter() - started
            with self._condition:
                self._busy = False
                self._condition.notify_all()
