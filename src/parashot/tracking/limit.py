"""A limit of time on what a library does that knows none of its own."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_AGAIN_SECONDS = 1.0


class TimeIsUp(BaseException):
    """No `Exception`: libraries catch those, and try again."""


@contextmanager
def at_most(seconds: float | None) -> Iterator[None]:
    """Break the block off by `TimeIsUp` when it takes longer. Works in the main thread; None: no limit.

    Where what is raised is swallowed, it is raised again a second later, until the block ends.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    begin = time.monotonic()
    handler = signal.signal(signal.SIGALRM, _ring)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:  # someone else's alarm goes on
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - begin)), interval)


def _ring(number: int, frame: FrameType | None) -> None:
    raise TimeIsUp
