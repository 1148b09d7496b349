"""Checkpoints from which a run is resumed: each folder is there as a whole or not at all.

    RUN/checkpoint/resume/<number>/state.json   State
    RUN/checkpoint/resume/<number>/learner.*    networks, targets, optimizers (TensorFlow)
    RUN/checkpoint/resume/<number>/replay/      all tables (Reverb's own checkpointer)
    RUN/checkpoint/resume/unfinished/           a snapshot being written
    RUN/checkpoint/resume/reverb/               where Reverb writes before its folder is moved
    RUN/checkpoint/resume/versions              VersionRecord

A snapshot is written under `unfinished`, brought to the disk and then renamed; only after that are
older ones deleted. So a crash at any moment leaves one whole snapshot, and at most two and an
unfinished one ever take room. The learner writes snapshots, and the launcher looks whether there
are any. Imports no framework.
"""

import contextlib
import dataclasses
import json
import os
import shutil
from typing import Any

from actorQ.core import errors
from actorQ.core import files
from actorQ.core import telemetry

FORMAT = 2
LEARNER_PREFIX = "learner"
REPLAY_FOLDER = "replay"
_STATE = "state.json"
_UNFINISHED = "unfinished"
_REVERB = "reverb"
_VERSIONS = "versions"
_REPLAY_FILES = ("tables.tfrecord", "items.tfrecord", "chunks.tfrecord", "DONE")


@dataclasses.dataclass(frozen=True)
class State:
    """State of a learner besides weights and replay.

    Attributes:
      run_id: Id of the run, which it keeps when it is resumed.
      settings: The run's configuration, setting to value.
      learner_steps: Learner steps done.
      versions_skipped: Lead of the weights' versions over the learner steps.
      returns: Returns of all evaluation episodes so far.
      best_return: Return of the weights that are kept under `best`; None before the first
        evaluation.
      evaluation_s: Cumulative seconds of evaluation.
      checkpoint_s: Cumulative seconds that checkpoints took from the learner's thread.
      pushes: Pushes of weights so far.
      log_bytes: Name of each log to its length when the snapshot was begun.
      stop_rule_from: Index of the first of `returns` that the stop rule looks at.
      push_snapshot_s: Cumulative seconds that pushes took from the learner's thread.
      push_insert_s: Cumulative seconds of pushes in the background.
    """

    run_id: int
    settings: dict[str, Any]
    learner_steps: int
    versions_skipped: int
    returns: list[float]
    best_return: float | None
    evaluation_s: float
    checkpoint_s: float
    pushes: int
    log_bytes: dict[str, int]
    # Older snapshots lack these; they get the defaults.
    stop_rule_from: int = 0
    push_snapshot_s: float = 0.0
    push_insert_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A whole checkpoint on disk."""

    folder: str
    state: State

    @property
    def learner_prefix(self) -> str:
        """Common beginning of the paths of TensorFlow's files."""
        return os.path.join(self.folder, LEARNER_PREFIX)

    @property
    def replay_folder(self) -> str:
        """Folder of Reverb's checkpoint."""
        return os.path.join(self.folder, REPLAY_FOLDER)


