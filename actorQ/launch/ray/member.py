"""One process of a run on a Ray cluster, as the launcher sees it. Imports Ray when it is used."""

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import os
import time
from typing import Any

from actorQ.core import errors
from actorQ.core import snapshots
from actorQ.core import telemetry
from actorQ.launch import processes
from actorQ.launch import status_line
from actorQ.launch.ray import mirroring
from actorQ.launch.ray import worker

_LEARNER_ANSWER_S = 1.0  # Time for the learner's worker to answer.
_PEER_ANSWER_S = 0.05  # Time for a peer's worker to answer; a late answer counts in a later round.
_UNSEEN_S = 60.0  # Longest time that the learner's machine may not answer.
_LAST_ROWS_S = 5.0  # Time for a process that ended to hand over what it wrote.
_PLACED_S = 20.0  # A process that has not answered for so long counts as not placed.
_RESTART_S = 20.0  # Time for a worker to start its process again.
_CLOSE_S = 5.0
_LOST_CODE = -1  # Code of a process that was lost with its worker: it did not end itself.

# Starts a process somewhere, with arguments besides its own; returns a handle of `worker.Worker`.
Place = Callable[[Sequence[str]], Any]


class Member(processes.Process):
    """One process of the run, wherever it is.

    Attributes:
      place: Where its files are, for messages; "" until its worker has answered.
      handle: Handle of the Ray actor `worker.Worker`; None before the start and after the end.
    """

    _answer_s = _PEER_ANSWER_S

    def __init__(
        self, name: str, run_folder: str, place: Place, status: status_line.StatusLine,
        waits: Callable[["Member"], None],
    ):
        """Describes the process; `start` starts it.

        Args:
          name: Name in the logs.
          run_folder: Folder here that mirrors whatever the process writes.
          place: Starts the process somewhere.
          status: Line that tells people how the run does.
          waits: Called with this member as long as it has no place.
        """
        super().__init__(
            name, os.path.join(run_folder, telemetry.STDOUT_FOLDER, f"{name}.log")
        )
        self.place = ""
        self.handle: Any = None
        self._start_somewhere = place
        self._sink = mirroring.Sink(run_folder)
        self._store = snapshots.Store(run_folder)
        self._status = status
        self._waits = waits
        self._complete = False  # Whether the process has ended and all that it wrote is here.
        self._ended_at: float | None = None
        self._death = ""  # Why the worker died.
        self._lost = False  # Whether the machine does not answer.
        self._incarnation = ""
        self._pending: Any = None

    def start(self, *arguments: str) -> None:
        """Starts the process on a machine that Ray chooses."""
        self.kill()
        self._begin_life()
        self.place, self._incarnation = "", ""
        self.handle = self._start_somewhere(arguments)

    def _begin_life(self) -> None:
        self._note_start()
        self.code, self._complete, self._ended_at, self._death = None, False, None, ""
        self._pending = None

    @property
    def waited_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started_at

    def _has_place(self) -> bool:
        """Returns whether the process is on a machine, or may be so any moment."""
        return self.handle is not None and (bool(self.place) or self.waited_s < _PLACED_S)

    def describe_end(self) -> str:
        """Returns how the process ended, as the rest of a sentence."""
        if self._death:
            return f"was lost with its worker: {self._death}"
        return super().describe_end()

    def poll(self) -> int | None:
        """Asks how the process does, and mirrors what it wrote.

        Returns:
          The exit code, once all that the process wrote is here or is late.
        """
        import ray

        try:
            answered = self._ask(self._answer_s)
        except ray.exceptions.RayError as error:
            return self._note_silence(error)
        if not answered:
            if not self.place:
                self._waits(self)
            return None
        if self._lost:
            self._lost = False
            self._status.say(f"{self.name} is back, on {self._node()}.")
        if self.code is None:
            return None
        self._ended_at = self._ended_at or time.monotonic()
        late = time.monotonic() - self._ended_at > _LAST_ROWS_S
        return self.code if self._complete or late else None

    def _note_silence(self, error: Exception) -> int | None:
        """Returns the code of a process whose worker does not answer."""
        import ray

        if isinstance(error, ray.exceptions.ActorUnavailableError):
            if not self._lost:
                self._lost = True
                self._status.say(
                    f"{self.name} was lost with {self._node()}; Ray starts it elsewhere."
                )
            return None
        # The worker died, or could not say how its process does.
        self.code, self._death = _LOST_CODE, errors.summary(error)
        return self.code

    def _node(self) -> str:
        return self.place.partition(":")[0]

    def _ask(self, timeout_s: float) -> bool:
        """Takes a report of the worker; returns whether one came. A later call takes a late one.

        Raises:
          ray.exceptions.RayError: The worker is gone for good, or for now.
        """
        import ray

        if self._pending is None:
            marks = self._sink.acknowledged(self._incarnation)
            self._pending = self.handle.report.remote(self._incarnation, marks)
        done, _ = ray.wait([self._pending], timeout=timeout_s)
        if not done:
            return False
        reference, self._pending = self._pending, None
        self._take(ray.get(reference))
        return True

    def _take(self, report: worker.Report) -> None:
        self._incarnation = report.incarnation
        self._sink.take(report.incarnation, report.replaces, report.pieces)
        self.code = report.code
        self._complete = report.code is not None and not report.pieces
        self.place = f"{report.node}:{report.folder}"

    def wait(self, timeout_s: float) -> bool:
        """Waits until the process has ended and all that it wrote is here.

        Returns:
          Whether that is so, or nothing more can come: it has no place, or its machine is gone.
        """
        deadline = time.monotonic() + timeout_s
        while self._has_place() and not self._complete:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            try:
                self._ask(min(0.5, left))
            except Exception:
                return True
            if not self._complete:
                time.sleep(min(0.1, left))
        return True

    def terminate(self) -> None:
        """Asks the process to end."""
        if self._has_place() and self.code is None:
            with contextlib.suppress(Exception):  # Its machine may be gone.
                self.handle.terminate.remote()

    def kill(self) -> None:
        """Ends the process and its Ray actor; says so where what it wrote is not all here."""
        if self.handle is None:
            return
        import ray

        if self._has_place():  # A process without a place has no files, and would not answer.
            try:
                # Its files stay where not all of them are here.
                ray.get(self.handle.close.remote(keep=not self._complete), timeout=_CLOSE_S)
                if not self._complete and self.place:
                    self._status.say(f"Not all that {self.name} wrote is here: see {self.place}.")
            except ray.exceptions.RayError:
                if not self._complete:
                    self._status.say(f"What {self.name} wrote last may be lost with its worker.")
        with contextlib.suppress(Exception):
            ray.kill(self.handle, no_restart=True)
        self.handle = None


