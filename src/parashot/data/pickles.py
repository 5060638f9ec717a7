"""Pickles of numpy arrays and plain containers, and of nothing else.

A pickle is a program: `pickle.load` runs whatever it names. This unpickler knows the handful of names that
arrays are built from, under the module names of numpy 1 and 2, and refuses all others. What stands behind
these names is its own: numpy's would make arrays of any size and of objects.
"""

from __future__ import annotations

import collections
import pickle
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from parashot.data.archives import is_html
from parashot.errors import DataError
from parashot.opcodes import check_opcodes

_KINDS = "biufSU"
"""Kinds of data in arrays: truth values, numbers and text."""


def load_arrays(file: IO[bytes], where: str) -> Any:
    """Load a pickle of arrays and plain containers; byte strings of Python 2 become text.

    Raises `DataError`, naming `where`, on a pickle that asks for anything else, on one that would build more
    than it holds, and on one that is damaged.
    """
    head = file.read(1024)
    if is_html(head):
        raise DataError(
            f"{where}: an HTML page, not a pickle; the host refused the download: get the file anew"
        )
    try:
        file.seek(0)
        check_opcodes(file)
        file.seek(0)
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


class _Dtype:
    """Stands for numpy.dtype(code), to which a pickle adds the byte order."""

    __slots__ = ("dtype",)

    def __init__(self, code: str, *_: object) -> None:
        self.dtype = np.dtype(code) if isinstance(code, str) and code[:1].isalpha() else np.dtype("O")
        if self.dtype.kind not in _KINDS or self.dtype.names:
            raise _RefusedError(f"an array of {code!r}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, order, subtype, names, fields = state[:5]
        if (subtype, names, fields) != (None, None, None):
            raise _RefusedError("an array of records")
        self.dtype = self.dtype.newbyteorder(order)


class _Array(np.ndarray[Any, np.dtype[Any]]):
    """An array whose content the pickle still has to set."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        version, shape, dtype, is_fortran, content = state
        if not isinstance(dtype, _Dtype) or not isinstance(content, bytes | str):
            raise _RefusedError("an array of objects")
        # what numpy pickles has five parts, of which the stubs know four
        super().__setstate__((version, shape, dtype.dtype, is_fortran, content))  # type: ignore[arg-type]


def _reconstruct(*_: object) -> _Array:
    return np.empty(0, np.uint8).view(_Array)


def _from_buffer(
    content: bytes | bytearray, dtype: _Dtype, shape: tuple[int, ...], order: Literal["C", "F"]
) -> npt.NDArray[Any]:
    return np.frombuffer(content, dtype.dtype).reshape(shape, order=order)


def _scalar(dtype: _Dtype, content: bytes | str) -> Any:
    data = content.encode("latin1") if isinstance(content, str) else content
    return np.frombuffer(data, dtype.dtype, count=1)[0]


def _latin1(text: str, encoding: str) -> bytes:
    """What protocol 2 of Python 3 writes bytes with: `_codecs.encode`, held to the one codec it needs."""
    if encoding != "latin1":
        raise _RefusedError(f"the codec {encoding!r}")
    return text.encode("latin1")


def _admitted() -> dict[tuple[str, str], object]:
    names: dict[tuple[str, str], object] = {
        ("numpy", "ndarray"): None,  # always as the argument of _reconstruct
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): _latin1,
        ("collections", "OrderedDict"): collections.OrderedDict,
    }
    for package in ("numpy.core", "numpy._core"):
        names[f"{package}.multiarray", "_reconstruct"] = _reconstruct
        names[f"{package}.multiarray", "scalar"] = _scalar
        names[f"{package}.numeric", "_frombuffer"] = _from_buffer
    return names


_ADMITTED = _admitted()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise _RefusedError(f"{module}.{name}") from None
