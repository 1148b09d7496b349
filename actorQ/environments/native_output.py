"""Keeps what native libraries print away from the terminal."""

from collections.abc import Iterator
import contextlib
import ctypes
import os
import sys


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Discards what native code writes to standard output and error within the block.

    The redirection is of the whole process and of file descriptors, since native code passes
    `sys.stdout` by. Python's own exceptions are not affected.
    """
    libc = ctypes.CDLL(None)
    saved = []
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            if stream is not None:
                stream.flush()
            saved.append((descriptor, os.dup(descriptor)))
        except (OSError, ValueError):
            continue  # A process without that stream has nothing to protect.
    libc.fflush(None)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        for descriptor, _ in saved:
            os.dup2(null, descriptor)
        yield
    finally:
        # Native output waits in C's own buffers when it goes to a file or a pipe.
        libc.fflush(None)
        for descriptor, copy in saved:
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(null)