class Learner(Member):
    """The learner's process, which stays on its machine as long as the run does."""

    _answer_s = _LEARNER_ANSWER_S
    _unseen_since: float | None = None
    _checkpoint = ""
    _saving = False

    def start(self, *arguments: str) -> None:
        """Starts the learner; at a restart it goes on where it was."""
        if self.handle is None:
            super().start(*arguments)
            return
        import ray

        self._begin_life()
        with contextlib.suppress(ray.exceptions.RayError):  # The next look says what is wrong.
            ray.get(self.handle.restart.remote(arguments), timeout=_RESTART_S)

    def _note_silence(self, error: Exception) -> int | None:
        """Waits for a machine that is away for less than a minute.

        Raises:
          errors.UserError: The machine is gone.
        """
        import ray

        unseen = self._unseen_since = self._unseen_since or time.monotonic()
        for_now = isinstance(error, ray.exceptions.ActorUnavailableError)
        if for_now and time.monotonic() - unseen < _UNSEEN_S:
            return None
        left = "The run can go on from its newest checkpoint."
        if not self._store.newest_name():  # Checkpoints were on that machine, too.
            left = "Replay was there; the newest policy is in the run's folder here."
        raise errors.UserError(f"The learner's machine is gone ({errors.summary(error)}). {left}")

    def _take(self, report: worker.Report) -> None:
        super()._take(report)
        self._unseen_since = None
        self._checkpoint, self._saving = report.checkpoint, report.saving

    def newest_name(self) -> str:
        """Returns a name that tells the newest checkpoint from others; "" if there is none."""
        return self._checkpoint

    def being_written(self) -> bool:
        """Returns whether a checkpoint is not complete, or not all of the learner's files came."""
        return self._saving or (self.code is not None and not self._complete)
