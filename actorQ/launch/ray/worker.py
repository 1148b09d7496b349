"""One of ActorQ's processes on a machine of a Ray cluster: started, watched, and read from afar.

`launch.ray.run` makes a Ray actor of `Worker`. The process is the same that `launcher` starts: a
child of the Ray worker, which ends with it. The learner works in the run's folder where its machine
has it, too: checkpoints outlive the machine there. All other processes work in folders of their
own, whose files are mirrored. Imports no framework, and Ray only to ask where it is.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import glob
import os
import secrets
import shutil
import sys
import tempfile
import time
from typing import NamedTuple

from actorQ.core import energy
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import ports
from actorQ.core import snapshots
from actorQ.core import telemetry
from actorQ.launch import processes
from actorQ.launch.ray import mirroring

_PREFIX = "actorq_worker_"
_KEPT_FILENAME = "kept"  # Marks a folder that outlives its worker on purpose.
_YOUNG_S = 60.0  # Age of a folder below which its worker may not have locked it yet.


class Report(NamedTuple):
    """Tells how a process does.

    Attributes:
      incarnation: Incarnation of its files, see `mirroring.Source`.
      replaces: Whether they replace those before, see `mirroring.Source`.
      pieces: Pieces of its files.
      code: Exit code, None while it runs.
      checkpoint: Name of the newest checkpoint, "" where there is none.
      saving: Whether a checkpoint is being written.
      node: Address of its machine.
      folder: Folder of its files there.
    """

    incarnation: str
    replaces: bool
    pieces: list[mirroring.Piece]
    code: int | None
    checkpoint: str
    saving: bool
    node: str
    folder: str


class Worker:
    """Starts a process in a folder of this machine and tells how it does."""

    def __init__(
        self, name: str, module: str, flags: Sequence[str], host: str, country: str = "",
        mark: str = "",
    ):
        """Starts the process.

        Args:
          name: Name of the process in the logs.
          module: Module that Python runs.
          flags: Flags of the process; --logpath, and the learner's --port, are added here.
          host: Address of this machine in the cluster; empty: Ray is asked.
          country: Country of the run's CO2 (`energy`); empty: as this machine has it.
          mark: File in the run's folder on the launcher's machine. Where it is here, too, the
            learner works in that folder. Folders of its own have the same name. Empty: there is
            no such folder.
        """
        if country:
            os.environ[energy.COUNTRY_VARIABLE] = country
        self._name = name
        self._host = host or _node_address()
        sweep()
        self._home = tempfile.mkdtemp(prefix=f"{_PREFIX}{name}_")
        self._lock = contextlib.ExitStack()
        self._lock.enter_context(files.locked(self._home))
        run_folder = os.path.dirname(mark)
        own_folder = os.path.join(self._home, os.path.basename(run_folder) or "run")
        is_learner = module == processes.LEARNER_MODULE
        self._shares_folder = is_learner and os.path.exists(mark)
        self._folder = run_folder if self._shares_folder else own_folder
        self._store = snapshots.Store(self._folder)
        os.makedirs(os.path.join(self._folder, telemetry.STDOUT_FOLDER), exist_ok=True)
        log = os.path.join(self._folder, telemetry.STDOUT_FOLDER, f"{name}.log")
        command = [sys.executable, "-m", module, *flags, f"--logpath={self._folder}"]
        self._port = ports.free_port() if is_learner else 0
        if self._port:
            command.append(f"--port={self._port}")
        if _reconstructed():  # The seeds must differ: actors must not repeat themselves.
            command.append(f"--restarts={1 + secrets.randbelow(10**6)}")
        self._source = mirroring.Source(own_folder)  # Files in the run's folder are there already.
        self._process = processes.Child(name, command, log, None)
        self._process.start()

    def node_id(self) -> str:
        """Returns Ray's name of this machine."""
        import ray

        return ray.get_runtime_context().get_node_id()

    def shares_folder(self) -> bool:
        """Returns whether the process works in the run's folder itself."""
        return self._shares_folder

    def address(self) -> str:
        """Returns HOST:PORT of the learner's server, "" before it is up."""
        path = os.path.join(self._folder, telemetry.ADDRESS_FILENAME)
        host = f"[{self._host}]" if ":" in self._host else self._host  # IPv6.
        return f"{host}:{self._port}" if os.path.exists(path) else ""

    def report(self, incarnation: str, acknowledged: Mapping[str, int]) -> Report:
        """Tells how the process does, and hands out pieces of its files.

        Args:
          incarnation: Incarnation that the caller has marks of.
          acknowledged: The caller's marks.
        """
        code = self._process.poll()  # This comes first: a process that has ended writes no more.
        known = acknowledged if incarnation == self._source.incarnation else {}
        pieces = self._source.news(known)  # This may begin a new incarnation.
        return Report(
            self._source.incarnation, self._source.replaces, pieces, code,
            self._store.newest_name(), self._store.being_written(), self._host, self._folder,
        )

    def restart(self, arguments: Sequence[str]) -> None:
        """Starts a learner again where it was, with these arguments besides its own."""
        # The learner cuts its logs itself, but only seconds later. Should the checkpoint be
        # damaged, the learner says so.
        with contextlib.suppress(errors.UserError):
            snapshots.cut_logs(
                os.path.join(self._folder, telemetry.LEARNER), self._store.newest().state
            )
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self._folder, telemetry.ADDRESS_FILENAME))
        self._source.rewrite()
        self._process.restart(*arguments)

    def terminate(self) -> None:
        """Asks the process to end."""
        self._process.terminate()

    def close(self, keep: bool = False) -> None:
        """Ends the process at once.

        Args:
          keep: Whether to leave its folder there. Otherwise the caller has all files, and the
            folder is deleted.
        """
        self._process.kill()
        if keep:
            with open(os.path.join(self._home, _KEPT_FILENAME), "w", encoding="utf-8"):
                pass
        else:
            shutil.rmtree(self._home, ignore_errors=True)
        self._lock.close()


def sweep() -> None:
    """Removes folders of workers of this machine that were killed with all of their node."""
    for home in glob.glob(os.path.join(tempfile.gettempdir(), f"{_PREFIX}*")):
        with contextlib.suppress(OSError, errors.UserError):  # It is another user's, or in use.
            if time.time() - os.stat(home).st_mtime < _YOUNG_S:
                continue
            with files.locked(home, "its worker lives"):
                if not os.path.exists(os.path.join(home, _KEPT_FILENAME)):
                    shutil.rmtree(home)


def _node_address() -> str:
    import ray

    return ray.util.get_node_ip_address()


def _reconstructed() -> bool:
    import ray

    return ray.get_runtime_context().was_current_actor_reconstructed
