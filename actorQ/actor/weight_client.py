"""The actor's weights: a background thread fetches, checks and prepares newer ones.

Actor's process only. Imports Reverb through `wire`, no torch.
"""

from collections.abc import Callable
import threading
import time
from typing import Any
from typing import NamedTuple

from absl import logging

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import precisions
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.policy import inference
from actorQ.wire import connection as connection_lib
from actorQ.wire import messages

_POLL_S = 0.05


class _Look(NamedTuple):
    """The result of one look at the model table.

    Attributes:
      learner_steps: Learner steps done so far, counted like versions.
      shutdown: Whether the end of the run was announced.
      version: Version of the newest weights that this client has received.
      prepared: Newer weights as the backend loads them; None if there are none.
      refused: Why a message was refused; None if none was.
    """

    learner_steps: int
    shutdown: bool
    version: int
    prepared: Any
    refused: errors.MessageError | None = None


class WeightClient:
    """Keeps a backend's weights as new as the model table's.

    An actor calls `ask` when it is time to look, and `collect` between two steps once `ready` is
    set. A background thread does all the rest, one look at a time. Nothing is transferred when
    there are no newer weights. `collect` raises the failures of that thread. An actor without
    weights has nothing to do meanwhile and calls `update` instead.

    A message that is damaged or does not fit is refused: its reason is logged, and the weights in
    use stay. If there are no weights yet, the reason is raised, as flags may not agree.

    Attributes:
      ready: Whether the result of a look waits for `collect`.
      version: Version of the weights in use; -1 before there are any. It never goes back.
      pulls: How often weights were loaded.
      refused: Messages refused so far.
      version_offset: See `wire.card.Card`.
      staleness: Learner steps between the weights in use and the newest ones, at the last look.
        Steps are counted as batches that the learner took from replay. This count runs up to four
        batches, those in the pipeline, ahead of its steps while it never waits for data.
    """

    def __init__(
        self,
        connection: connection_lib.Connection,
        config: config_lib.RunConfig,
        architecture: architecture_lib.PolicyArchitecture,
        backend: inference.InferenceBackend,
        timings: dict[str, float],
        lowest_version: int = 0,
    ):
        """Makes a client; nothing is sent, and no thread started, yet.

        Args:
          connection: Connection to the run's server.
          config: The run's configuration.
          architecture: Shapes of the policy's weights.
          backend: The backend that computes with the weights.
          timings: Seconds of each phase, to which this client adds.
          lowest_version: Lowest version that is taken.
        """
        self._connection = connection
        self._table = config.model_table_name
        self._batch_size = config.batch_size
        self._scheme = precisions.SCHEMES[config.quantize]
        self._shapes = architecture.parameter_shapes
        self._backend = backend
        self._timings = timings
        self._seen = 0
        self._received = self._below = lowest_version - 1
        self.version_offset = 0
        self._staleness_seen: list[int] = []
        self._thread: threading.Thread | None = None
        self._asked = threading.Semaphore(0)
        self._busy = False
        self._result: _Look | Exception | None = None
        self.ready = False
        self.version = -1
        self.pulls = 0
        self.refused = 0
        self.staleness = 0

    def mean_staleness(self) -> float:
        """Returns the mean since the last call of the values before and after each look."""
        seen, self._staleness_seen = self._staleness_seen, []
        return sum(seen) / len(seen) if seen else float(self.staleness)

    def use(self, connection: connection_lib.Connection, stop: Callable[[], bool]) -> None:
        """Takes another connection, after waiting for the end of a look on the one before.

        Args:
          connection: Connection to the newest start of the learner.
          stop: Is asked now and then; ends the wait.
        """
        # The wait is bounded: a transfer notices within seconds that its server is gone.
        while self._busy and not self.ready and not stop():
            time.sleep(_POLL_S)
        self._result, self.ready, self._busy = None, False, False
        self._received = max(self.version, self._below)  # Uncollected weights are fetched again.
        self._connection = connection
        self._seen = 0

    def ask(self) -> None:
        """Makes the background thread look for newer weights, unless a look is under way."""
        if self._busy:
            return
        self._busy = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="weights")
            self._thread.start()
        self._asked.release()

    def collect(self) -> bool:
        """Takes the result of a look, after `ready`, and loads the weights that it brought.

        Returns:
          Whether the end of the run was announced.

        Raises:
          errors.LearnerGoneError: The server does not answer.
          errors.MessageError: The first weights do not fit this actor.
          RuntimeError: No look has ended.
        """
        result, self._result, self.ready, self._busy = self._result, None, False, False
        if result is None:
            raise RuntimeError("No look has ended: wait for `ready`.")
        if isinstance(result, Exception):
            raise result
        return self._finish(result)

    def update(self) -> bool:
        """Looks for newer weights and loads them, on this thread; not while a look is under way.

        Returns:
          Whether the end of the run was announced.

        Raises:
          errors.LearnerGoneError: The server does not answer.
          errors.MessageError: The first weights do not fit this actor.
        """
        if self._busy:
            raise RuntimeError("A look is under way: wait for `ready` and call `collect`.")
        return self._finish(self._look())

    def _finish(self, look: _Look) -> bool:
        self._note_staleness(look.learner_steps)
        if look.refused is not None:
            if self.version < 0:
                raise look.refused
            self.refused += 1
            logging.warning(
                "%s It is refused; acting goes on with version %d.", look.refused, self.version
            )
        if look.prepared is not None:
            started = time.perf_counter()
            self._backend.load(look.prepared)
            self._timings["load_state_dict_s"] += time.perf_counter() - started
            self.version = look.version
            self.pulls += 1
            self._note_staleness(look.learner_steps)
        return look.shutdown

    def _note_staleness(self, learner_steps: int) -> None:
        if self.version >= 0:
            self.staleness = max(0, learner_steps - self.version)
            self._staleness_seen.append(self.staleness)

    # --- On the background thread (`update` calls `_look` on the actor's) ---

    def _work(self) -> None:
        while True:
            self._asked.acquire()
            try:
                self._result = self._look()
            except Exception as error:  # `collect` raises it on the actor's thread.
                self._result = error
            self.ready = True

    def _look(self) -> _Look:
        """Asks for the server's status, and fetches and prepares weights if there are newer ones.

        No other thread adds to `pull_s`, `transfer_s` and `deserialize_s` meanwhile.
        """
        started = time.perf_counter()
        status = self._connection.status()
        learner_steps = status.transitions_sampled // self._batch_size + self.version_offset
        if status.models_published == self._seen:
            self._timings["pull_s"] += time.perf_counter() - started
            return _Look(learner_steps, status.shutdown, self._received, None)
        header, blob = self._connection.fetch(self._table)
        self._seen = status.models_published
        pulled = time.perf_counter()
        self._timings["pull_s"] += pulled - started
        self._timings["transfer_s"] += pulled - started
        prepared = refused = None
        try:
            update = messages.decode(header, blob)
            # An older message came between two looks and was taken with the one before.
            if update.version > self._received:
                messages.check(update, self._shapes, self._scheme)
                prepared = self._backend.prepare(forms.expand(update))
                self._received = update.version
        except errors.MessageError as error:
            refused = error
        self._timings["deserialize_s"] += time.perf_counter() - pulled
        return _Look(learner_steps, status.shutdown, self._received, prepared, refused)
