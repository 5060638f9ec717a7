"""Arrays come through from every Python and numpy; a program does not."""

from __future__ import annotations

import io
import os
import pickle
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parashot.data.sources.pickled import load_arrays, pickled_images
from parashot.errors import DataError

TREE: dict[str, Any] = {
    "image_data": np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3),
    "class_dict": OrderedDict(n01=[0, np.int64(1)]),
    "labels": np.array([1.5, 2.5]),
}


def _load(data: bytes) -> Any:
    return load_arrays(io.BytesIO(data))


def _same(found: Any) -> bool:
    return (
        np.array_equal(found["image_data"], TREE["image_data"])
        and found["class_dict"] == TREE["class_dict"]
        and np.array_equal(found["labels"], TREE["labels"])
    )


def test_every_protocol() -> None:
    assert all(_same(_load(pickle.dumps(TREE, protocol))) for protocol in range(6))


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


PROGRAMS: dict[str, bytes] = {
    "os.system": pickle.dumps(_Calls(os.system, "touch ran"), 4),
    "os.system by INST": b"(S'touch ran'\nios\nsystem\n.",
    "os.system by OBJ": b"(cos\nsystem\nS'touch ran'\no.",
    "numpy.load": pickle.dumps(_Calls(np.load, "x.npy"), 2),
    "an attribute of what is admitted": b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93.",
    "a class of the standard library": pickle.dumps(Counter("ab"), 2),
}


@pytest.mark.parametrize("data", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"^asks for .*, which is no array"):
        _load(data)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"<html>", pickle.dumps(TREE)[:-40]])
def test_damaged_says_so_in_one_line(data: bytes) -> None:
    with pytest.raises(DataError, match="not a whole pickle"):
        _load(data)


PIXELS = np.zeros((2, 8, 8, 3), np.uint8)
CACHE, CATEGORY = "mini-imagenet-cache-train.pkl", "miniImageNet_category_split_val.pickle"


@pytest.mark.parametrize(
    ("name", "tree", "message"),
    [
        (CACHE, [1], "image_data and class_dict wanted, list found"),
        (CACHE, {"data": 1}, "image_data and class_dict wanted, data found"),
        (CACHE, {"image_data": PIXELS[0], "class_dict": {}}, r"shape \(8, 8, 3\)"),
        (CACHE, {"image_data": PIXELS / 2, "class_dict": {}}, "images of float64"),
        (CACHE, {"image_data": PIXELS, "class_dict": []}, "class_dict is no dictionary"),
        (CACHE, {"image_data": PIXELS, "class_dict": {"n01532829": [2]}}, "image 2 of 2"),
        (CATEGORY, {"data": PIXELS}, "data and labels wanted, data found"),
        (CATEGORY, {"data": PIXELS, "labels": [1]}, r"2 images have labels of shape \(1,\)"),
    ],
)
def test_pickles_of_something_else(tmp_path: Path, name: str, tree: object, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(pickle.dumps(tree))
    with pytest.raises(DataError, match=f"^{name}: .*{message}.*; get it again$"):
        list(pickled_images(path))
