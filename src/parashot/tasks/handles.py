"""What a data set holds that workers forked from its process must not share with it, such as an open file."""

from __future__ import annotations

import functools
import os
import pickle
import threading
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import SynchronizedBase
from multiprocessing.synchronize import SemLock
from pathlib import Path
from types import FunctionType, ModuleType
from typing import IO, Any

import numpy as np
from torch import Tensor

from parashot.errors import one_line

SAFE: tuple[type, ...] = (
    Tensor,
    FunctionType,
    ModuleType,
    type,
    SynchronizedBase,
    SemLock,
    Queue,
    memoryview,
    threading.local,
    type(threading.Lock()),
    type(threading.RLock()),
    functools._lru_cache_wrapper,
)
"""Copied by a fork as they are, or made to be shared."""


def what_is_open(thing: object, *, hidden: bool = False) -> str:
    """Say what in `thing` cannot be copied, as an open file; nothing where all can.

    It is pickled for that, and not kept. hidden: also what classes leave out of their state when pickled.
    """
    try:
        with Path(os.devnull).open("wb") as nowhere:
            _Walk(nowhere, hidden).dump(thing)
    except Exception as error:  # of any kind: classes pickle themselves
        return one_line(error)
    return ""


class _Walk(pickle.Pickler):
    """Goes through an object's parts."""

    def __init__(self, file: IO[bytes], hidden: bool) -> None:
        super().__init__(file)
        self.hidden = hidden

    def persistent_id(self, obj: object) -> int | None:
        numbers = isinstance(obj, np.ndarray) and not obj.dtype.hasobject  # of a file, too: its memory map
        arrow = type(obj).__module__.partition(".")[0] == "pyarrow"  # a table would be read as a whole
        return 0 if numbers or arrow or isinstance(obj, SAFE) else None

    def reducer_override(self, obj: Any) -> Any:
        get_state: object = type(obj).__getstate__
        has_own_state = hasattr(obj, "__dict__") and get_state is not object.__getstate__
        return (object, (), vars(obj)) if self.hidden and has_own_state else NotImplemented
