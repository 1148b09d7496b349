"""The learner's main thread while the other one learns: logs, time limits and missing data.

Learner's process only; imports no torch.
"""

import time
from typing import NamedTuple

from absl import logging

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import health
from actorQ.core import run_logger
from actorQ.learner import progress as progress_lib
from actorQ.learner import training as training_lib
from actorQ.wire import connection as connection_lib

_FIRST_PUSH_AGAIN_S = 5.0  # Time between pushes of the first weights while nobody acts.
_LAST_STEP_S = 5.0  # Time for the step under way to end after a stop.
_LATE_STEP_S = 30.0  # Time for the step under way to end once --max_seconds are over.
_LOOK_S = 1.0  # Longest time between two looks whether training has to end.


class _Counts(NamedTuple):
    """Counters at one moment.

    Attributes:
      time_s: The moment, on time.monotonic's clock.
      steps: Learner steps.
      inserted: Transitions ever inserted.
    """

    time_s: float
    steps: int
    inserted: int


class Supervisor:
    """Watches over training until it ends, or ends it."""

    def __init__(
        self,
        config: config_lib.RunConfig,
        parts: training_lib.Parts,
        training: training_lib.Training,
        progress: progress_lib.Progress,
    ):
        """Takes the parts, and notes where the counters stand.

        Args:
          config: The run's configuration.
          parts: The objects that the learning thread works with.
          training: The learning thread's work, some of which this thread may take over.
          progress: State shared with the learning thread.
        """
        self._config = config
        self._parts = parts
        self._training = training
        self._progress = progress
        self._inserted_at_start = parts.connection.status().transitions_inserted
        self._last_change = _Counts(time.monotonic(), progress.steps, self._inserted_at_start)
        self._rows = run_logger.TrainRows(parts.logger, progress.steps, self._inserted_at_start)
        self._health = health.Watch(config)
        self._told: set[str] = set()  # Remarks that the log has already, by their kinds.

    def run(self) -> None:
        """Returns once training is over, or when it was told to stop and did not in time.

        Raises:
          Exception: A log, or the last policy, cannot be written, or the server is gone.
        """
        next_log = time.monotonic() + self._config.log_period_s
        while not self._progress.finished.wait(
            max(0.0, min(_LOOK_S, next_log - time.monotonic()))
        ):
            if self._progress.stop.is_set():
                # The step under way may be waiting for data that no actor sends any more.
                sound = self._progress.sound
                if not self._progress.finished.wait(_LAST_STEP_S) and sound:
                    self._training.save(last=True)
                return
            status = self._parts.connection.status()
            self.watch_data(time.monotonic(), status)
            if time.monotonic() >= next_log:
                self.log(status)
                next_log = time.monotonic() + self._config.log_period_s
            if self._overtake():
                logging.info(
                    "%g s have passed, and a learner step does not end (does it wait for data?): "
                    "training ends.", self._config.max_seconds,
                )
                self._training.wind_up()
                self._tell_findings(final=True)
                return
        self.log(self._parts.connection.status())
        if self._progress.failure is None and not self._progress.stop.is_set():
            self._tell_findings(final=True)

    def _tell_findings(self, final: bool = False) -> None:
        """Logs each remark on a stuck policy once."""
        findings = self._health.look(final)
        if findings.not_learned:
            logging.warning("%s", findings.not_learned)
        for remark in findings.remarks:
            if remark.kind not in self._told:
                self._told.add(remark.kind)
                logging.warning("%s", remark.sentence)

    def _overtake(self) -> bool:
        """Ends training if its time is over and the step under way does not come to its end."""
        limit = self._config.max_seconds
        if not limit or self._progress.stop.is_set():
            return False
        late = self._parts.logger.seconds() > limit + _LATE_STEP_S
        return late and self._progress.overtake(_LATE_STEP_S)

    def log(self, status: connection_lib.ServerStatus) -> None:
        """Writes a row about training, or ends it if a loss is NaN or infinite."""
        try:
            losses = self._training.check_losses()
        except errors.UserError as error:
            self._progress.fail(error)
            return
        steps, publisher = self._progress.steps, self._parts.publisher
        self._rows.write(
            steps,
            status.transitions_inserted,
            replay_size=status.replay_size,
            model_version=publisher.version,
            pushes=publisher.pushes,
            push_snapshot_s=publisher.snapshot_s,
            push_insert_s=publisher.insert_s,
            evaluation_s=self._parts.evaluator.seconds,
            checkpoint_s=self._parts.checkpoints.seconds,
            **losses,
        )
        self._tell_findings()

    def watch_data(self, now: float, status: connection_lib.ServerStatus) -> None:
        """Ends training when no data comes, and pushes the first weights again if nobody acts.

        Args:
          now: Time on time.monotonic's clock.
          status: The server's counters at that time.
        """
        progress, inserted = self._progress, status.transitions_inserted
        if (progress.steps, inserted) != (self._last_change.steps, self._last_change.inserted):
            self._last_change = _Counts(now, progress.steps, inserted)
        # Only a step waits for data: evaluations and the last save may take longer than the limit.
        started = None if progress.finished.is_set() else progress.step_started
        timeout_s = self._config.data_timeout
        if started is not None and now - max(self._last_change.time_s, started) > timeout_s:
            progress.starved = True
            progress.fail(errors.UserError(
                f"No transition came for {timeout_s:g} s and learning waits for data: are actors "
                "running? (See --data_timeout.)"
            ))
        nobody_acts = inserted == self._inserted_at_start and not status.pushes_waiting
        # A learner that goes on from a checkpoint may learn before anybody acts, and pushes then.
        idle_since = max(self._parts.publisher.last_push, self._last_change.time_s)
        if nobody_acts and now - idle_since > _FIRST_PUSH_AGAIN_S:
            # A broadcaster may have died with the newest weights. No others would follow them, as
            # the learner makes no step before there are actors with weights.
            self._parts.publisher.publish(progress.version)
