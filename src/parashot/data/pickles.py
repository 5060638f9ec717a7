"""Pickles of numpy arrays and plain containers, and of nothing else.

A pickle is a program: `pickle.load` runs whatever it names. This unpickler knows the handful of names that
arrays are built from, under the module names of numpy 1 and 2, and refuses all others.
"""

from __future__ import annotations

import collections
import pickle
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from parashot.data.archives import is_html
from parashot.errors import DataError


def load_arrays(file: IO[bytes], where: str) -> Any:
    """Load a pickle of arrays and plain containers; byte strings of Python 2 become text.

    Raises `DataError`, naming `where`, on a pickle that asks for anything else, and on one that is damaged.
    """
    head = file.read(1024)
    if is_html(head):
        raise DataError(
            f"{where}: an HTML page, not a pickle; the host refused the download: get the file anew"
        )
    file.seek(0)
    try:
        return _Unpickler(file, encoding="latin1").load()
    except _RefusedError as error:
        raise DataError(
            f"{where}: asks for {error}, which no data set needs: refused; get it elsewhere"
        ) from error
    except OSError:
        raise
    except Exception as error:  # on malformed bytes, pickle raises almost anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{where}: not a whole pickle of arrays ({reason}); get it again") from error


class _RefusedError(Exception):
    """The pickle asks for something that is not data."""


def _latin1(text: str, encoding: str) -> bytes:
    """What protocol 2 of Python 3 writes bytes with: `_codecs.encode`, held to the one codec it needs."""
    if encoding != "latin1":
        raise _RefusedError(f"the codec {encoding!r}")
    return text.encode("latin1")


def _admitted() -> dict[tuple[str, str], Callable[..., Any]]:
    reconstruct, state = np.empty(0).__reduce__()[0], np.float64(0).__reduce__()[0]
    frombuffer = np.empty(1).__reduce_ex__(5)[0]
    assert callable(reconstruct) and callable(state) and callable(frombuffer)
    names: dict[tuple[str, str], Callable[..., Any]] = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): _latin1,
        ("collections", "OrderedDict"): collections.OrderedDict,
    }
    for package in ("numpy.core", "numpy._core"):
        names[f"{package}.multiarray", "_reconstruct"] = reconstruct
        names[f"{package}.multiarray", "scalar"] = state
        names[f"{package}.numeric", "_frombuffer"] = frombuffer
    return names


_ADMITTED = _admitted()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise _RefusedError(f"{module!s}.{name!s}".encode("unicode_escape").decode()) from None
