"""Watches over the processes of a run: who is started again, when the run ends, and how.

The rules are the same wherever the processes run. Imports no framework.
"""

from collections.abc import Callable
from collections.abc import Sequence
import os
import signal
import threading
import time
from typing import NoReturn
from typing import Protocol

from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import energy
from actorQ.core import errors
from actorQ.core import files
from actorQ.core import telemetry
from actorQ.launch import processes
from actorQ.launch import status_line

MAX_FAILURES = 3  # Failures in a row and of the same kind before a process is given up.
_POLL_S = 0.2
_LEARNER_FIRST_S = 1.0  # Time for the learner to end where a peer has ended before it.
_FOLLOWS_S = 60.0  # Time for the learner to end after a peer that saw its announced end.
_LEARNER_END_S = 30.0  # Time for the learner to save and announce its end after Ctrl-C.
_LEARNER_SAVES_S = 120.0  # Further time while it writes a checkpoint.
_ANNOUNCED_S = 10.0  # Time between the checkpoint and the learner's end.
_PEERS_END_S = 10.0  # Time for broadcaster and actors to end after the learner.
_TOLD_END_S = 10.0  # Further time once they were told.


class Checkpoints(Protocol):
    """The learner's checkpoints; `snapshots.Store` where they are on this machine."""

    def newest_name(self) -> str:
        """Returns a name that tells the newest checkpoint from others; "" if there is none."""

    def being_written(self) -> bool:
        """Returns whether a checkpoint was begun and is not complete."""


