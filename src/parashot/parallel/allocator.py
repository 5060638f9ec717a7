"""Freed memory is kept for the next step.

glibc hands large blocks back to the kernel when they are freed, so that every step pays for page faults over
again (about a third of a Conv4 step on a CPU, and more the larger the step, which would make large batches
look slow). Kept, they are there for the next step. One arena for all threads, because the others cap the size
of their blocks: replicas in threads would keep less than replicas in processes, and the comparison would not
be fair. Called first thing in every process that trains, for every strategy alike.
"""

from __future__ import annotations

import ctypes
import sys

# names and values of glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_NEVER = -1


def keep_freed_memory() -> None:
    """Tell glibc so; elsewhere do nothing."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, _NEVER)
    mallopt(_M_ARENA_MAX, 1)
