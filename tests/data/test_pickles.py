"""Arrays come through from every Python and numpy; a program does not."""

from __future__ import annotations

import io
import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parashot.data.pickles import load_arrays
from parashot.errors import DataError

TREE: dict[str, Any] = {
    "image_data": np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3),
    "class_dict": OrderedDict(n01=[0, np.int64(1)]),
    "labels": np.array([1.5, 2.5]),
}


def _load(data: bytes) -> Any:
    return load_arrays(io.BytesIO(data), "x.pkl")


def _same(found: Any) -> bool:
    return (
        np.array_equal(found["image_data"], TREE["image_data"])
        and found["class_dict"] == TREE["class_dict"]
        and np.array_equal(found["labels"], TREE["labels"])
    )


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol(protocol: int) -> None:
    assert _same(_load(pickle.dumps(TREE, protocol)))


def test_names_of_numpy_1() -> None:
    data = pickle.dumps(TREE, 2)
    assert b"numpy._core" in data
    assert _same(_load(data.replace(b"numpy._core", b"numpy.core")))


def test_strings_of_python_2() -> None:
    """What Python 2 wrote: byte strings, here as SHORT_BINSTRING, for keys and for the pixels."""
    pixels = bytes([200, 255])
    data = (
        b"\x80\x02}U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x02\x85cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89U\x02" + pixels + b"tbs."
    )
    assert np.array_equal(_load(data)["data"], np.frombuffer(pixels, np.uint8))


class _Calls:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, Any]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_program_does_not_run(tmp_path: Path, protocol: int) -> None:
    data = pickle.dumps(_Calls(os.system, f"touch {tmp_path / 'ran'}"), protocol)
    with pytest.raises(DataError, match=r"^x\.pkl: asks for posix\.system, which no data set needs: refused"):
        _load(data)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("function", [eval, getattr, exec, np.load, np.fromfile])
def test_nothing_else_is_admitted(function: Any) -> None:
    with pytest.raises(DataError, match="refused"):
        _load(pickle.dumps(_Calls(function, "1"), 2))


def test_codecs_other_than_the_one_are_refused() -> None:
    data = pickle.dumps(_Calls(__import__("_codecs").encode, "x", "rot13"), 2)
    with pytest.raises(DataError, match="rot13"):
        _load(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a whole pickle"),
        (b"hello", "not a whole pickle"),
        (pickle.dumps(TREE)[:-40], "not a whole pickle"),
        (b"\n<!DOCTYPE html><html>", "HTML page"),
        (b"cnumpy\nx\x00\n.", "refused"),
    ],
)
def test_damaged_says_so_in_one_line(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        _load(data)
    assert str(caught.value).isprintable()
