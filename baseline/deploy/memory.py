"""Measures how much of a device's memory a policy's file takes.

A process of its own, `resident_memory`, loads and plays the file. Its resident data counts, and
what it has mapped of the file. Pages of programs and libraries do not: other processes share them,
and how many a policy touches says nothing of its weights. The sum of all pages is told beside it.
"""

from collections.abc import Sequence
import os
import statistics
import sys
from typing import NamedTuple

import psutil

from actorQ.core import provenance
from baseline.deploy import aarch64

NOISE_BYTES = 500_000
_LIMIT_S = 120.0


class Resident(NamedTuple):
    """Bytes of a process that are in memory.

    Attributes:
      own: Its data, and mapped pages of its policy.
      all_pages: All its pages, those of programs and libraries included.
    """

    own: int
    all_pages: int


def can_measure() -> bool:
    """Returns whether this system tells a process's memory: Linux does."""
    return psutil.LINUX


def of_policy(
    path: str | os.PathLike[str], empty: str | os.PathLike[str], turns: int = 3
) -> Resident:
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
        [in_fresh_process(file) for _ in range(turns)] for file in (path, empty)
    )
    beyond = [
        int(statistics.median(mine) - statistics.median(theirs))
        for mine, theirs in zip(zip(*policy, strict=True), zip(*nothing, strict=True), strict=True)
    ]
    return Resident(*beyond)


def in_fresh_process(
    path: str | os.PathLike[str], python: Sequence[str] = (sys.executable,)
) -> Resident:
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
    own, all_pages = map(int, printed.splitlines()[-1].split())
    return Resident(own, all_pages)


def resident(path: str | os.PathLike[str] | None = None) -> Resident:
    """Returns how much of this process is in memory now.

    Args:
      path: A file whose mapped pages count as well, or None.
    """
    own = None if path is None else os.path.realpath(path)
    mappings = psutil.Process().memory_maps()
    return Resident(
        sum(each.rss if each.path == own else each.anonymous for each in mappings),
        sum(each.rss for each in mappings),
    )
