"""Brings files that a process writes on another machine into the run's folder here.

The source, beside the process, hands out whatever is new since the sink's last acknowledgement; the
sink writes it. Where an answer is lost, no content is: the next answer begins at the same place.
Files that grow (logs) come in pieces, CSV files and printed text in whole lines. Other files come
as a whole each time that they change. Imports no framework.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import os
import secrets
from typing import NamedTuple

from absl import logging

from actorQ.core import errors
from actorQ.core import files
from actorQ.core import telemetry

_MOST_BYTES = 4 << 20  # Limit for one answer, and for one file in it.
_LINES = (".csv", ".log")
_GROWING_PREFIX = "events.out"  # TensorBoard's files begin so.
_GROWING_SUFFIX = ".wandb"  # Those of Weights & Biases end so.
# Snapshots hold replay, and are of use only where the learner is.
_LEFT_OUT = (os.path.join(telemetry.CHECKPOINT_FOLDER, telemetry.RESUME_FOLDER),)
_DRAFT = ".tmp"
_COMPLAINT_PERIOD_S = 60.0


class Piece(NamedTuple):
    """Part of a file, or a file.

    Attributes:
      path: Path within the run's folder.
      content: Bytes of the piece.
      begin: Position of the piece in the source's file; None: the piece is the whole file.
      mark: Mark that the sink acknowledges when it has written the piece.
    """

    path: str
    content: bytes
    begin: int | None
    mark: int


class Source:
    """The files of one process, or of several that share a folder.

    Attributes:
      incarnation: Name of this life of the files; a new incarnation begins at byte 0 of each file.
      replaces: Whether the files replace those of the incarnation before, as after a return to a
        checkpoint. Otherwise they go on after them, as after a start on another machine.
    """

    def __init__(self, folder: str):
        """Takes the folder, which may still be empty."""
        self._folder = folder
        self.replaces = False
        self.incarnation = secrets.token_hex(8)

    def rewrite(self) -> None:
        """Hands all files out again: they may be shorter than they were."""
        self.replaces = True
        self.incarnation = secrets.token_hex(8)

    def news(self, acknowledged: Mapping[str, int]) -> list[Piece]:
        """Returns pieces that the sink does not have, at most a few megabytes.

        Args:
          acknowledged: Path to the newest mark of this incarnation that the sink has.
        """
        paths = list(self._paths())
        if any(self._is_shorter(path, acknowledged.get(path, 0)) for path in paths):
            self.rewrite()  # A process that goes back to a checkpoint cuts its logs.
            acknowledged = {}
        pieces: list[Piece] = []
        for path in paths:
            with contextlib.suppress(FileNotFoundError):  # The file has just been replaced.
                piece = self._piece(path, acknowledged.get(path, 0))
                if piece is not None:
                    pieces.append(piece)
            if sum(len(piece.content) for piece in pieces) > _MOST_BYTES:
                break
        return pieces

    def _paths(self) -> Iterator[str]:
        for folder, subfolders, names in os.walk(self._folder):
            inside = os.path.relpath(folder, self._folder)
            subfolders[:] = [
                name for name in sorted(subfolders)
                if os.path.normpath(os.path.join(inside, name)) not in _LEFT_OUT
            ]
            for name in sorted(names):
                if not name.endswith(_DRAFT) and name != telemetry.ADDRESS_FILENAME:
                    yield os.path.normpath(os.path.join(inside, name))

    def _is_shorter(self, path: str, mark: int) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return _grows(path) and os.path.getsize(os.path.join(self._folder, path)) < mark
        return False

    def _piece(self, path: str, mark: int) -> Piece | None:
        full = os.path.join(self._folder, path)
        if not _grows(path):
            changed = os.stat(full).st_mtime_ns
            if changed == mark:
                return None
            with open(full, "rb") as file:
                return Piece(path, file.read(), None, changed)
        with open(full, "rb") as file:
            file.seek(mark)
            content = file.read(_MOST_BYTES)
        if path.endswith(_LINES):
            content = content[: content.rfind(b"\n") + 1]
        return Piece(path, content, mark, mark + len(content)) if content else None


class Sink:
    """Fills the run's folder from one source after another."""

    def __init__(self, folder: str):
        """Takes the run's folder."""
        self._folder = folder
        self._incarnation = ""
        self._marks: dict[str, int] = {}

    def acknowledged(self, incarnation: str) -> Mapping[str, int]:
        """Returns the marks that the sink has of an incarnation."""
        return dict(self._marks) if incarnation == self._incarnation else {}

    def take(self, incarnation: str, replaces: bool, pieces: Sequence[Piece]) -> None:
        """Writes pieces; those that do not go on where the file here ends are left for later.

        Pieces that the disk has no room for are left for later as well, with a warning.

        Args:
          incarnation: The source's incarnation.
          replaces: See `Source`.
          pieces: Pieces of its files.

        Raises:
          errors.UserError: A piece belongs to a file outside the run's folder.
        """
        if incarnation != self._incarnation:
            self._incarnation, self._marks = incarnation, {}
        for piece in pieces:
            path = os.path.join(self._folder, os.path.normpath(piece.path))
            if os.path.isabs(piece.path) or os.path.normpath(piece.path).startswith(".."):
                raise errors.UserError(f"A log from another machine has the path {piece.path!r}.")
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                if piece.begin is None:
                    files.write(path, piece.content)
                elif piece.begin == self._marks.get(piece.path, 0):
                    self._append(path, piece, replaces)
                else:
                    continue
            except (OSError, errors.WriteError) as error:
                logging.log_every_n_seconds(
                    logging.WARNING, "Cannot write %s (%s): it is tried again.",
                    _COMPLAINT_PERIOD_S, path, error,
                )
                continue
            self._marks[piece.path] = piece.mark

    def _append(self, path: str, piece: Piece, replaces: bool) -> None:
        content, mode = piece.content, "ab"
        if piece.begin == 0:
            if replaces:
                mode = "wb"
            elif path.endswith(".csv") and os.path.exists(path) and os.path.getsize(path):
                content = content.partition(b"\n")[2]  # The file has a header already.
        with open(path, mode, buffering=0) as file:
            before = file.tell()
            written = 0
            try:
                while written < len(content):
                    written += file.write(content[written:])
            finally:
                if written < len(content):  # The piece comes again as a whole.
                    os.truncate(path, before)


def _grows(path: str) -> bool:
    name = os.path.basename(path)
    return name.startswith(_GROWING_PREFIX) or name.endswith((*_LINES, _GROWING_SUFFIX))
