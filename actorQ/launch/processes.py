"""The processes of a run, and those that are children of this one. Imports no framework."""

from collections.abc import Callable
import contextlib
import ctypes
import os
import signal
import subprocess
import time

from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import provenance

_PR_SET_PDEATHSIG = 1  # prctl(2)
_LOG_TAIL_LINES = 15
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_STEADY_S = 600.0  # A life so long begins a new row of failures.

# Modules that Python runs (-m) as the processes of a run.
LEARNER_MODULE = "actorQ.learner_main"
BROADCASTER_MODULE = "actorQ.parameter_broadcaster"
ACTOR_MODULE = "actorQ.actor_main"

# Ends the line that says that a process of a run has ended as it should not.
STARTED_AGAIN = "it is started again."


class Process:
    """A process of a run, on this machine or another, as the supervisor sees it.

    Attributes:
      name: Name in logs and messages.
      log_path: File on this machine that gets the process's stdout and stderr.
      restarts: Number of restarts so far.
      code: Exit code as seen last; None while the process runs, or if it was never started.
      repeats_error: Whether the newest failure had the same clear line as the one before.
    """

    def __init__(self, name: str, log_path: str):
        self.name = name
        self.log_path = log_path
        self.restarts = 0
        self.code: int | None = None
        self._started_at = time.monotonic()
        self._log_start = 0
        self._failures = 0  # Number in a row of the kind below.
        self._failure_kind: object = None
        self._error_line = ""
        self.repeats_error = False

    def start(self, *arguments: str) -> None:
        """Starts the process with these arguments besides its own."""
        raise NotImplementedError

    def poll(self) -> int | None:
        """Looks how the process does, and returns its exit code."""
        raise NotImplementedError

    def wait(self, timeout_s: float) -> bool:
        """Waits for the end; returns whether nothing of the process is left to wait for."""
        raise NotImplementedError

    def terminate(self) -> None:
        """Asks the process to end, if it runs."""
        raise NotImplementedError

    def kill(self) -> None:
        """Ends the process at once, if it runs."""
        raise NotImplementedError

    def restart(self, *arguments: str) -> None:
        """Starts the process again after its end."""
        self.restarts += 1
        self.start(*arguments)

    def describe_end(self) -> str:
        """Returns how the process ended, as the rest of a sentence."""
        return describe_exit(self.code)

    def note_failure(self, progress: object) -> int:
        """Notes that the process ended as it should not.

        Args:
          progress: How far its work has come. A process that a signal ends may be started again as
            long as this changes; one that ends itself may not.

        Returns:
          Failures of the same kind in a row. A life of ten minutes begins a new row.
        """
        steady = time.monotonic() - self._started_at > _STEADY_S
        by_signal = self.code is not None and (
            self.code < 0 or self.code in (cli.EXIT_INTERRUPTED, cli.EXIT_REQUEUE)
        )
        kind = self.code, progress if by_signal else None
        self._failures = self._failures + 1 if kind == self._failure_kind and not steady else 1
        self._failure_kind = kind
        error = self.error_line()
        self.repeats_error = bool(error) and error == self._error_line and not steady
        self._error_line = error
        return self._failures

    def log_tail(self) -> str:
        """Returns the last lines of the log, indented."""
        return "\n".join(f"  {self.name}: {line}" for line in self._lines()[-_LOG_TAIL_LINES:])

    def last_line(self) -> str:
        """Returns the last line that the process printed."""
        lines = self._lines()
        return lines[-1] if lines else "it printed nothing"

    def last_words(self) -> str:
        """Returns the reason that the process gave for its end, or its last line, as a clause."""
        line = self.error_line()
        if line:
            return f": {line}"
        return f"; the last line of its log is {self.last_line()!r}" if self._lines() else ""

    def error_line(self) -> str:
        """Returns the newest one-line error that the process reported (`cli`), or "".

        A process that a signal ended could not report any.
        """
        if self.code is not None and self.code <= 0:
            return ""
        for line in reversed(self._lines()):
            _, found, message = line.partition(": error: ")
            if found:
                return message
        return ""

    def _note_start(self) -> None:
        """Remembers when this start was, and skips what earlier starts have printed."""
        self._started_at = time.monotonic()
        try:
            self._log_start = os.path.getsize(self.log_path)
        except OSError:
            self._log_start = 0

    def _lines(self) -> list[str]:
        try:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                log.seek(self._log_start)
                return [line.rstrip() for line in log if line.strip()]
        except OSError:
            return []


class Child(Process):
    """A child process of this one."""

    def __init__(self, name: str, command: list[str], log_path: str, cores: set[int] | None):
        """Describes the process; `start` starts it.

        Args:
          name: Name in messages.
          command: Program and arguments.
          log_path: File that gets the process's stdout and stderr, appended.
          cores: CPUs that the process may use, or None for all.
        """
        super().__init__(name, log_path)
        self._command = command
        self._cores = cores
        self._process: subprocess.Popen | None = None

    def start(self, *arguments: str) -> None:
        """Starts the process with these arguments besides its own.

        Raises:
          errors.UserError: The log cannot be written, or the system has no room for a process.
        """
        cores, attach = self._cores, attached()

        def prepare() -> None:
            attach()
            if cores:
                os.sched_setaffinity(0, cores)

        self._note_start()
        try:
            with open(self.log_path, "ab") as log:
                self._process = subprocess.Popen(
                    [*self._command, *arguments], stdin=subprocess.DEVNULL, stdout=log,
                    stderr=subprocess.STDOUT, preexec_fn=prepare,
                )
        except OSError as error:
            raise errors.UserError(
                f"Cannot start {self.name}, whose output goes to {self.log_path}: {error.strerror}."
            ) from error

    def poll(self) -> int | None:
        """Returns the exit code, or None while the process runs (or was never started)."""
        self.code = self._process.poll() if self._process is not None else None
        return self.code

    def wait(self, timeout_s: float) -> bool:
        """Waits for the end; returns whether it has come, or the process was never started."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        return self._process is None or self.poll() is not None

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


def attached() -> Callable[[], None]:
    """Returns a function for a new process to call first (`preexec_fn`), to end with this one.

    The new process gets a session of its own: Ctrl-C reaches its parent alone, which ends its
    children in order. Should the parent be killed outright, Linux ends the new process.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def attach() -> None:
        os.setsid()
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
      CPUs of the learner, then of every actor; None where there is only one core.
    """
    cores = sharable_cores()
    if len(cores) < 2:
        return None
    n_learner = max(1, len(cores) - n_actors)
    for_actors = cores[n_learner:]
    return [set().union(*cores[:n_learner])] + [
        for_actors[i % len(for_actors)] for i in range(n_actors)
    ]


def crowd_hint(config: config_lib.RunConfig) -> str:
    """Returns a line where actors that do not yield outnumber this process's cores, or ""."""
    usable = provenance.usable_cores()
    if config.actors_yield or config.n_actors <= usable:
        return ""
    return (
        f"Hint: {config.n_actors} actors share {usable} core{'s' if usable > 1 else ''} with the "
        f"learner and slow it down: try --n_actors={max(1, usable - 1)}."
    )


def physical_cores() -> list[set[int]]:
    """Returns the CPUs that this process may use, hyperthreads of one core together.

    Where the system does not name siblings, each CPU counts as a core.
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
    """Returns `physical_cores`; where there is a single core, its hyperthreads."""
    cores = physical_cores()
    return cores if len(cores) > 1 else [{cpu} for cpu in sorted(cores[0])]
