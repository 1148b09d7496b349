"""Keeps the C library from handing a message's memory back after every transfer.

glibc returns every freed block above 32 MiB to the kernel. Each of its arenas, up to eight a core,
also returns the free memory at its end. A model message is copied half a dozen times on its way
through protobuf, snappy and gRPC, on any thread: most of the time then went into clearing fresh
pages. 34 MB through one Reverb hop took 78 ms to insert and 58 ms to sample; with this module they
take 24 and 21 ms. Imports no framework.
"""

import ctypes

# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
# Before release 2.35 or so glibc takes 32 MiB at most for _M_MMAP_THRESHOLD.
_LARGEST_KEPT_BYTES = (1 << 30, 32 << 20)


def keep_large_blocks() -> bool:
    """Has malloc keep freed blocks, in one arena for all threads; call it before threads start.

    One arena also means that blocks of a message that one thread freed serve the next thread.

    Returns:
      Whether the C library can do it (glibc). Nothing but speed depends on it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    if not any(mallopt(_M_MMAP_THRESHOLD, value) == 1 for value in _LARGEST_KEPT_BYTES):
        return False  # Any other setting would fix this threshold at 128 KiB.
    settings = ((_M_TRIM_THRESHOLD, _LARGEST_KEPT_BYTES[0]), (_M_ARENA_MAX, 1))
    return all([mallopt(parameter, value) == 1 for parameter, value in settings])
