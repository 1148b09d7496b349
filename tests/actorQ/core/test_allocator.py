"""Keeping freed memory: in processes of its own, since it changes one for good."""

import platform
import subprocess
import sys
import types

import pytest

from tests.actorQ import harness

# Page faults of 20 further blocks above the largest that glibc keeps by itself (32 MiB).
FAULTS = """
import ctypes, resource
from actorQ.core import allocator
kept = {call}
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def use():
    block = libc.malloc(ctypes.c_size_t(40 << 20))
    ctypes.memset(block, 1, 40 << 20)
    libc.free(block)

use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    use()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(call):
    result = subprocess.run(
        [sys.executable, "-c", FAULTS.format(call=call)], capture_output=True, text=True,
        timeout=60, cwd=harness.REPOSITORY,
    )
    kept, count = result.stdout.split()
    return kept, int(count)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")
def test_keep_large_blocks_reuses_their_pages():
    kept, with_it = faults("allocator.keep_large_blocks()")
    assert kept == "True"
    _, without = faults("None")
    assert with_it < 1000 < without


@pytest.mark.parametrize(
    ("largest", "chosen"), [(1 << 30, 1 << 30), (32 << 20, 32 << 20), (1 << 20, None)]
)
def test_keep_large_blocks_takes_what_the_library_knows(monkeypatch, largest, chosen):
    from actorQ.core import allocator

    taken = {}

    def mallopt(parameter, value):
        if parameter == allocator._M_MMAP_THRESHOLD and value > largest:
            return 0
        taken[parameter] = value
        return 1

    monkeypatch.setattr(
        allocator.ctypes, "CDLL", lambda _: types.SimpleNamespace(mallopt=mallopt)
    )
    assert allocator.keep_large_blocks() == (chosen is not None)
    assert taken.get(allocator._M_MMAP_THRESHOLD) == chosen
    assert bool(taken) == (chosen is not None)  # Otherwise nothing was changed.


def test_keep_large_blocks_elsewhere_does_nothing(monkeypatch):
    from actorQ.core import allocator

    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda _: object())
    assert not allocator.keep_large_blocks()
