"""Child processes of the launcher: start, watch, restart, end. Imports no framework."""

from collections.abc import Callable
import ctypes
import os
import signal
import subprocess
import sys
import time

from actorQ.core import cli
from actorQ.core import errors

MAX_FAILURES = 3  # In a row and in the same way, before a process is given up.
_PR_SET_PDEATHSIG = 1  # prctl(2)
_LOG_TAIL_LINES = 15
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_STEADY_S = 600.0

# What Python is to run (-m) as the processes of a run.
LEARNER_MODULE = "actorQ.learner_main"
BROADCASTER_MODULE = "actorQ.parameter_broadcaster"
ACTOR_MODULE = "actorQ.actor_main"

# Ends the line that says that a process of a run has ended as it should not.
STARTED_AGAIN = "it is started again."


class Failures:
    """Counts how often in a row a process failed in the same way."""

    def __init__(self) -> None:
        """Begins with none."""
        self._last: tuple | None = None
        self._in_a_row = 0

    def note(self, code: int | None, progress: object, lived_s: float) -> int:
        """Notes that the process ended as it should not.

        Args:
          code: its exit code, negative where a signal ended it, `cli.EXIT_INTERRUPTED` where it
            ended itself as a signal asked it to.
          progress: how far its work had come. A process that somebody ends with a signal may be
            started again as long as this changes; one that ends itself may not.
          lived_s: seconds.

        Returns:
          How often in a row it failed in the same way; a life of ten minutes starts a new row.
        """
        by_signal = code is not None and (code < 0 or code == cli.EXIT_INTERRUPTED)
        failure = (code, progress if by_signal else None)
        if failure != self._last or lived_s > _STEADY_S:
            self._in_a_row = 0
        self._last = failure
        self._in_a_row += 1
        return self._in_a_row


class Child:
    """One process with its log file."""

    def __init__(self, name: str, command: list[str], log_path: str, cores: set[int] | None):
        """Describes the process; `start` starts it.

        Args:
          name: for messages.
          command: program and arguments.
          log_path: file that gets its stdout and stderr, appended.
          cores: CPU cores that it may use, or None for all.
        """
        self.name = name
        self.restarts = 0
        self._command = command
        self._started_at = 0.0
        self._log_start = 0
        self._failures = Failures()
        self.log_path = log_path
        self._cores = cores
        self._process: subprocess.Popen | None = None

    def start(self, *arguments: str) -> None:
        """Starts the process.

        Args:
          *arguments: more of them, for this time.

        Raises:
          errors.UserError: its log cannot be written, or the system has no room for it.
        """
        cores, attach = self._cores, attached()

        def prepare() -> None:
            attach()
            if cores:
                os.sched_setaffinity(0, cores)

        try:
            with open(self.log_path, "ab") as log:
                self._log_start = log.tell()
                self._process = subprocess.Popen(
                    [*self._command, *arguments], stdin=subprocess.DEVNULL, stdout=log,
                    stderr=subprocess.STDOUT, preexec_fn=prepare,
                )
        except OSError as error:
            raise errors.UserError(
                f"Cannot start {self.name}, whose output goes to {self.log_path}: {error.strerror}."
            ) from error
        self._started_at = time.monotonic()

    def restart(self, *arguments: str) -> None:
        """Starts the process again after its end, with more arguments for this time."""
        self.restarts += 1
        self.start(*arguments)

    @property
    def started(self) -> bool:
        """Whether it ever ran."""
        return self._process is not None

    def note_failure(self, progress: object) -> int:
        """Notes that the process ended as it should not; see `Failures.note`."""
        return self._failures.note(self.poll(), progress, time.monotonic() - self._started_at)

    def poll(self) -> int | None:
        """Returns the exit code, or None while it runs (or was never started)."""
        return None if self._process is None else self._process.poll()

    def wait(self, timeout_s: float) -> int | None:
        """Waits for the end, at most `timeout_s`; returns the exit code or None."""
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """Asks the process to end, if it runs."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the process at once, if it runs, and waits for that."""
        self._signal(signal.SIGKILL)
        self.wait(5.0)

    def _signal(self, signum: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signum)

    def log_tail(self) -> str:
        """Returns the last lines of the log, indented."""
        return "\n".join(f"  {self.name}: {line}" for line in self._lines()[-_LOG_TAIL_LINES:])

    def last_line(self) -> str:
        """Returns the last line that the process printed."""
        lines = self._lines()
        return lines[-1] if lines else "it printed nothing"

    def error_line(self) -> str:
        """Returns the newest one-line error that the process reported (`cli`), or ""."""
        for line in reversed(self._lines()):
            _, found, message = line.partition(": error: ")
            if found:
                return message
        return ""

    def _lines(self) -> list[str]:
        try:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                log.seek(self._log_start)  # What lives before this one printed says nothing of it.
                return [line.rstrip() for line in log if line.strip()]
        except OSError:
            return []


def attached() -> Callable[[], None]:
    """Returns what a new process is to call first (`preexec_fn`) to end with this one.

    It gets a session of its own: Ctrl-C reaches its parent, which ends its children in order. And
    should the parent be killed outright, the kernel ends it (Linux).
    """
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    parent = os.getpid()

    def attach() -> None:
        os.setsid()
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:
                os._exit(1)

    return attach


def describe_exit(code: int | None) -> str:
    """Returns "ended with code 1" or "was ended by SIGKILL"."""
    if code is not None and code < 0:
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:  # Most real-time signals have no name.
            return f"was ended by signal {-code}"
    return f"ended with code {code}"


def plan_cores(n_actors: int) -> list[set[int]] | None:
    """Shares out the usable cores: one for each actor from the top, the learner gets the rest.

    Returns:
      CPUs of the learner, then of every actor; None where there is only one core to share.
    """
    cores = sharable_cores()
    if len(cores) < 2:
        return None
    n_learner = max(1, len(cores) - n_actors)
    for_actors = cores[n_learner:]
    return [set().union(*cores[:n_learner])] + [
        for_actors[i % len(for_actors)] for i in range(n_actors)
    ]


def physical_cores() -> list[set[int]]:
    """Returns the CPUs that this process may use, hyperthreads of one core together.

    Each CPU by itself where the system does not say.
    """
    cores: dict[str, set[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        try:
            with open(_SIBLINGS.format(cpu), encoding="ascii") as file:
                siblings = file.read()
        except OSError:
            siblings = str(cpu)
        cores.setdefault(siblings, set()).add(cpu)
    return list(cores.values())


def sharable_cores() -> list[set[int]]:
    """Returns `physical_cores`, or of a single one its hyperthreads: better that than nothing."""
    cores = physical_cores()
    return cores if len(cores) > 1 else [{cpu} for cpu in sorted(cores[0])]
