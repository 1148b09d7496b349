"""Writes files as a whole or not at all, and locks folders for one process at a time.

Imports no framework.
"""

from collections.abc import Iterator
import contextlib
import fcntl
import os

from actorQ.core import errors

Path = str | os.PathLike[str]

_BLOCK_BYTES = 4096

_held: set[int] = set()  # Descriptors of the locks that `locked` holds.


def _leave_locks() -> None:
    """Closes a forked process's copies: a simulator that outlives this process would keep them."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_leave_locks)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns the system's errors into one line that says that a path cannot be written.

    Args:
      path: Path of the file or folder.

    Raises:
      errors.WriteError: There was an OSError.
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
      path: Path of the file to be.
      ending: Ending of the draft's name, for writers that insist on one.

    Raises:
      errors.WriteError: The file cannot be written.
    """
    path = os.fspath(path)
    try:
        with writing(path):
            yield path + ending
            # A crash of the machine soon after would otherwise leave the name with no content.
            sync_file(path + ending)
            os.replace(path + ending, path)
    finally:
        with contextlib.suppress(OSError):  # Usually the draft is not there any more.
            os.remove(path + ending)


def write(path: Path, content: bytes | str) -> None:
    """Writes a file; a text is written as UTF-8.

    Raises:
      errors.WriteError: The file cannot be written.
    """
    with draft(path) as unfinished, open(unfinished, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_if_new(path: Path, content: str) -> None:
    """Writes a file unless it has that content already: a full disk is no matter then.

    Raises:
      errors.WriteError: The file cannot be written.
    """
    with contextlib.suppress(OSError, UnicodeDecodeError), open(path, encoding="utf-8") as file:
        if file.read() == content:
            return
    write(path, content)


def write_problem(folder: Path) -> str:
    """Tries whether a folder takes a file; returns the system's reason why not, or ""."""
    path = os.path.join(folder, f".room-{os.getpid()}")
    try:
        with open(path, "wb") as file:
            file.write(bytes(_BLOCK_BYTES))
    except OSError as error:
        return error.strerror or str(error)
    finally:
        with contextlib.suppress(OSError):
            os.remove(path)
    return ""


def drop_half_row(path: Path) -> int:
    """Removes a half row that a killed process left; returns the number of bytes that stay."""
    with open(path, "rb+") as file:
        return file.truncate(file.read().rfind(b"\n") + 1)


def sync(folder: Path, deep: bool = True) -> None:
    """Brings a folder to the disk, so that it outlives a crash of the machine.

    Args:
      folder: Folder whose entries are written out.
      deep: Whether the files and folders below it are written out as well.

    Raises:
      OSError: The disk is full or broken.
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
      OSError: The file is not there, or the disk is full or broken.
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
      errors.UserError: The folder cannot be made, or another learner works in it.
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
      folder: Folder that exists.
      otherwise: Message where another process is in it; empty: wait for that process.

    Raises:
      errors.UserError: Another process is in the folder, or the folder cannot be opened.
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
        if opened in _held:  # Otherwise this is a fork, which has no lock.
            _held.discard(opened)
            os.close(opened)