class Supervisor:
    """The learner and its peers: broadcaster and actors.

    Attributes:
      stop: An event that ends the run.
    """

    def __init__(
        self,
        config: config_lib.RunConfig,
        learner: processes.Process,
        peers: Sequence[processes.Process],
        checkpoints: Checkpoints,
        status: status_line.StatusLine,
        poll_s: float = _POLL_S,
        learner_first_s: float = _LEARNER_FIRST_S,
    ):
        """Takes the processes, which need not be started yet.

        Args:
          config: Configuration of the run, with its folder.
          learner: The learner's process.
          peers: The processes of broadcaster and actors.
          checkpoints: What the learner could go on from.
          status: Line that tells people how the run does.
          poll_s: Seconds between two looks at the processes.
          learner_first_s: Time for the learner to end where a peer has ended before it.
        """
        self.stop = threading.Event()
        self._config = config
        self._learner = learner
        self._peers = peers
        self._checkpoints = checkpoints
        self._status = status
        self._poll_s = poll_s
        self._learner_first_s = learner_first_s
        self._log_bytes: dict[str, dict[str, int]] = {}
        self._left: dict[str, float] = {}  # When peers were seen to have ended as announced.
        self._early: set[str] = set()  # Peers that ended before the learner had begun.

    def run(self, start: Callable[[], bool]) -> int:
        """Runs to the end, and leaves no process behind; returns the launcher's exit code.

        Args:
          start: Starts all processes; returns False if `stop` was set meanwhile.

        Raises:
          errors.UserError: A process failed for good.
        """
        if self._config.track_energy:
            self._status.say(f"Energy is logged. CO2 counts by {energy.factor(energy.country())}.")
        try:
            if start():
                return self._watch()
            return cli.interrupted_code()
        finally:
            self._end_all()
            self._status.tell_missing_logs()

    def kill(self) -> None:
        """Ends all processes at once."""
        for process in (self._learner, *self._peers):
            process.kill()

    def _watch(self) -> int:
        while not self.stop.wait(self._poll_s):
            self._status.update()
            code = self._learner.poll()
            if code == 0:
                return 0
            if code is not None:
                self._revive_learner(code)
            for peer in self._peers:
                self._note_logs(peer)
                if peer.poll() is None:
                    self._left.pop(peer.name, None)
                else:
                    self._revive(peer)
        self._status.say("Interrupted: ending all processes.")
        return cli.interrupted_code()

    def _revive_learner(self, code: int) -> None:
        """Starts a learner again that was ended by a signal.

        A learner that ends itself has its reason, which another start would find again.

        Raises:
          errors.UserError: The run has to end.
        """
        reason = f"the learner {self._learner.describe_end()}"
        if code > 0:
            self._give_up(self._learner, reason)
        checkpoint = self._checkpoints.newest_name()
        trained = os.path.exists(
            os.path.join(self._config.logpath, telemetry.LEARNER, telemetry.TRAIN_CSV)
        )
        if not checkpoint and trained:
            self._give_up(self._learner, f"{reason} and left no checkpoint to go on from")
        # A life that wrote a checkpoint has brought the run on.
        resume = ["--resume"] if checkpoint else []
        self._restart_after_failure(self._learner, reason, checkpoint, *resume)

    def _revive(self, peer: processes.Process) -> None:
        """Starts a peer again that ended.

        Raises:
          errors.UserError: The run has to end.
        """
        # Peers end too when the learner does, or cannot start for the same reason as the learner:
        # its end has to be seen first.
        if not os.path.exists(os.path.join(self._config.logpath, telemetry.ADDRESS_FILENAME)):
            if peer.name not in self._early:
                self._early.add(peer.name)
                self._status.say(
                    f"{peer.name} {peer.describe_end()}{peer.last_words()}. The learner is still "
                    f"at its start: see {self._learner.log_path}"
                )
        elif peer.code == 0:
            self._restart_if_left_behind(peer)
        elif not self._learner.wait(self._learner_first_s) and not self.stop.is_set():
            reason = f"{peer.name} {peer.describe_end()}"
            self._restart_after_failure(peer, reason, self._note_logs(peer))

    def _restart_if_left_behind(self, peer: processes.Process) -> None:
        """Starts a peer again that saw an announced end which did not come.

        The learner follows within seconds, unless a signal ended it on its way: then it was started
        again and may want more data.
        """
        left = self._left.setdefault(peer.name, time.monotonic())
        if time.monotonic() - left > _FOLLOWS_S:
            del self._left[peer.name]
            self._status.say(
                f"{peer.name} has left, the learner has not; {processes.STARTED_AGAIN}"
            )
            self._restart(peer)

    def _restart_after_failure(
        self, process: processes.Process, reason: str, progress: object, *arguments: str
    ) -> None:
        """Starts a process again.

        Raises:
          errors.UserError: It has failed too often in a row.
        """
        failures = process.note_failure(progress)
        if process.repeats_error:  # A third start would find the same.
            self._give_up(process, f"{reason}, twice with the same error")
        if failures >= MAX_FAILURES:
            self._give_up(process, f"{reason}, {MAX_FAILURES} times in a row")
        self._status.say(f"{reason}{process.last_words()}; {processes.STARTED_AGAIN}")
        self._restart(process, *arguments)

    def _restart(self, process: processes.Process, *arguments: str) -> None:
        process.restart(f"--restarts={self._config.restarts + process.restarts + 1}", *arguments)

    def _give_up(self, process: processes.Process, reason: str) -> NoReturn:
        """Ends the run: the reason stands last, behind what libraries have printed.

        Raises:
          errors.UserError: Always, with the process's own clear line if it left one.
        """
        self._status.end()
        line = process.error_line()
        if line:
            raise errors.UserError(f"{reason}: {line} (log: {process.log_path})")
        tail = process.log_tail()
        if tail:
            self._status.say(f"The last lines of {process.log_path}:\n{tail}")
        problem = files.write_problem(self._config.logpath)
        if problem:  # The process could not write down its reason either.
            cause = (
                f" Nothing can be written to {self._config.logpath} ({problem}): make room first."
            )
        elif process.code == -signal.SIGKILL:
            cause = " The system sends SIGKILL where memory runs out; otherwise somebody did."
        else:
            cause = ""
        raise errors.UserError(f"{reason}.{cause} (log: {process.log_path})")

    def _note_logs(self, peer: processes.Process) -> dict[str, int]:
        """Returns the lengths of a peer's logs, as seen last where their folder is away."""
        lengths = telemetry.log_bytes(os.path.join(self._config.logpath, peer.name))
        self._log_bytes[peer.name] = lengths or self._log_bytes.get(peer.name, {})
        return self._log_bytes[peer.name]

    def _end_all(self) -> None:
        """Ends all processes, politely first."""
        self._learner.terminate()
        self._wait_for_learner()
        if self._learner.code != 0:  # After an announced end peers leave by themselves.
            self._tell_peers_to_end()
        self._wait_for_peers(_PEERS_END_S)
        self._tell_peers_to_end()
        self._wait_for_peers(_TOLD_END_S)
        self.kill()
        self._status.end()

    def _wait_for_learner(self) -> None:
        """Waits until the learner has saved and announced its end, within limits."""
        if self._learner.wait(_LEARNER_END_S):
            return
        deadline = time.monotonic() + _LEARNER_SAVES_S
        while not self._learner.wait(_ANNOUNCED_S):
            if not self._checkpoints.being_written() or time.monotonic() > deadline:
                return

    def _tell_peers_to_end(self) -> None:
        for peer in self._peers:
            peer.terminate()

    def _wait_for_peers(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        waiting = self._peers
        while waiting and time.monotonic() < deadline:
            waiting = [peer for peer in waiting if not peer.wait(0.05)]
