"""Writes the logs of one process of a run: CSV files and TensorBoard scalars (`telemetry` reads).

Imports TensorBoard when a logger is made, and keeps it from importing TensorFlow.
"""

from collections.abc import Mapping
import contextlib
import csv
import math
import os
import threading
import time
from typing import Any

from absl import logging

from actorQ.core import errors
from actorQ.core import files
from actorQ.core import lean_imports
from actorQ.core import telemetry
from actorQ.core import tracking

_TENSORBOARD_PERIOD_S = 1.0
_COMPLAINT_PERIOD_S = 60.0  # Time between two warnings about logs that cannot be written.
_PATIENCE_S = 60.0  # Longest wait for a folder that was there before.
_PATIENT_LOOK_S = 0.5
_NO_ROOM_S = 1.0  # Time without another try after a row that could not be written.


class RunLogger:
    """Writes the CSV files and TensorBoard scalars of one process.

    Rows are flushed as they are written, so that a killed process loses none. Where the disk is
    full, rows are lost with a warning, and the run goes on. TensorBoard gets at most one point a
    second from each file: short episodes end hundreds of times a second, and a point costs many
    times as much as a CSV row.

    Attributes:
      tracker: Gets the same points as TensorBoard; None: there is no other service.
    """

    def __init__(
        self,
        run_folder: str,
        process: str,
        start_time: float = 0.0,
        purge_step: int | None = None,
        again: bool = False,
    ):
        """Opens (or makes) the process's folder.

        Args:
          run_folder: The run's folder.
          process: Name of the process, which is also the name of its folder.
          start_time: Seconds since 1970 from which the field `seconds` counts; 0 is now.
          purge_step: Step from which on TensorBoard forgets its points; None: it keeps all.
          again: Whether the process was started again in a run under way. Its folder is then
            waited for: it was there before, and may be back in a minute.

        Raises:
          errors.UserError: The folder cannot be written.
        """
        now = time.time()
        self.start_time = start_time or now
        # Once it runs, the clock of the run does not follow changes of the machine's clock.
        self._seconds_before, self._began = now - self.start_time, time.monotonic()
        if again:  # The machine's clock may have been set back since.
            last = telemetry.last_seconds(run_folder)
            self._seconds_before = max(self._seconds_before, last)
        self.folder = os.path.join(run_folder, process)
        _require_folder(self.folder, _PATIENCE_S if again else 0.0)
        self._lock = threading.Lock()  # The learner logs from two threads.
        self._files: dict[str, Any] = {}
        self._lengths: dict[str, int] = {}
        self._next_point: dict[str, float] = {}
        self._next_row = self._next_complaint = self._next_tensorboard = 0.0
        self._tensorboard: Any = None
        self.tracker: tracking.Tracker | None = None
        self.rows_lost = 0
        try:
            # TensorBoard would load TensorFlow for its files unless it is loaded already. Once it
            # has found none it never looks again.
            with lean_imports.without("tensorflow"):
                if purge_step is not None:
                    _purge_tensorboard(self.folder, purge_step)
                self._tensorboard = _tensorboard_writer(self.folder)
        except Exception as error:  # OSError, or TensorFlow's own: the disk is full already.
            self._complain(error)

    def seconds(self) -> float:
        """Returns the seconds since `start_time`, the field of that name."""
        return self._seconds_before + time.monotonic() - self._began

    def write(self, filename: str, step: int, **values: float) -> None:
        """Appends one row to `filename`, and its scalars to TensorBoard at `step`.

        Args:
          filename: One of the keys of `telemetry.FIELDS`.
          step: TensorBoard's step: learner steps or actor steps, as the file counts.
          **values: The row without its time fields; fields left out stay empty.
        """
        row = {"seconds": f"{self.seconds():.3f}", "unix_time": f"{time.time():.3f}"}
        row |= {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in values.items()}
        with self._lock:
            self._write_row(filename, row)
            self._write_points(filename, step, values)

    def _write_row(self, filename: str, row: Mapping[str, Any]) -> None:
        if time.monotonic() < self._next_row:
            self.rows_lost += 1
            return
        try:
            writer, file = self._open(filename, row)
            writer.writerow(row)
            file.flush()
        except OSError as error:
            self.rows_lost += 1
            self._next_row = time.monotonic() + _NO_ROOM_S
            self._complain(error)
            self._close_files()  # A half-written row is removed when the file is opened again.

    def _write_points(self, filename: str, step: int, values: Mapping[str, float]) -> None:
        now = time.monotonic()
        if now < self._next_point.get(filename, 0.0):
            return
        self._next_point[filename] = now + _TENSORBOARD_PERIOD_S
        log = filename[:-4]
        scalars = {f"{log}/{name}": float(value) for name, value in values.items()}
        if self.tracker is not None:
            self.tracker.write(log, step, scalars)
        if now < self._next_tensorboard:
            return
        try:
            if self._tensorboard is None:
                self._tensorboard = _tensorboard_writer(self.folder)
            for name, value in scalars.items():
                self._tensorboard.add_scalar(name, value, step)
        except Exception as error:  # TensorBoard's own thread may meet one of any type.
            self._next_tensorboard = time.monotonic() + _COMPLAINT_PERIOD_S
            self._complain(error)
            self._close_tensorboard()

    def _complain(self, error: Exception) -> None:
        if time.monotonic() >= self._next_complaint:
            self._next_complaint = time.monotonic() + _COMPLAINT_PERIOD_S
            lost = "TensorBoard lacks points"
            if self.rows_lost:
                lost = f"{self._lost_rows()} so far"
            logging.warning(
                "Cannot write logs to %s (%s): %s; the run goes on.",
                self.folder, errors.summary(error), lost,
            )

    def _lost_rows(self) -> str:
        return "1 row is lost" if self.rows_lost == 1 else f"{self.rows_lost} rows are lost"

    def _open(self, filename: str, row: Mapping[str, Any]) -> tuple[csv.DictWriter, Any]:
        if filename not in self._files:
            path = os.path.join(self.folder, filename)
            new = not os.path.exists(path) or files.drop_half_row(path) == 0
            # A file of another version keeps its columns: readers drop rows of other lengths.
            fields = telemetry.fields_of(filename, row) if new else _header(path)
            file = open(path, "a", newline="", encoding="utf-8")  # noqa: SIM115 (closed in close)
            # A first row that is lost with a full disk may leave columns of layers out.
            strict = new and filename not in telemetry.LAYER_PREFIXES
            writer = csv.DictWriter(
                file, fields, restval="", extrasaction="raise" if strict else "ignore"
            )
            if new:
                writer.writeheader()
            self._files[filename] = (writer, file)
        return self._files[filename]

    def lengths(self) -> dict[str, int]:
        """Returns the lengths of the logs, name to bytes, even where their folder is away."""
        with self._lock:
            self._note_lengths()
            return dict(self._lengths)

    def _note_lengths(self) -> None:
        with contextlib.suppress(OSError):  # A network disk may be away.
            self._lengths |= telemetry.log_bytes(self.folder)
        for name, (_, file) in self._files.items():
            with contextlib.suppress(OSError):
                self._lengths[name] = os.fstat(file.fileno()).st_size

    def close(self) -> None:
        """Flushes and closes all files."""
        with self._lock:
            if self.rows_lost:
                logging.warning("Logs in %s lack rows: %s.", self.folder, self._lost_rows())
            self._close_files()
            self._close_tensorboard()
            if self.tracker is not None:
                self.tracker.close()
                self.tracker = None

    def _close_files(self) -> None:
        self._note_lengths()
        for _, file in self._files.values():
            with contextlib.suppress(OSError):  # Closing writes rows that were not written before.
                file.close()
        self._files = {}

    def _close_tensorboard(self) -> None:
        if self._tensorboard is not None:
            with contextlib.suppress(Exception):
                self._tensorboard.flush()
            with contextlib.suppress(Exception):
                self._tensorboard.close()
        self._tensorboard = None


