"""The learner's end of the parameter path: pushes weights to the broadcaster, in the background.

Learner's process only; imports TensorFlow, no torch.
"""

from collections.abc import Mapping
import threading
import time

import numpy as np
import tensorflow as tf

from actorQ import conversion
from actorQ import messages
from actorQ import wire


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
