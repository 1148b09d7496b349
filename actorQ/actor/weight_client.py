"""The actor's weights: newer ones are fetched, checked and prepared beside its steps.

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
from actorQ.core import telemetry
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.policy import inference
from actorQ.wire import connection as wire
from actorQ.wire import messages

_POLL_S = 0.05


class _Look(NamedTuple):
    """What one look at the model table gave."""

    learner_steps: int  # As versions count them.
    shutdown: bool
    version: int  # Of the newest weights that this client has received.
    prepared: Any  # What the backend loads; None when there was nothing newer.
    refused: errors.MessageError | None = None  # Why a message that came was not taken.


class WeightClient:
    """Keeps a backend's weights as new as the model table's.

    An actor calls `ask` when it is time to look, and `collect` between two steps once `ready` is
    set; a background thread does all the rest, one look at a time. Nothing is transferred when
    there are no newer weights. What goes wrong in that thread is raised by `collect`.

    The first weights, without which there is nothing to do, are awaited with `update`.

    A message that is damaged or does not fit is refused, with its reason in the log, and the
    weights in use stay. But where there are none yet it is raised: then flags may not agree.

    Attributes:
      ready: whether a look has ended whose result waits for `collect`.
      version: of the weights in use: learner steps, and more after a crash of the learner; -1
        before there are any. Never goes back.
      pulls: how often weights were loaded.
      refused: how many messages were refused.
      version_offset: see `wire.card.Card`.
      staleness: learner steps done since the weights in use were the newest, at the last look.
        Steps are counted as batches that the learner took from replay, which runs up to four
        ahead of its steps (batches in the pipeline) while it never waits for data.
    """

    def __init__(
        self,
        connection: wire.Connection,
        config: config_lib.RunConfig,
        architecture: architecture_lib.PolicyArchitecture,
        backend: inference.InferenceBackend,
        timings: telemetry.Timings,
        lowest_version: int = 0,
    ):
        """Makes a client; nothing is sent, and no thread started, yet.

        Args:
          connection: to the run's server.
          config: of the run.
          architecture: of the policy.
          backend: that weights are for.
          timings: where seconds are added.
          lowest_version: older weights are not taken.
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
        """Returns the mean staleness over the looks since the last call, before and after each."""
        seen, self._staleness_seen = self._staleness_seen, []
        return sum(seen) / len(seen) if seen else float(self.staleness)

    def use(self, connection: wire.Connection, stop: Callable[[], bool]) -> None:
        """Takes another connection, after waiting for the end of a look on the one before.

        Args:
          connection: to the learner as it was started last.
          stop: asked now and then; ends the wait.
        """
        # Bounded: a transfer notices within seconds that its server is gone.
        while self._busy and not self.ready and not stop():
            time.sleep(_POLL_S)
        self._result, self.ready, self._busy = None, False, False
        self._received = max(self.version, self._below)  # What was not collected is fetched again.
        self._connection = connection
        self._seen = 0

    def ask(self) -> None:
        """Has the background thread look for newer weights, unless a look is still under way."""
        if self._busy:
            return
        self._busy = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="weights")
            self._thread.start()
        self._asked.release()

    def collect(self) -> bool:
        """Takes the result of a look, after `ready`; loads weights if it brought any.

        Returns:
          Whether the end of the run was announced.

        Raises:
          errors.LearnerGoneError: the server does not answer.
          errors.MessageError: the first weights do not fit this actor.
        """
        result, self._result, self.ready, self._busy = self._result, None, False, False
        if isinstance(result, Exception):
            raise result
        return self._finish(result)

    def update(self) -> bool:
        """Looks for newer weights and loads them, on this thread; not while a look is under way.

        Returns:
          Whether the end of the run was announced.

        Raises:
          errors.LearnerGoneError: the server does not answer.
          errors.MessageError: the first weights do not fit this actor.
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
            self._timings.add("load_state_dict_s", time.perf_counter() - started)
            self.version = look.version
            self.pulls += 1
            self._note_staleness(look.learner_steps)
        return look.shutdown

    def _note_staleness(self, learner_steps: int) -> None:
        if self.version >= 0:
            self.staleness = max(0, learner_steps - self.version)
            self._staleness_seen.append(self.staleness)

    # --- On the background thread (on the actor's in `update`) ---

    def _work(self) -> None:
        while True:
            self._asked.acquire()
            try:
                self._result = self._look()
            except Exception as error:  # Raised again on the actor's thread.
                self._result = error
            self.ready = True

    def _look(self) -> _Look:
        """Asks for the server's status, and fetches and prepares weights if there are newer ones.

        Seconds of `pull_s` and `deserialize_s` are added by no other thread meanwhile.
        """
        started = time.perf_counter()
        status = self._connection.status()
        learner_steps = status.transitions_sampled // self._batch_size + self.version_offset
        if status.models_published == self._seen:
            self._timings.add("pull_s", time.perf_counter() - started)
            return _Look(learner_steps, status.shutdown, self._received, None)
        header, blob = self._connection.fetch(self._table)
        self._seen = status.models_published
        pulled = time.perf_counter()
        self._timings.add("pull_s", pulled - started)
        self._timings.add("transfer_s", pulled - started)
        prepared = refused = None
        try:
            update = messages.decode(header, blob)
            # Otherwise it came between two looks and was taken with the one before.
            if update.version > self._received:
                messages.check(update, self._shapes, self._scheme)
                prepared = self._backend.prepare(forms.expand(update))
                self._received = update.version
        except errors.MessageError as error:
            refused = error
        self._timings.add("deserialize_s", time.perf_counter() - pulled)
        return _Look(learner_steps, status.shutdown, self._received, prepared, refused)
