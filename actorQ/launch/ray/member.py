"""One process of a run on a Ray cluster, as seen from the launcher. Imports Ray when it is used."""

import contextlib
import time
from typing import Any

from actorQ.launch.ray import mirroring
from actorQ.launch.ray import worker

_CLOSE_S = 5.0


class Member:
    """One process of the run, wherever it is.

    Attributes:
      name: in the logs.
      handle: Ray actor of `ray_worker.Worker`.
      code: exit code as far as known, None while it runs.
      reason: why it ended.
      place: where its files are, for messages.
      restarts: how often a learner was resumed on its machine.
      lost: whether its machine does not answer.
      complete: whether it has ended and all that it wrote is here.
    """

    def __init__(self, name: str, handle: Any, sink: mirroring.Sink):
        """Takes a Ray actor whose process was started just now."""
        self.name = name
        self.handle = handle
        self.code: int | None = None
        self.reason = ""
        self.place = ""
        self.restarts = 0
        self.lost = False
        self.complete = False
        self.started = time.monotonic()
        self._sink = sink
        self._incarnation = ""
        self._pending: Any = None

    def poll(self, timeout_s: float) -> bool:
        """Asks how the process does, and mirrors what it wrote.

        Args:
          timeout_s: to wait for the answer; one that is late is taken by a later call.

        Returns:
          Whether an answer came.

        Raises:
          ray.exceptions.RayError: the worker is gone for good, or for now.
        """
        import ray

        if self._pending is None:
            marks = self._sink.acknowledged(self._incarnation)
            self._pending = self.handle.report.remote(self._incarnation, marks)
        done, _ = ray.wait([self._pending], timeout=timeout_s)
        if not done:
            return False
        reference, self._pending = self._pending, None
        report: worker.Report = ray.get(reference)
        self._incarnation = report.incarnation
        self._sink.take(report.incarnation, report.replaces, report.pieces)
        self.complete = report.code is not None and not report.pieces
        self.code, self.reason = report.code, report.reason
        self.restarts, self.place = report.restarts, f"{report.node}:{report.folder}"
        return True

    @property
    def node(self) -> str:
        """Address of its machine, "" before it is known."""
        return self.place.partition(":")[0]

    def drop(self) -> None:
        """Gives up a process that was not placed on any machine: it has no files and no answers."""
        import ray

        with contextlib.suppress(Exception):
            ray.kill(self.handle, no_restart=True)

    def close(self) -> bool:
        """Ends the process, and the Ray actor.

        Returns:
          Whether nothing that it wrote is lost: its files stay where not all of them are here,
          if its worker can be reached.
        """
        import ray

        safe = self.complete
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self.handle.close.remote(keep=not self.complete), timeout=_CLOSE_S)
            safe = True
        with contextlib.suppress(Exception):
            ray.kill(self.handle, no_restart=True)
        return safe
