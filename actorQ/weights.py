"""The actor's weights: looking for newer ones, fetching, checking and loading them.

Actor's process only. Imports Reverb (and with it TensorFlow) through `wire`, no torch.
"""

import time

from actorQ import architecture as architecture_lib
from actorQ import config as config_lib
from actorQ import conversion
from actorQ import inference
from actorQ import messages
from actorQ import telemetry
from actorQ import wire


class WeightClient:
    """Keeps a backend's weights as new as the model table's, one synchronous look at a time.

    Attributes:
      version: learner steps of the weights in use; -1 before there are any.
      pulls: how often weights were loaded.
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
    ):
        self._connection = connection
        self._table = config.model_table_name
        self._batch_size = config.batch_size
        self._scheme = conversion.SCHEMES[config.quantize]
        self._shapes = architecture.parameter_shapes
        self._backend = backend
        self._timings = timings
        self._seen = 0
        self._staleness_seen: list[int] = []
        self.version = -1
        self.pulls = 0
        self.staleness = 0

    def mean_staleness(self) -> float:
        """Returns the mean staleness over the looks since the last call, before and after each."""
        seen, self._staleness_seen = self._staleness_seen, []
        return sum(seen) / len(seen) if seen else float(self.staleness)

    def update(self) -> bool:
        """Looks for newer weights and loads them; nothing is transferred when there are none.

        Returns:
          Whether the end of the run was announced.

        Raises:
          errors.LearnerGoneError: the server does not answer.
          errors.MessageError: the weights do not fit this actor.
        """
        started = time.perf_counter()
        status = self._connection.status()
        learner_steps = status.transitions_sampled // self._batch_size
        self._note_staleness(learner_steps)
        if status.models_published == self._seen:
            self._timings.add("pull_s", time.perf_counter() - started)
            return status.shutdown
        header, blob = self._connection.fetch(self._table)
        self._seen = status.models_published
        pulled = time.perf_counter()
        self._timings.add("pull_s", pulled - started)
        update = messages.decode(header, blob)
        if update.version <= self.version:
            return status.shutdown  # It came between two looks and was taken with the one before.
        messages.check(update, self._shapes, self._scheme)
        prepared = self._backend.prepare(conversion.expand(update))
        deserialized = time.perf_counter()
        self._timings.add("deserialize_s", deserialized - pulled)
        self._backend.load(prepared)
        self._timings.add("load_state_dict_s", time.perf_counter() - deserialized)
        self.version = update.version
        self.pulls += 1
        self._note_staleness(learner_steps)
        return status.shutdown

    def _note_staleness(self, learner_steps: int) -> None:
        if self.version >= 0:
            self.staleness = max(0, learner_steps - self.version)
            self._staleness_seen.append(self.staleness)
