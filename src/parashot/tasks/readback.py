"""Whether a data set that can be sent to a worker can be read back there."""

from __future__ import annotations

import pickle
from io import BytesIO
from typing import Any

from parashot.errors import one_line
from parashot.tasks.packed import separate

MOST_READ_BACK = 2**24
"""Bytes of a data set that is read back to see whether it can be; of a larger one nothing is known."""


def cannot_be_read_back(sent: Any, dataset: object) -> str:
    """Say why `dataset`, which is sent as `sent`, cannot be read back, and what to do; or nothing."""
    written = _Small()
    try:
        pickle.Pickler(written).dump(sent)
    except Exception:  # of any kind: it is large, or can be pickled for a worker alone
        return ""
    try:
        separate(pickle.loads(written.getbuffer()))
    except Exception as error:  # as above
        return (
            f"{type(dataset).__name__} cannot be read back in a worker ({type(error).__name__}: "
            f"{one_line(error)}); let __getattr__ raise AttributeError for what is not there yet"
        )
    return ""


class _Small(BytesIO):
    """A file that takes so much and no more."""

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > MOST_READ_BACK:
            raise OverflowError
        return super().write(data)
