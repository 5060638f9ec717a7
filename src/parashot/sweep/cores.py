"""Cores of this machine, shared out over the runs that it computes at the same time.

Ray counts cores but hands out none: each of several runs would start threads on all of them, and how many
threads add up a sum, which shows in its last bits, would depend on the node.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def own_cores(folder: Path, count: int) -> Iterator[None]:
    """Keep this process on `count` hardware threads, free ones before such as another holds in `folder`.

    A holder that is killed lets go of its own.
    """
    if not hasattr(os, "sched_setaffinity"):  # a system that keeps no process to some cores
        yield
        return
    allowed = sorted(os.sched_getaffinity(0))
    with ExitStack() as locks:
        free = _hold(allowed, count, folder, locks)
        taken = [core for core in allowed if core not in free]
        os.sched_setaffinity(0, [*free, *taken][:count])
        try:
            yield
        finally:
            os.sched_setaffinity(0, allowed)


def _hold(cores: Sequence[int], count: int, folder: Path, locks: ExitStack) -> list[int]:
    """At most `count` of `cores` that are free, held until `locks` are closed."""
    held: list[int] = []
    for core in cores:
        if len(held) == count:
            break
        with ExitStack() as attempt:
            file = attempt.enter_context((folder / f"cpu{core}.lock").open("wb"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            locks.push(attempt.pop_all())
            held.append(core)
    return held
