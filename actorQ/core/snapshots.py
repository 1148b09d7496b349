"""Checkpoints from which a run is resumed: folders that are there as a whole or not at all.

    RUN/checkpoint/resume/<number>/state.json   State
    RUN/checkpoint/resume/<number>/learner.*    networks, targets, optimizers (TensorFlow)
    RUN/checkpoint/resume/<number>/replay/      all tables (Reverb's own checkpointer)
    RUN/checkpoint/resume/unfinished/           a snapshot being written
    RUN/checkpoint/resume/reverb/               where Reverb writes before its folder is moved
    RUN/checkpoint/resume/versions              VersionRecord

A snapshot is written under `unfinished`, brought to the disk and then renamed; only after that are
older ones deleted. So a crash at any moment leaves one whole snapshot, and at most two and an
unfinished one ever take room. Learner's process (the launcher looks whether there is one); imports
no framework.
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
    """What a learner must know to go on, besides weights and replay.

    Attributes:
      run_id: of the run, which it keeps when it is resumed.
      settings: the run's configuration, setting to value.
      learner_steps: done.
      versions_skipped: what the weights' versions are ahead of the learner steps.
      returns: of all evaluation episodes so far.
      best_return: whose weights are kept under `best`; None before the first evaluation.
      evaluation_s: cumulative seconds of evaluation.
      checkpoint_s: cumulative seconds that checkpoints took from the learner's thread.
      pushes: of weights so far.
      log_bytes: name of a log to its length when the snapshot was begun.
      stop_rule_from: of `returns`, where those begin that the stop rule looks at.
      push_snapshot_s: cumulative seconds that pushes took from the learner's thread.
      push_insert_s: cumulative seconds of pushes in the background.
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
    # As in snapshots that do not have them yet.
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
        """Path that TensorFlow's files begin with."""
        return os.path.join(self.folder, LEARNER_PREFIX)

    @property
    def replay_folder(self) -> str:
        """Reverb's checkpoint."""
        return os.path.join(self.folder, REPLAY_FOLDER)


class Store:
    """The snapshots of one run."""

    def __init__(self, run_folder: str):
        """Looks at nothing yet; `prepare` makes the folder."""
        self.folder = os.path.join(run_folder, telemetry.CHECKPOINT_FOLDER, telemetry.RESUME_FOLDER)
        self.reverb_folder = os.path.join(self.folder, _REVERB)
        self._unfinished = os.path.join(self.folder, _UNFINISHED)

    def exists(self) -> bool:
        """Returns whether there is a snapshot."""
        return bool(self._numbers())

    def newest_name(self) -> str:
        """Returns what tells the newest snapshot from others, empty if there is none."""
        return str(max(self._numbers(), default=""))

    def newest(self) -> Snapshot:
        """Reads the newest snapshot.

        Raises:
          errors.UserError: there is none, or it is damaged.
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
        # Reverb would take a folder that lacks a file for an empty one, and start with no replay.
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
        """Makes the folders, and deletes what is of no use any more.

        Args:
          fresh: a new run begins, which an earlier one's snapshots do not belong to.

        Raises:
          errors.UserError: they cannot be made.
        """
        try:
            for folder in (self._unfinished, self.reverb_folder, *self._outdated(fresh)):
                shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(self.reverb_folder)
            if fresh:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(self.folder, _VERSIONS))
        except OSError as error:
            raise errors.UserError(f"Cannot use {self.folder}: {error.strerror}.") from None

    def begin(self) -> str:
        """Makes the folder of a new snapshot, empty, and returns it."""
        self.discard()
        os.makedirs(self._unfinished)
        return self._unfinished

    def discard(self) -> None:
        """Deletes what is there of a snapshot that was not completed, Reverb's part as well."""
        for folder in (self._unfinished, self.reverb_folder):
            shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(self.reverb_folder, exist_ok=True)

    def commit(self, state: State, reverb_checkpoint: str) -> None:
        """Completes the snapshot that was begun, and deletes the older ones.

        Args:
          state: to be saved with it.
          reverb_checkpoint: folder that Reverb wrote, which is moved.

        Raises:
          OSError: a file cannot be written; the snapshot before stays.
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

    def version_record(self) -> "VersionRecord":
        """Opens the record of versions."""
        return VersionRecord(os.path.join(self.folder, _VERSIONS))

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

    def _outdated(self, fresh: bool) -> list[str]:
        numbers = self._numbers()
        return [self._path(number) for number in (numbers if fresh else numbers[:-1])]


def cut_logs(folder: str, state: State) -> None:
    """Cuts off what the learner logged after a snapshot: those steps will be made again.

    Args:
      folder: of the learner's logs.
      state: of the snapshot.

    Raises:
      errors.WriteError: a log cannot be written.
    """
    for name, length in telemetry.log_bytes(folder).items():
        path = os.path.join(folder, name)
        try:
            os.truncate(path, min(length, state.log_bytes.get(name, 0)))
        except OSError as error:
            raise errors.WriteError(f"Cannot write {path}: {error.strerror}.") from None


class VersionRecord:
    """The highest version of weights that left the learner, and how often the learner started.

    Written before a version is sent, so that a learner that is resumed at an earlier step never
    uses a version for other weights: versions only grow, whatever dies. A line of fixed length,
    overwritten in place with one system call, which a killed process does or does not do. A crash
    of the whole machine may lose what was noted since the newest snapshot; what the other
    processes' logs have of it counts as well (`telemetry.newest_version`).
    """

    def __init__(self, path: str):
        """Reads the record, if there is one.

        Args:
          path: of its file.

        Raises:
          errors.UserError: it cannot be read or is damaged.
        """
        self._path = path
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
          errors.WriteError: the disk is full.
        """
        self.starts += 1
        self._write()

    def note(self, version: int) -> None:
        """Notes that weights of this version are about to be sent.

        Raises:
          errors.WriteError: the disk is full.
        """
        self.highest = max(self.highest, version)
        self._write()

    def _write(self) -> None:
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o666)
            os.pwrite(self._file, f"{self.starts:20d} {self.highest:20d}\n".encode(), 0)
        except OSError as error:
            raise errors.WriteError(f"Cannot write {self._path}: {error.strerror}.") from None
