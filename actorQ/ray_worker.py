"""One of ActorQ's processes on a machine of a Ray cluster: started, watched, and read from afar.

`launch_ray` makes a Ray actor of `Worker`. The process itself is the same that `launcher` starts: a
child of the Ray worker, which ends with it. Imports no framework, and Ray only to ask where it is.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import os
import secrets
import shutil
import sys
import tempfile
import time
from typing import NamedTuple

from actorQ import mirroring
from actorQ import processes
from actorQ import snapshots
from actorQ import telemetry

LEARNER_MODULE = "actorQ.learner_main"
_MAX_FAILURES = 3
_ADDRESS_POLL_S = 0.1


class Report(NamedTuple):
    """How a process does.

    Attributes:
      incarnation: of its files, see `mirroring.Source`.
      replaces: likewise.
      pieces: of its files.
      code: exit code, None while it runs.
      reason: why it ended, in a line; empty while it runs or where all is well.
      restarts: how often the worker has started it again.
      node: host name of its machine.
    """

    incarnation: str
    replaces: bool
    pieces: list[mirroring.Piece]
    code: int | None
    reason: str
    restarts: int
    node: str


class Worker:
    """Starts a process in a folder of this machine and tells how it does."""

    def __init__(self, name: str, module: str, flags: Sequence[str], host: str, again: bool):
        """Starts the process.

        Args:
          name: of the process in the logs.
          module: to run with Python.
          flags: of the process; --logpath, and for the learner --port, are added here.
          host: address of this machine in the cluster; empty: Ray is asked.
          again: whether this takes the place of a process that ended: its seeds must differ.
        """
        self._name = name
        self._host = host or _node_address()
        self._folder = tempfile.mkdtemp(prefix=f"actorq_{name}_")
        self._learner = module == LEARNER_MODULE
        os.makedirs(os.path.join(self._folder, telemetry.STDOUT_FOLDER))
        log = os.path.join(self._folder, telemetry.STDOUT_FOLDER, f"{name}.log")
        command = [sys.executable, "-m", module, *flags, f"--logpath={self._folder}"]
        self._port = processes.free_port() if self._learner else 0
        if self._learner:
            command.append(f"--port={self._port}")
        if again or _reconstructed():
            command.append(f"--restarts={1 + secrets.randbelow(10**6)}")
        self._source = mirroring.Source(self._folder)
        self._process = processes.Child(name, command, log, None)
        self._process.start()

    def node_id(self) -> str:
        """Returns Ray's name of this machine."""
        import ray

        return ray.get_runtime_context().get_node_id()

    def address(self, timeout_s: float) -> str:
        """Waits until the learner's server is up; returns HOST:PORT, or "" if it does not come."""
        deadline = time.monotonic() + timeout_s
        path = os.path.join(self._folder, telemetry.ADDRESS_FILENAME)
        while time.monotonic() < deadline and self._process.poll() is None:
            if os.path.exists(path):
                return f"{self._host}:{self._port}"
            time.sleep(_ADDRESS_POLL_S)
        return ""

    def report(self, incarnation: str, acknowledged: Mapping[str, int]) -> Report:
        """Tells how the process does, and hands out what it wrote.

        Args:
          incarnation: that the caller has marks of.
          acknowledged: its marks.
        """
        code = self._process.poll()
        if code is not None and code < 0 and self._learner and self._resume():
            code = None
        known = acknowledged if incarnation == self._source.incarnation else {}
        reason = ""
        if code:
            reason = self._process.error_line() or self._process.last_line()
            reason = f"it {processes.describe_exit(code)}: {reason}"
        return Report(
            self._source.incarnation, self._source.replaces, self._source.news(known), code,
            reason, self._process.restarts, self._host,
        )

    def _resume(self) -> bool:
        """Starts a learner again that was ended by a signal, from its checkpoint."""
        snapshot = snapshots.Store(self._folder).newest_name()
        if not snapshot or self._process.note_failure(snapshot) >= _MAX_FAILURES:
            return False
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self._folder, telemetry.ADDRESS_FILENAME))
        self._process.restart("--resume", f"--restarts={1 + secrets.randbelow(10**6)}")
        self._source.rewrite()
        return True

    def terminate(self) -> None:
        """Asks the process to end."""
        self._process.terminate()

    def close(self) -> None:
        """Ends the process at once and deletes its folder, whose files the caller has."""
        self._process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def _node_address() -> str:
    import ray

    return ray.util.get_node_ip_address()


def _reconstructed() -> bool:
    try:
        import ray

        return ray.get_runtime_context().was_current_actor_reconstructed
    except (ImportError, AttributeError, RuntimeError):
        return False
