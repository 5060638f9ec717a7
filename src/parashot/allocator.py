"""Freed memory is kept for the next step.

glibc hands large blocks back to the kernel when they are freed, so that every step pays for page faults over
again (about a third of a Conv4 step on a CPU). Kept, they are there for the next step. One arena for all
threads, because the others cap the size of their blocks: replicas in threads would keep less than replicas in
processes, and the comparison would not be fair. Called first thing in every process that trains, for every
strategy alike; of a user's own training (`parashot measure`) only in the way that is named after it.

Blocks above 1 GiB are still handed back: kept as well, they tear holes into the arena that the next step's
blocks do not fit, and the process grows until it is killed (seen with batchsz 60 at 84 pixels).
"""

from __future__ import annotations

import ctypes
import sys

# names and values of glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGEST_BLOCK_OF_OLD = 2**25  # older versions refuse more than 32 MiB

LARGEST_BLOCK = 2**30
LARGEST_BLOCK_OF_FRUGAL = 2**23
"""Bytes: for who wants less memory rather than more speed, what tears the large holes is handed back."""

AS_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": 1,
    "MALLOC_MMAP_THRESHOLD_": LARGEST_BLOCK,
    "MALLOC_TRIM_THRESHOLD_": 2**31 - 1,
}
"""The same for any program: variables that glibc reads when it starts."""


def can_keep_freed_memory() -> bool:
    """Whether this system's allocator can be told to."""
    return sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "mallopt")


def keep_freed_memory(largest_block: int = LARGEST_BLOCK) -> None:
    """Tell glibc to keep what is freed, blocks of up to `largest_block` bytes; elsewhere do nothing."""
    if not can_keep_freed_memory():
        return
    mallopt = ctypes.CDLL(None).mallopt
    if not mallopt(_M_MMAP_THRESHOLD, largest_block):
        mallopt(_M_MMAP_THRESHOLD, min(largest_block, _LARGEST_BLOCK_OF_OLD))
    mallopt(_M_TRIM_THRESHOLD, AS_ENVIRONMENT["MALLOC_TRIM_THRESHOLD_"])
    mallopt(_M_ARENA_MAX, AS_ENVIRONMENT["MALLOC_ARENA_MAX"])
