"""Files that are there as a whole or not at all, and folders that one process works in at a time.

Imports no framework.
"""

from collections.abc import Iterator
import contextlib
import fcntl
import os

from actorQ.core import errors

Path = str | os.PathLike[str]

_LONGEST_ROW = 1 << 16  # Bytes; of a longer one the whole file is searched.
_held: set[int] = set()  # Descriptors of the locks of `locked`.


def _leave_locks() -> None:
    """Closes a forked process's copies: a simulator that outlives us would keep our locks."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_leave_locks)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Says in one line that a file or folder cannot be written, whatever the system says.

    Args:
      path: of the file or folder.

    Raises:
      errors.WriteError: there was an OSError.
    """
    try:
        yield
    except OSError as error:
        raise errors.WriteError(
            f"Cannot write {os.fspath(path)}: {error.strerror or error}."
        ) from None


@contextlib.contextmanager
def draft(path: Path, ending: str = ".tmp") -> Iterator[str]:
    """Gives a path beside `path` to write to; at the end that file takes the place of `path`.

    Args:
      path: of the file to be.
      ending: of the draft, for writers that insist on one.

    Raises:
      errors.WriteError: the file cannot be written.
    """
    path = os.fspath(path)
    try:
        with writing(path):
            yield path + ending
            # A crash of the machine soon after would otherwise leave the name with no content.
            sync_file(path + ending)
            os.replace(path + ending, path)
    finally:
        with contextlib.suppress(OSError):  # Mostly it is not there any more.
            os.remove(path + ending)


def write(path: Path, content: bytes | str) -> None:
    """Writes a file.

    Args:
      path: of the file.
      content: of it; a text as UTF-8.

    Raises:
      errors.WriteError: it cannot be written.
    """
    with draft(path) as unfinished, open(unfinished, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_if_new(path: Path, content: str) -> None:
    """Writes a file unless it has that content already: a full disk is no matter then.

    Raises:
      errors.WriteError: it cannot be written.
    """
    with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        if file.read() == content:
            return
    write(path, content)


def drop_half_row(path: Path) -> int:
    """Removes what a killed process left behind the last newline; returns the bytes that stay."""
    with open(path, "rb+") as file:
        begin = max(0, os.path.getsize(path) - _LONGEST_ROW)
        file.seek(begin)
        newline = file.read().rfind(b"\n")
        if newline < 0 and begin:
            file.seek(0)
            begin, newline = 0, file.read().rfind(b"\n")
        file.truncate(begin + newline + 1)
    return begin + newline + 1


def sync(folder: Path, deep: bool = True) -> None:
    """Brings a folder to the disk, so that it outlives a crash of the machine.

    Args:
      folder: whose entries, and whose files if `deep`, are written out.
      deep: whether files and folders below it are, too.

    Raises:
      OSError: the disk is full or broken.
    """
    if deep:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    sync(entry.path)
                else:
                    sync_file(entry.path)
    sync_file(folder)


def sync_file(path: Path) -> None:
    """Brings one file, or a folder's entries, to the disk.

    Raises:
      OSError: it is not there, or the disk is full or broken.
    """
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def run_folder(folder: Path) -> Iterator[None]:
    """Makes the folder of a run, and keeps other learners out of it.

    Raises:
      errors.UserError: it cannot be made, or another learner works in it.
    """
    folder = os.fspath(folder)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise errors.UserError(f"Cannot write logs to {folder}: {error.strerror}.") from None
    with locked(folder, f"Another learner trains in {folder}: end it, or choose another folder."):
        yield


@contextlib.contextmanager
def locked(folder: Path, otherwise: str = "") -> Iterator[None]:
    """Keeps other processes out of a folder; the lock ends with the process in any case.

    Args:
      folder: that exists.
      otherwise: what to say where another process is in it; empty: wait for it.

    Raises:
      errors.UserError: another process is in it, or the folder cannot be opened.
    """
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise errors.UserError(f"Cannot open {os.fspath(folder)}: {error.strerror}.") from None
    _held.add(opened)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | (fcntl.LOCK_NB if otherwise else 0))
        except BlockingIOError:
            raise errors.UserError(otherwise) from None
        yield
    finally:
        if opened in _held:  # Else this is a fork, which has no lock.
            _held.discard(opened)
            os.close(opened)
