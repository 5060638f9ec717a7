"""What a data set holds that workers forked from its process must not share with it, such as an open file."""

from __future__ import annotations

import pickle
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import SynchronizedBase
from multiprocessing.synchronize import SemLock
from types import FunctionType, ModuleType
from typing import Any

from torch import Tensor

from parashot.errors import one_line

SAFE: tuple[type, ...] = (Tensor, FunctionType, ModuleType, type, SynchronizedBase, SemLock, Queue)
"""Copied by a fork as they are, or made to be shared."""


def what_is_open(thing: object, *, hidden: bool = False) -> str:
    """Say what in `thing` cannot be copied, as an open file; nothing where all can.

    It is pickled for that, and not kept. hidden: also what classes leave out of their state when pickled.
    """
    try:
        _Walk(hidden).dump(thing)
    except Exception as error:  # of any kind: classes pickle themselves
        return one_line(error)
    return ""


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        return memoryview(data).nbytes


class _Walk(pickle.Pickler):
    """Goes through an object's parts."""

    def __init__(self, hidden: bool) -> None:
        super().__init__(_Nowhere())
        self.hidden = hidden

    def persistent_id(self, obj: object) -> int | None:
        return 0 if isinstance(obj, SAFE) else None

    def reducer_override(self, obj: Any) -> Any:
        has_own_state = hasattr(obj, "__dict__") and "__getstate__" in _defined(type(obj))
        return (object, (), vars(obj)) if self.hidden and has_own_state else NotImplemented


def _defined(kind: type) -> set[str]:
    """Names that a class and its bases define, but for those of every object."""
    return {name for each in kind.__mro__ if each is not object for name in vars(each)}
