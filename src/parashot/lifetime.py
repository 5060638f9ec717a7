"""Start and end of processes: they end when asked to, and not later than the process that started them."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from multiprocessing.util import get_temp_dir
from pathlib import Path
from threading import Thread
from types import FrameType

from parashot.errors import DeviceError

_PR_SET_PDEATHSIG = 1
"""linux/prctl.h"""

_LONGEST_FOLDER = 107 - len("/listener-12345678")
"""Characters: a socket's path has 107 at most (unix(7))."""


def end_in_order() -> None:
    """Let SIGTERM and SIGHUP end this process as an error would: temporaries go, children are told.

    A signal that is ignored (`nohup`) stays so.
    """
    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, _end)


def end_with_parent() -> None:
    """Ask Linux for SIGTERM when the parent process ends: a stage ends if DVC dies. Elsewhere do nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def end_with_maker() -> None:
    """End this process of `multiprocessing` when the process that made it ends.

    Its parent may be the fork server, which outlives the maker, so the maker itself is watched.
    """
    if maker := multiprocessing.parent_process():
        Thread(target=_end_after, args=(maker,), daemon=True).start()


def _end_after(maker: BaseProcess) -> None:
    maker.join()
    os._exit(1)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def fork_server(*modules: str) -> ForkServerContext:
    """Return the way to start processes from this process's server: what they import is imported once.

    The server starts with the first process, and imports what this process has imported of parashot by then,
    and `modules`; one that runs already (`parallel/server.py`) stays as it is. Raises `DeviceError` where the
    folder of temporary files is too long for its socket's path.
    """
    if not is_folder_short():
        raise DeviceError(
            f"TMPDIR: {Path(get_temp_dir()).parent} is too long for a socket's path; set a shorter folder"
        )
    context = multiprocessing.get_context("forkserver")
    ours = [name for name in sys.modules if name.partition(".")[0] == "parashot"]
    context.set_forkserver_preload([*ours, *modules])
    return context


def usual_start_method() -> str:
    """Name the platform's own way to start processes, as a script has it: CPython lists that first.

    In a rank `multiprocessing`'s default is what started the rank.
    """
    return multiprocessing.get_all_start_methods()[0]


def is_folder_short() -> bool:
    """Whether a socket's path in the folder of temporary files has room for its name."""
    return len(get_temp_dir()) <= _LONGEST_FOLDER