class TrainRows:
    """Writes the rows of a training, each with the rates since the row before."""

    def __init__(
        self, logger: RunLogger, learner_steps: int = 0, actor_steps: int = 0
    ):
        """Notes where the counters stand.

        Args:
          logger: Log of the learner's process.
          learner_steps: Learner steps done.
          actor_steps: Environment steps of all actors.
        """
        self._logger = logger
        self._last = (time.monotonic(), learner_steps, actor_steps)

    @property
    def age_s(self) -> float:
        """Seconds since the last row."""
        return time.monotonic() - self._last[0]

    def write(self, learner_steps: int, actor_steps: int, **columns: float) -> None:
        """Writes a row.

        Args:
          learner_steps: Learner steps done.
          actor_steps: Environment steps of all actors.
          **columns: Further columns of telemetry.TRAIN_FIELDS.
        """
        moment_before, learned_before, acted_before = self._last
        self._last = (time.monotonic(), learner_steps, actor_steps)
        seconds = max(self._last[0] - moment_before, 1e-9)
        self._logger.write(
            telemetry.TRAIN_CSV,
            learner_steps,
            learner_steps=learner_steps,
            learner_steps_per_s=(learner_steps - learned_before) / seconds,
            actor_steps=actor_steps,
            actor_steps_per_s=(actor_steps - acted_before) / seconds,
            **columns,
        )