class Store:
    """The snapshots of one run."""

    def __init__(self, run_folder: str):
        """Names the folders; `prepare` makes them."""
        self.folder = os.path.join(run_folder, telemetry.CHECKPOINT_FOLDER, telemetry.RESUME_FOLDER)
        self.reverb_folder = os.path.join(self.folder, _REVERB)
        self._unfinished = os.path.join(self.folder, _UNFINISHED)

    def newest_name(self) -> str:
        """Returns a name that tells the newest snapshot from others; "" if there is none."""
        return str(max(self._numbers(), default=""))

    def newest(self) -> Snapshot:
        """Reads the newest snapshot.

        Raises:
          errors.UserError: There is none, or it is damaged.
        """
        numbers = self._numbers()
        if not numbers:
            raise errors.UserError(
                f"There is no checkpoint to resume from under {self.folder}: start the run without "
                "--resume."
            )
        folder = self._path(numbers[-1])
        needed = [f"{LEARNER_PREFIX}.index"]
        needed += [os.path.join(REPLAY_FOLDER, name) for name in _REPLAY_FILES]
        # Where a file is missing, Reverb would take the folder for empty and start without replay.
        for name in needed:
            if not os.path.isfile(os.path.join(folder, name)):
                raise errors.UserError(f"The checkpoint {folder} is damaged: it lacks {name}.")
        path = os.path.join(folder, _STATE)
        try:
            with open(path, encoding="utf-8") as file:
                record = json.load(file)
            if record.pop("format") != FORMAT:
                raise ValueError("it is of another version of this program")
            return Snapshot(folder, State(**record))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise errors.UserError(
                f"The checkpoint {folder} is damaged: {_STATE}: {errors.summary(error)}."
            ) from None

    def prepare(self, fresh: bool) -> None:
        """Makes the folders, and deletes outdated snapshots.

        Args:
          fresh: Whether a new run begins, to which snapshots of an earlier run do not belong.

        Raises:
          errors.WriteError: The folders cannot be made.
        """
        with files.writing(self.folder):
            self.discard()
            numbers = self._numbers()
            for number in numbers if fresh else numbers[:-1]:
                shutil.rmtree(self._path(number), ignore_errors=True)
            if fresh:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(self.folder, _VERSIONS))

    def begin(self) -> str:
        """Makes the folder of a new snapshot, empty, and returns it."""
        self.discard()
        os.makedirs(self._unfinished)
        return self._unfinished

    def discard(self) -> None:
        """Deletes a snapshot that was not completed, with Reverb's part."""
        for folder in (self._unfinished, self.reverb_folder):
            shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(self.reverb_folder, exist_ok=True)

    def commit(self, state: State, reverb_checkpoint: str) -> None:
        """Completes the snapshot that was begun, and deletes the older ones.

        Args:
          state: State to be saved with it.
          reverb_checkpoint: Folder that Reverb wrote; it is moved.

        Raises:
          OSError: A file cannot be written; the snapshot before stays.
        """
        os.rename(reverb_checkpoint, os.path.join(self._unfinished, REPLAY_FOLDER))
        with open(os.path.join(self._unfinished, _STATE), "w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, **dataclasses.asdict(state)}, file)
        files.sync(self._unfinished)
        with contextlib.suppress(FileNotFoundError):
            files.sync_file(os.path.join(self.folder, _VERSIONS))
        numbers = self._numbers()
        os.rename(self._unfinished, self._path(numbers[-1] + 1 if numbers else 1))
        files.sync(self.folder, deep=False)
        for number in numbers:
            shutil.rmtree(self._path(number), ignore_errors=True)

    def being_written(self) -> bool:
        """Returns whether a snapshot was begun and is not complete."""
        return os.path.isdir(self._unfinished)

    def _numbers(self) -> list[int]:
        try:
            return sorted(int(name) for name in os.listdir(self.folder) if name.isdecimal())
        except FileNotFoundError:
            return []

    def _path(self, number: int) -> str:
        return os.path.join(self.folder, f"{number:06d}")


def cut_logs(folder: str, state: State) -> None:
    """Cuts off rows that the learner logged after a snapshot: those steps will be made again.

    Args:
      folder: Folder of the learner's logs.
      state: State in the snapshot.

    Raises:
      errors.WriteError: A log cannot be written.
    """
    for name, length in telemetry.log_bytes(folder).items():
        path = os.path.join(folder, name)
        with files.writing(path):
            os.truncate(path, min(length, state.log_bytes.get(name, 0)))


class VersionRecord:
    """The highest version of weights that left the learner, and its number of starts.

    The record is written before a version is sent. So a learner that is resumed at an earlier step
    never uses a version for other weights: versions only grow, whatever dies. It is a line of fixed
    length, overwritten in place with one system call, which a killed process does or does not do.
    A crash of the whole machine may lose the versions noted since the newest snapshot; the logs of
    the other processes count as well (`telemetry.newest_version`).
    """

    def __init__(self, store: Store):
        """Reads the record of a run's snapshots, if there is one.

        Raises:
          errors.UserError: The record cannot be read, or is damaged.
        """
        path = self._path = os.path.join(store.folder, _VERSIONS)
        self.starts, self.highest = 0, -1
        try:
            with open(path, encoding="utf-8") as file:
                self.starts, self.highest = map(int, file.read().split())
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            raise errors.UserError(f"{path} is damaged: {error}.") from None
        self._file: int | None = None

    def note_start(self) -> None:
        """Counts a start of the learner.

        Raises:
          errors.WriteError: The disk is full.
        """
        self.starts += 1
        self._write()

    def note(self, version: int) -> None:
        """Notes that weights of this version are about to be sent.

        Raises:
          errors.WriteError: The disk is full.
        """
        self.highest = max(self.highest, version)
        self._write()

    def _write(self) -> None:
        with files.writing(self._path):
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o666)
            os.pwrite(self._file, f"{self.starts:20d} {self.highest:20d}\n".encode(), 0)
