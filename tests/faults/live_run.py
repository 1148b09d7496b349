"""A run under observation: its launcher, its processes and their logs.

Campaigns use it to make faults in a run, or to watch a run for long. It imports no framework.
"""

from collections.abc import Sequence
import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Any

import psutil

from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.launch import processes
from actorQ.learner import evaluator_process

EVALUATOR = "evaluator"
_RUN_NAME = "run"
_END_S = 60.0
_INTERRUPTED = (130, 143)  # The launcher's exit codes after one signal, and after two.
_MODULES = {
    processes.LEARNER_MODULE: telemetry.LEARNER,
    processes.BROADCASTER_MODULE: telemetry.BROADCASTER,
    evaluator_process.MODULE: EVALUATOR,
}
_ACTOR_FLAG = "--actor_id="


class LiveRun:
    """A run, with the launcher that started it.

    Attributes:
      folder: Folder of the run.
      log_path: File of the launcher's output.
    """

    def __init__(self, folder: str, flags: Sequence[str]):
        """Starts the launcher; `end` must be called.

        Args:
          folder: Folder for the run's folder and the launcher's log, made if missing.
          flags: Flags of the launcher, without --logdir and --run_name.
        """
        os.makedirs(folder, exist_ok=True)
        self.folder = os.path.join(folder, _RUN_NAME)
        self.log_path = os.path.join(folder, "launcher.log")
        command = [
            sys.executable, "-m", "actorQ.launcher", f"--logdir={folder}",
            f"--run_name={_RUN_NAME}", *flags,
        ]
        with open(self.log_path, "wb") as log:
            self._launcher = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                preexec_fn=processes.attached(),  # Ctrl-C comes through `end`.
            )
        self._seen: dict[int, psutil.Process] = {}

    @property
    def code(self) -> int | None:
        """The launcher's exit code, None while it runs."""
        return self._launcher.poll()

    @property
    def launcher(self) -> psutil.Process:
        """The launcher."""
        return psutil.Process(self._launcher.pid)

    def output(self) -> str:
        """Returns the launcher's output so far."""
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def processes(self) -> dict[str, psutil.Process]:
        """Returns the run's living processes, by their names in the logs."""
        found = {}
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(self._launcher.pid).children(recursive=True):
                self._seen[process.pid] = process
                with contextlib.suppress(psutil.NoSuchProcess):
                    name = _name_of(process.cmdline())
                    if name and process.status() != psutil.STATUS_ZOMBIE:
                        found[name] = process
        return found

    def orphans(self) -> list[psutil.Process]:
        """Returns living processes of the run that the launcher does not have any more."""
        kept = {process.pid for process in self.processes().values()}
        return [
            process for pid, process in self._seen.items() if pid not in kept and _lives(process)
        ]

    def last_row(self, process: str, filename: str) -> dict[str, float]:
        """Returns the newest row of a log, or {} while there is none."""
        return telemetry.last_row(os.path.join(self.folder, process, filename))

    def newest(self, process: str, filename: str, field: str, default: float = 0.0) -> float:
        """Returns a field of the newest row of a log."""
        return self.last_row(process, filename).get(field, default)

    def wait_for(self, what: str, condition: Any, limit_s: float) -> float:
        """Waits for a condition.

        Args:
          what: Name of the condition, for messages.
          condition: Function that is called several times a second.
          limit_s: Longest wait, seconds.

        Returns:
          Seconds of the wait.

        Raises:
          errors.UserError: The condition did not come true, or the run ended.
        """
        started = time.monotonic()
        while not condition():
            waited = time.monotonic() - started
            if self.code is not None:
                raise errors.UserError(
                    f"The run ended (code {self.code}) while {what} was waited for: see "
                    f"{self.log_path}."
                )
            if waited > limit_s:
                raise errors.UserError(f"{what} did not happen within {limit_s:g} s.")
            time.sleep(0.05)
        return time.monotonic() - started

    def end(self) -> None:
        """Ends the run as Ctrl-C would, and kills processes that are left.

        Raises:
          errors.UserError: Processes had to be killed, or the launcher failed.
        """
        left = self.processes()
        for process in left.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        if self.code is None:
            self._launcher.send_signal(signal.SIGTERM)
        ended = self.code is not None
        try:
            self._launcher.wait(_END_S)
            stuck = [process for process in self._seen.values() if _lives(process)]
        except subprocess.TimeoutExpired:
            self._launcher.kill()
            stuck = [*self._seen.values()]
        for process in stuck:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self.code not in (0, *_INTERRUPTED) and not ended and not stuck:
            raise errors.UserError(
                f"The run ended with code {self.code} when it was told to end: see {self.log_path}."
            )
        if stuck:
            raise errors.UserError(f"The run did not end within {_END_S:g} s of being told.")


def _name_of(command: Sequence[str]) -> str | None:
    for module, name in _MODULES.items():
        if module in command:
            return name
    if processes.ACTOR_MODULE in command:
        for argument in reversed(command):  # The last one counts, as for the process.
            if argument.startswith(_ACTOR_FLAG):
                return telemetry.actor_name(int(argument.removeprefix(_ACTOR_FLAG)))
    return None


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
