"""Freed memory is kept for the next step.

glibc hands large blocks back to the kernel when they are freed, so that every step pays for page faults over
again (about a third of a Conv4 step on a CPU). Kept, they are there for the next step. One arena for all
threads, because the others cap the size of their blocks: replicas in threads would keep less than replicas in
processes, and the comparison would not be fair. Called first thing in every process that trains, for every
strategy alike; a user's own training (`parashot measure`) has the variables below instead, in the ways that
are named after it.

Blocks above 1 GiB are still handed back: kept as well, they tear holes into the arena that the next step's
blocks do not fit, and the process grows until it is killed (seen with batchsz 60 at 84 pixels).
"""

from __future__ import annotations

import ctypes
import os
import platform

# names and values of glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGEST_BLOCK_OF_OLD = 2**25  # versions before 2.35 refuse more than 32 MiB
_KEPT_AT_MOST = 2**31 - 1  # bytes that lie free at the end of the heap

LARGEST_BLOCK = 2**30
LARGEST_BLOCK_OF_FRUGAL = 2**23
"""Bytes: for who wants less memory rather than more speed, what tears the large holes is handed back."""

OTHER_ALLOCATOR = ("LD_PRELOAD", "GLIBC_TUNABLES")
"""Variables by which programs get another allocator, or this one other settings."""


def as_environment() -> dict[str, str]:
    """The same for any program: variables that glibc reads when the program starts."""
    version = [int(each) for each in platform.libc_ver()[1].split(".") if each.isdigit()]
    return {
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": str(_LARGEST_BLOCK_OF_OLD if version < [2, 35] else LARGEST_BLOCK),
        "MALLOC_TRIM_THRESHOLD_": str(_KEPT_AT_MOST),
    }


def why_nothing_is_kept() -> str:
    """Reason why keeping freed memory cannot be compared with the default; else empty."""
    named = [each for each in os.environ if each in OTHER_ALLOCATOR or each.startswith("MALLOC_")]
    return f"{named[0]} is set, so all ways have it" if named else ""


def keep_freed_memory(largest_block: int = LARGEST_BLOCK) -> None:
    """Tell glibc to keep what is freed, blocks of up to `largest_block` bytes."""
    mallopt = ctypes.CDLL(None).mallopt
    if not mallopt(_M_MMAP_THRESHOLD, largest_block):
        mallopt(_M_MMAP_THRESHOLD, min(largest_block, _LARGEST_BLOCK_OF_OLD))
    mallopt(_M_TRIM_THRESHOLD, _KEPT_AT_MOST)
    mallopt(_M_ARENA_MAX, 1)
