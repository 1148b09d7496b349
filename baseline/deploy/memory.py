"""Measures how much of a device's memory a policy's file takes.

A process of its own, `resident_memory`, loads and plays the file. Its resident data counts, and
what it has mapped of the file. Pages of programs and libraries do not: other processes share them,
and how many a policy touches says nothing of its weights.
"""

from collections.abc import Sequence
import os
import statistics
import sys

import psutil

from actorQ.core import provenance
from baseline.deploy import aarch64

NOISE_BYTES = 500_000
_LIMIT_S = 120.0


def can_measure() -> bool:
    """Returns whether this system tells a process's memory: Linux does."""
    return psutil.LINUX


def of_policy(path: str | os.PathLike[str], empty: str | os.PathLike[str], turns: int = 3) -> int:
    """Returns the bytes that a policy takes beyond those of its runtime.

    Figures below `NOISE_BYTES` are noise: single pages, and memory that allocators keep.

    Args:
      path: The policy's file.
      empty: A file of the same format whose policy is tiny.
      turns: Processes of each file; their medians count.

    Raises:
      errors.UserError: A process fails.
    """
    policy, nothing = (
        statistics.median(in_fresh_process(file) for _ in range(turns)) for file in (path, empty)
    )
    return int(policy - nothing)


def in_fresh_process(
    path: str | os.PathLike[str], python: Sequence[str] = (sys.executable,)
) -> int:
    """Returns the resident bytes of a new process that has loaded and played a file.

    Args:
      path: The file.
      python: Command of the Python that runs the process.

    Raises:
      errors.UserError: The process fails.
    """
    printed = aarch64.printed_by(
        [*python, "-m", "baseline.deploy.resident_memory", os.fspath(path)],
        f"cannot play {path} in a process of its own", _LIMIT_S, cwd=provenance.ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    return int(printed.splitlines()[-1])


def resident_bytes(path: str | os.PathLike[str] | None = None) -> int:
    """Returns how much of this process's data is in memory now.

    Args:
      path: A file whose mapped pages count as well, or None.
    """
    own = None if path is None else os.path.realpath(path)
    return sum(
        mapping.rss if mapping.path == own else mapping.anonymous
        for mapping in psutil.Process().memory_maps()
    )
