"""The learner's end of the parameter path: pushes weights to the broadcaster, in the background.

Learner's process only; imports TensorFlow, no torch.
"""

import collections
from collections.abc import Callable
from collections.abc import Mapping
import threading
import time

from absl import logging
import numpy as np
import tensorflow as tf

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import provenance
from actorQ.core import snapshots
from actorQ.policy import forms
from actorQ.policy import model_update
from actorQ.wire import connection as wire
from actorQ.wire import messages

FLOAT32, BFLOAT16 = config_lib.PUSH_PRECISIONS
# CPU seconds of this process for a push (its server takes the weights, hands them to the
# broadcaster, and takes and hands on what comes back) for each second of the background thread.
_CPU_S_PER_S = 1.5
# A push that met others on its core says more about them than about pushes: the cheapest of so many
# counts. With the dearest, one bad push would keep the actors on old weights for minutes. The very
# first one, made while broadcaster and actors start, does not count at all: nothing would be
# cheaper yet.
_RECENT = 4


class VariablePublisher:
    """Pushes weights to the broadcaster without holding the learner up.

    The learner's thread only takes references to the variables' present values: TensorFlow's
    optimizers write to a buffer of their own while somebody else holds the old one. Rounding,
    copying, checking and inserting are done by a background thread. At most one push is under
    way; what falls in between is skipped, so that the next push carries the newest weights.

    On a machine without an idle core that background work is time that the learner lacks, so
    pushes of large networks are spaced: where the cheapest of the latest ones took `t` CPU seconds
    on a machine of `c` cores, the next starts no sooner than `t / (c * share)` seconds after the
    one before. The second follows the first as if pushes cost nothing.

    Attributes:
      pushes: pushes that reached Reverb.
      version: of the newest of them; -1 before the first.
      last_push: when the newest push was started, on time.monotonic's clock.
      snapshot_s: seconds that pushing took from the learner's thread.
      encode_s: seconds of rounding, copying and checking in the background.
      insert_s: seconds in the background, with inserting and `encode_s`.
    """

    def __init__(
        self,
        variables: Mapping[str, tf.Variable],
        connection: wire.Connection,
        table: str,
        period_s: float,
        precision: str = FLOAT32,
        share: float = 0.0,
        before_push: Callable[[int], None] = lambda version: None,
    ):
        """Starts the background thread.

        Args:
          variables: name to online variable of the policy.
          connection: to the run's server.
          table: mailbox towards the broadcaster.
          period_s: least seconds between the starts of two pushes; 0: no spacing of any kind.
          precision: float32, or bfloat16: half the bytes, rounded to nearest even.
          share: largest part of the machine's time that pushes may take; 0: no limit.
          before_push: is called in the background with the version that is about to be sent; where
            it raises a WriteError, that version is not sent (of the first one: `publish` raises).
        """
        self._variables = variables
        self._connection = connection
        self._table = table
        self._period_s = period_s
        self._precision = precision
        self._before_push = before_push
        self._core_share = share * provenance.usable_cores()
        self._recent: collections.deque[float] = collections.deque(maxlen=_RECENT)
        self._not_before = -float("inf")
        self.last_push = -float("inf")
        self._pending: tuple[int, dict[str, tf.Tensor]] | None = None
        self._cold = True  # Nothing was pushed yet by this process.
        self._condition = threading.Condition()
        self._busy = False
        self._error: BaseException | None = None
        self.pushes = 0
        self.version = -1
        self.snapshot_s = 0.0
        self.encode_s = 0.0
        self.insert_s = 0.0
        threading.Thread(target=self._work, daemon=True, name="publisher").start()

    def restore(self, state: snapshots.State) -> None:
        """Continues the counters of a run that is resumed."""
        self.pushes = state.pushes
        self.snapshot_s, self.insert_s = state.push_snapshot_s, state.push_insert_s

    def publish(self, version: int, wait: bool = False) -> bool:
        """Pushes the weights if it is time and no push is under way.

        Args:
          version: of the weights, higher than any before: learner steps done, or more.
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
            elif self._busy or time.monotonic() < self._not_before:
                return False
            self._busy = True
        self.last_push = time.monotonic()
        snapshot = {name: variable.read_value() for name, variable in self._variables.items()}
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
            sent = False
            try:
                # The references end with `_message`, mostly before the optimizer's next turn.
                message = self._message(version, snapshot)
                self.encode_s += time.perf_counter() - started
                self._before_push(version)
                self._connection.publish(self._table, message)
                self.pushes += 1
                self.version = version
                sent = True
            except errors.WriteError as error:
                if self.version < 0:
                    self._error = error
                else:  # There may be room on the disk for the next one.
                    logging.warning("%s Version %d is not pushed.", error, version)
            except Exception as error:  # Raised again on the learner's thread.
                self._error = error
            seconds = time.perf_counter() - started
            self.insert_s += seconds
            if sent and not self._cold:
                self._recent.append(seconds)
            self._cold = self._cold and not sent
            with self._condition:
                self._not_before = self.last_push + self._spacing_s()
                self._busy = False
                self._condition.notify_all()

    def _spacing_s(self) -> float:
        """Returns the least seconds from the start of a push to that of the next."""
        if not self._period_s or not self._core_share or not self._recent:
            return self._period_s
        return max(self._period_s, _CPU_S_PER_S * min(self._recent) / self._core_share)

    def _message(
        self, version: int, snapshot: dict[str, tf.Tensor]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encodes the snapshot, which is emptied."""
        tensors: dict[str, model_update.Tensor] = {}
        for name in list(snapshot):
            tensor = snapshot.pop(name)
            if self._precision == BFLOAT16:
                halves = np.asarray(tf.cast(tensor, tf.bfloat16)).view(np.uint16)
                tensors[name] = model_update.Bfloat16(halves)
            else:
                tensors[name] = np.asarray(tensor)  # Of a tensor on the CPU: no copy.
        return messages.encode(
            model_update.ModelUpdate(version, forms.LEARNER_SCHEME, tensors)
        )
