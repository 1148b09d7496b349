"""Keeps the learner's server from other machines: Reverb itself listens on every interface.

A small library, loaded before all others (LD_PRELOAD), binds its sockets to 127.0.0.1 (loopback.c).
That needs neither rights nor a namespace, so that it works in a container, too. Imports no
framework.
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import sys

from actorQ.core import errors
from actorQ.core import files
from actorQ.policy.native import compiling

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_SOURCE = os.path.join(_FOLDER, "loopback.c")
_PRELOAD = "LD_PRELOAD"
_BEFORE = "ACTORQ_PRELOAD_BEFORE"  # The user's own LD_PRELOAD, while ours stands in its place.


def active() -> bool:
    """Returns whether this process can serve its own machine only."""
    return hasattr(ctypes.CDLL(None), "actorq_loopback")


def build() -> str:
    """Compiles the library if it is missing, and returns its path.

    Raises:
      errors.UserError: There is no compiler, or it failed.
    """
    with open(_SOURCE, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()[:12]
    path = os.path.join(_FOLDER, "_build", f"loopback-{platform.machine()}-{digest}.so")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with files.draft(path, f".{os.getpid()}") as library:
            compiling.run(
                *compiling.find_compiler(), "-O2", "-fPIC", "-shared", _SOURCE, "-ldl",
                "-o", library,
            )
    return path


def enter() -> None:
    """Starts this program again with the library, unless it has it or cannot have it."""
    before = os.environ.pop(_BEFORE, None)
    if before is not None:  # This is the second start. Children of this process want no server.
        os.environ.pop(_PRELOAD)
        if before:
            os.environ[_PRELOAD] = before
        return
    with contextlib.suppress(errors.UserError, OSError):
        before = os.environ.get(_PRELOAD, "")
        # The loader splits paths at spaces and colons, so that it gets an open file's number.
        library = os.open(build(), os.O_RDONLY)
        os.set_inheritable(library, True)
        preload = ":".join(filter(None, [f"/proc/self/fd/{library}", before]))
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(
            sys.executable, sys.orig_argv,
            {**os.environ, _PRELOAD: preload, _BEFORE: before},
        )


def note(port: int, everywhere: bool) -> str:
    """Returns a sentence on who reaches the server; "" where only this machine does.

    Args:
      port: Port of the server; 0 where it is not known yet.
      everywhere: Whether --listen=all was asked for.
    """
    where = f"port {port}" if port else "the learner's port"
    if everywhere:
        return f"All machines of the network reach {where} (--listen=all), without a password."
    if active():
        return ""
    return (
        f"All machines of the network reach {where}, without a password: closing it needs a C "
        "compiler (sudo apt-get install gcc libc6-dev)."
    )