def check_losses(losses: Mapping[str, float], learner_steps: int, advice: str = "") -> None:
    """Checks that training has not diverged.

    Args:
      losses: Losses by name.
      learner_steps: Learner steps done.
      advice: Sentence for the end of the message.

    Raises:
      errors.UserError: A loss is NaN or infinite.
    """
    for name, value in losses.items():
        if not math.isfinite(value):
            raise errors.UserError(
                f"{name} is {value} after {learner_steps} learner steps: {errors.DIVERGED} and "
                f"ends. {advice}".rstrip()
            )


def _require_folder(folder: str, patience_s: float) -> None:
    """Makes a folder, or waits until it can be used.

    Raises:
      errors.UserError: The folder cannot be used even after that time.
    """
    deadline = time.monotonic() + patience_s
    said = False
    while True:
        try:
            os.makedirs(folder, exist_ok=True)
            reason = "" if os.access(folder, os.W_OK) else "permission denied"
        except OSError as error:
            reason = error.strerror or str(error)
        if not reason:
            return
        if time.monotonic() >= deadline:
            raise errors.UserError(f"Cannot write logs to {folder}: {reason}.")
        if not said:
            logging.warning(
                "Cannot write logs to %s (%s): waiting up to %g s.", folder, reason, patience_s
            )
            said = True
        time.sleep(_PATIENT_LOOK_S)


def _tensorboard_writer(folder: str) -> Any:
    # Imported here: reading logs must not pay for it.
    from tensorboard.summary import Writer

    _silence_tensorboard_threads()
    return Writer(folder)


def _silence_tensorboard_threads() -> None:
    """Keeps stack traces of TensorBoard's writer off the terminal: the logger warns instead."""
    before = threading.excepthook
    if getattr(before, "silences_tensorboard", False):
        return

    def hook(arguments: Any) -> None:
        if not type(arguments.thread).__module__.startswith("tensorboard"):
            before(arguments)

    hook.silences_tensorboard = True  # type: ignore[attr-defined]
    threading.excepthook = hook


def _purge_tensorboard(folder: str, step: int) -> None:
    """Writes an event file that makes readers forget the points at `step` and after it."""
    from tensorboard.compat.proto import event_pb2
    from tensorboard.summary.writer import event_file_writer

    writer = event_file_writer.EventFileWriter(folder)
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    for _ in range(2):  # Readers take the first of them for the start of the run.
        writer.add_event(event_pb2.Event(wall_time=time.time(), step=step, session_log=start))
    writer.close()


def _header(path: str) -> list[str]:
    """Returns the names of a log's columns."""
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        return next(csv.reader(file))
