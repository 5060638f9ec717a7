"""Pickles that are programs, bombs or nonsense: refused before they can do anything."""

from __future__ import annotations

import collections
import io
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from answers import Answered, Refused

from parashot import opcodes
from parashot.data.archives import Member
from parashot.data.pickles import load_arrays
from parashot.data.sources.pickled import cache_images, category_images
from parashot.errors import DataError


def _load(data: bytes) -> Any:
    return load_arrays(io.BytesIO(data), "train.pkl")


class _Calls:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, Any]:
        return self.call


# --- programs ---------------------------------------------------------------------------------------------

PROGRAMS: dict[str, bytes] = {
    "os.system": pickle.dumps(_Calls(os.system, "touch ran"), 4),
    "os.system in protocol 0": b"cos\nsystem\n(S'touch ran'\ntR.",
    "os.system by INST": b"(S'touch ran'\nios\nsystem\n.",
    "os.system by OBJ": b"(cos\nsystem\nS'touch ran'\no.",
    "os.system by NEWOBJ": b"\x80\x02cos\nsystem\nU\ttouch ran\x85\x81.",
    "subprocess": pickle.dumps(_Calls(subprocess.Popen, ["touch", "ran"]), 2),
    "eval": pickle.dumps(_Calls(eval, "open('ran', 'w')"), 2),
    "eval of Python 2": b"c__builtin__\neval\n(S'1'\ntR.",
    "import": pickle.dumps(_Calls(__import__, "antigravity"), 2),
    "getattr": pickle.dumps(_Calls(getattr, 1, "real"), 2),
    "numpy.load": pickle.dumps(_Calls(np.load, "x.npy"), 2),
    "numpy.fromfile": pickle.dumps(_Calls(np.fromfile, "/etc/passwd"), 2),
    "numpy.memmap": pickle.dumps(_Calls(np.memmap, "ran"), 2),
    "an attribute of what is admitted": b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__class__\x93.",
    "a name with a newline": b"\x80\x04\x8c\x02os\x8c\x0ba\n\x1b[31mHELL\x93.",
    "a name from right to left": "\u202e".join(("c", "os\nx\n.")).encode(),
    "an extension of copyreg": b"\x80\x02\x82\x01.",
    "a persistent object": b"Pname\n.",
    "a class of the standard library": pickle.dumps(collections.Counter("ab"), 2),
    "a path": pickle.dumps(PurePosixPath("/etc/passwd"), 2),
    "another codec": pickle.dumps(_Calls(__import__("_codecs").encode, "x", "rot13"), 2),
    "a codec that is none": b"c_codecs\nencode\n(Vx\n(lp0\ntR.",
}


@pytest.mark.parametrize("data", PROGRAMS.values(), ids=PROGRAMS)
def test_programs(tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.chdir(tmp_path)
    refused(DataError, lambda: _load(data), "train.pkl: ")


# --- what is admitted, used otherwise ---------------------------------------------------------------------

DTYPE = b"cnumpy\ndtype\nq\x01"
U1 = DTYPE + b"U\x02u1K\x00K\x01\x87R"
EMPTY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"


def _dtype(code: bytes) -> bytes:
    return b"\x80\x02" + DTYPE + b"U" + bytes([len(code)]) + code + b"\x85R."


MISUSES: dict[str, tuple[bytes, str]] = {
    "array of objects": (pickle.dumps(np.array([{}, ()], dtype=object), 2), "an array of 'O8'"),
    "array of objects, protocol 4": (pickle.dumps(np.array([[]], dtype=object), 4), "an array of 'O8'"),
    "array of records": (pickle.dumps(np.zeros(2, "u1,u2"), 2), "an array of 'V3'"),
    "array of dates": (pickle.dumps(np.zeros(2, "M8[s]"), 2), "an array of 'M8'"),
    "array of raw bytes": (pickle.dumps(np.zeros(2, "V9"), 2), "an array of 'V9'"),
    "array of complex numbers": (pickle.dumps(np.zeros(2, "c16"), 2), "an array of 'c16'"),
    "type of many": (_dtype(b"9999999999u1"), "an array of '9999999999u1'"),
    "type by fields": (_dtype(b"(3,)u1"), "an array of '(3,)u1'"),
    "type by a list": (b"\x80\x02" + DTYPE + b"]\x85R.", "an array of []"),
    "type that becomes a record": (
        b"\x80\x02" + U1 + b"(K\x03U\x01|NU\x01a\x85}JJJ\xff\xff\xff\xffK\x00tb.",
        "not a whole pickle",
    ),
    "type with fields": (
        b"\x80\x02" + U1 + b"(K\x03U\x01|NU\x01a\x85}J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb.",
        "an array of records",
    ),
    "numpy's array called": (
        b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85\x85R.",
        "not a whole pickle",
    ),
    "array larger than its content": (
        b"\x80\x02" + EMPTY + b"(K\x01J\xff\xff\xff\x7f\x85" + U1 + b"\x89U\x02abtb.",
        "not a whole pickle",
    ),
    "array of a negative size": (
        b"\x80\x02" + EMPTY + b"(K\x01J\xff\xff\xff\xff\x85" + U1 + b"\x89U\x02abtb.",
        "not a whole pickle",
    ),
    "array of content that is a list": (
        b"\x80\x02" + EMPTY + b"(K\x01K\x01\x85" + U1 + b"\x89]tb.",
        "an array of objects",
    ),
    "array of a type that is none": (
        b"\x80\x02" + EMPTY + b"(K\x01K\x01\x85U\x02u1\x89U\x02abtb.",
        "an array of objects",
    ),
    "array of many dimensions": (
        b"\x80\x02" + EMPTY + b"(K\x01(" + b"K\x01" * 99 + b"t" + U1 + b"\x89U\x01atb.",
        "not a whole pickle",
    ),
    "buffer reshaped": (
        b"\x80\x02cnumpy.core.numeric\n_frombuffer\n(U\x01a" + U1 + b"K\x09\x85U\x01CtR.",
        "not a whole pickle",
    ),
    "scalar of nothing": (
        b"\x80\x02cnumpy.core.multiarray\nscalar\n" + U1 + b"U\x00\x86R.",
        "not a whole pickle",
    ),
    "a function changed": (b"\x80\x02c_codecs\nencode\n}U\x01aK\x01sb.", "changes a class or function"),
    "a function's defaults changed": (
        b"\x80\x02c_codecs\nencode\nN}U\x0c__defaults__)s\x86b.",
        "changes a class or function",
    ),
    "a class changed": (b"\x80\x02" + DTYPE + b"N}U\x01aK\x01s\x86b.", "changes a class or function"),
    "a class changed, from the memo": (b"\x80\x02" + DTYPE + b"0h\x01}U\x01aK\x01sb.", "changes a class"),
}


@pytest.mark.parametrize(("data", "message"), MISUSES.values(), ids=MISUSES)
def test_what_is_admitted_cannot_be_misused(refused: Refused, data: bytes, message: str) -> None:
    refused(DataError, lambda: _load(data), "train.pkl: ", message)


# --- bombs ------------------------------------------------------------------------------------------------


def _laughs(empty: bytes, add: bytes, levels: int = 30) -> bytes:
    """Containers that hold the one before twice."""
    parts = [b"\x80\x02", empty, b"q\x00"]
    for level in range(levels):
        parts += [empty, b"q", bytes([level + 1])]
        parts += [b"h", bytes([level]), add] * 2
    return b"".join(parts) + b"."


def _nested(levels: int, kind: bytes = b"\x85") -> bytes:
    return b"\x80\x02}K\x01" + kind * levels + b"Ns."


BOMBS: dict[str, tuple[bytes, str]] = {
    "a billion laughs of lists": (_laughs(b"]", b"a"), "holds a container twice"),
    "a billion laughs of tuples": (
        b"\x80\x02)q\x00" + b"".join(b"h%ch%c\x86q%c0" % (n, n, n + 1) for n in range(60)) + b"h\x3c.",
        "holds a container twice",
    ),
    "tuples that take for ever to hash": (
        b"\x80\x02}K\x01\x85" + b"2\x86" * 60 + b"Ns.",
        "holds a container twice",
    ),
    "a list in itself": (b"\x80\x02]q\x00h\x00a.", "in itself"),
    "a dictionary in itself": (b"\x80\x02}q\x00K\x01h\x00s.", "in itself"),
    "a list in itself, protocol 0": (b"(lp0\ng0\na.", "in itself"),
    "a list, disguised by BUILD": (b"\x80\x02]Nbq\x00h\x00a.", "in itself"),
    "a list, disguised by POP": (b"\x80\x02]K\x010q\x00h\x00a.", "in itself"),
    "a list, disguised by MARK and POP": (b"\x80\x02](0q\x00h\x00a.", "in itself"),
    "tuples deeper than the stack": (_nested(1_000_000, b"\x85"), "deeper than 50"),
    "tuples by marks": (b"\x80\x02" + b"(" * 10_000 + b"t" * 10_000 + b".", "deeper than 50"),
    "lists deeper than the stack": (b"\x80\x02" + b"]" * 10_000 + b"a" * 9_999 + b".", "deeper than 50"),
    "dictionaries deeper than the stack": (
        b"\x80\x02" + b"}K\x01" * 10_000 + b"}" + b"s" * 10_000 + b".",
        "deeper than 50",
    ),
    "sets deeper than the stack": (
        b"\x80\x04" + b"(" * 10_000 + b"\x91" * 10_000 + b".",
        "deeper than 50",
    ),
    "bytes that claim 2 EiB": (b"\x80\x04\x8e" + struct.pack("<Q", 2**61) + b"ab.", "cut short"),
    "bytes that claim 3 GiB": (b"\x80\x03B" + struct.pack("<I", 3 * 2**30) + b"ab.", "cut short"),
    "text that claims 4 GiB": (b"\x80\x02X" + struct.pack("<I", 2**32 - 1) + b"ab.", "cut short"),
    "text that claims 2 EiB": (b"\x80\x04\x8d" + struct.pack("<Q", 2**61) + b"ab.", "cut short"),
    "an array of bytes that claims 2 EiB": (b"\x80\x05\x96" + struct.pack("<Q", 2**61) + b"ab.", "cut short"),
    "a string that claims 4 GiB": (b"\x80\x02T" + struct.pack("<i", -1) + b"ab.", "cut short"),
    "a number that claims 2 GiB": (b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"ab.", "cut short"),
    "a number of a negative length": (b"\x80\x02\x8b" + struct.pack("<i", -5) + b"ab.", "cut short"),
    "a number of a million digits": (b"L" + b"9" * 1_000_000 + b"L\n.", "not a whole pickle"),
    "a frame that claims 2 EiB": (b"\x80\x04\x95" + struct.pack("<Q", 2**61) + b"N.", "a frame is cut short"),
    "a memory of 64 GiB": (b"\x80\x02Nr" + struct.pack("<I", 2**32 - 1) + b".", "remembers at 4,294,967,295"),
    "a memory of 64 GiB, protocol 0": (b"Np4294967295\n.", "remembers at"),
    "a memory below zero": (b"Np-1\n.", "remembers at no number"),
    "a memory without end": (b"Np" + b"9" * 100_000 + b"\n.", "remembers at no number"),
    "a buffer from elsewhere": (b"\x80\x05\x97.", "not a whole pickle"),
    "a line without end": (b"S'" + b"a" * 3_000_000, "cut short"),
    "nothing under a tuple": (b"\x80\x02\x85.", "takes what is not there"),
    "no mark": (b"\x80\x02K\x01t.", "a mark is missing"),
    "a mark taken for a thing": (b"\x80\x02(q\x00.", "takes what is not there"),
    "a thing that was never remembered": (b"\x80\x02h\x07.", "holds a container twice"),
    "no end": (b"\x80\x02]", "cut short"),
    "a protocol to come": (b"\x80\x99N.", "not a whole pickle"),
    "an opcode to come": (b"\x80\x05\xf1.", "an opcode is unknown"),
    "an HTML page": (b"<html><body>Not found", "the host refused the download"),
}


@pytest.mark.parametrize(("data", "message"), BOMBS.values(), ids=BOMBS)
def test_bombs(refused: Refused, data: bytes, message: str) -> None:
    refused(DataError, lambda: _load(data), "train.pkl: ", message)


def test_more_opcodes_than_any_set_has(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opcodes, "MAX_OPCODES", 1_000)
    refused(DataError, lambda: _load(b"N0" * 600 + b"N."), "more than 1,000 opcodes")


def test_claims_take_no_memory(answered: Answered) -> None:
    """With little memory to have, in a process of its own: the answer is the same."""
    claims = [data for name, (data, _) in BOMBS.items() if "claim" in name or "memory of" in name]
    program = (
        "import ast, io, resource, sys\n"
        "from parashot.data.pickles import load_arrays\n"
        "from parashot.errors import DataError\n"
        "own = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (own + 2**28,) * 2)\n"
        "for data in ast.literal_eval(sys.stdin.read()):\n"
        "    try:\n"
        "        load_arrays(io.BytesIO(data), 'x')\n"
        "    except DataError:\n"
        "        continue\n"
        "    sys.exit('accepted')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=repr(claims), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(claims) > 9
    answered()


# --- plain data of the wrong kind -------------------------------------------------------------------------

PIXELS = np.zeros((4, 2, 2, 3), np.uint8)
CACHES: dict[str, tuple[Any, str]] = {
    "no dictionary": ([1, 2], "image_data and class_dict wanted, list found"),
    "no classes": ({"image_data": PIXELS}, "image_data and class_dict wanted, image_data found"),
    "keys of all kinds": ({1: 2, ("a", None): 3, "\x1b\n": 4}, r"wanted, 1, ('a', None), \x1b\n found"),
    "images of text": ({"image_data": "x", "class_dict": {}}, "images of type <U1"),
    "images of numbers with a point": ({"image_data": PIXELS / 2, "class_dict": {}}, "type float64"),
    "flat images": ({"image_data": PIXELS[0], "class_dict": {}}, "shape (2, 2, 3)"),
    "images without pixels": ({"image_data": PIXELS[:, :0], "class_dict": {}}, "shape (4, 0, 2, 3)"),
    "images of all sizes": ({"image_data": [PIXELS, PIXELS[:1]], "class_dict": {}}, "different sizes"),
    "a list of nothing": ({"image_data": [], "class_dict": {}}, "shape (0,)"),
    "class_dict a list": ({"image_data": PIXELS, "class_dict": []}, "class_dict is no dictionary"),
    "a class of one number": ({"image_data": PIXELS, "class_dict": {"a": 3}}, "class a lists no images"),
    "a class of text": ({"image_data": PIXELS, "class_dict": {"a": "01"}}, "class a asks for image 0"),
    "a class of nothing": ({"image_data": PIXELS, "class_dict": {"a": [None]}}, "asks for image None"),
    "a class of NaN": ({"image_data": PIXELS, "class_dict": {"a": [float("nan")]}}, "asks for image nan"),
    "an image that is not there": ({"image_data": PIXELS, "class_dict": {"a": [4]}}, "image 4 of 4"),
    "an image before the first": ({"image_data": PIXELS, "class_dict": {"a": [-1]}}, "image -1 of 4"),
    "an image far away": ({"image_data": PIXELS, "class_dict": {"a": [10**30]}}, "of 4"),
    "a class with a hostile name": (
        {"image_data": PIXELS, "class_dict": {"\u202e\n<b>": [9]}},
        r"class \u202e\n<b> asks for image 9 of 4",
    ),
}


def _member(folder: Path, name: str, tree: Any) -> Member:
    path = folder / name
    path.write_bytes(pickle.dumps(tree, 4))
    return Member(path, PurePosixPath(name), path.stat().st_size, lambda: path.open("rb"))


@pytest.mark.parametrize(("tree", "message"), CACHES.values(), ids=CACHES)
def test_caches_of_the_wrong_kind(tmp_path: Path, refused: Refused, tree: Any, message: str) -> None:
    member = _member(tmp_path, "mini-imagenet-cache-train.pkl", tree)
    refused(DataError, lambda: list(cache_images(member)), member.name, message)


CATEGORIES: dict[str, tuple[Any, str]] = {
    "no labels": ({"data": PIXELS}, "data and labels wanted, data found"),
    "labels of nothing": ({"data": PIXELS, "labels": [None, 1, "a", ()]}, "labels of different sizes"),
    "labels in a table": ({"data": PIXELS, "labels": [[1, 2], [3, 4]]}, "labels of shape (2, 2)"),
    "labels of lists": ({"data": PIXELS, "labels": [[1], [2, 3], [], []]}, "labels of"),
    "too few labels": ({"data": PIXELS, "labels": [1, 2]}, "4 images have labels of shape (2,)"),
    "labels of NaN": ({"data": PIXELS, "labels": [float("nan")] * 4}, "labels of type float64"),
}


@pytest.mark.parametrize(("tree", "message"), CATEGORIES.values(), ids=CATEGORIES)
def test_categories_of_the_wrong_kind(tmp_path: Path, refused: Refused, tree: Any, message: str) -> None:
    member = _member(tmp_path, "miniImageNet_category_split_train.pickle", tree)
    refused(DataError, lambda: list(category_images(member)), member.name, message)


def _shared() -> Callable[[], Any]:
    numbers = np.arange(3)
    return lambda: {"a": numbers, "b": numbers, "c": ["x", "x"], "d": [[1]] * 1}


def test_leaves_may_come_twice(answered: Answered) -> None:
    """Only containers must not: Python writes a second mention of any text, number or array as such."""
    tree = _load(pickle.dumps(_shared()(), 4))
    assert tree["a"].tolist() == tree["b"].tolist() == [0, 1, 2]
    assert (tree["c"], tree["d"]) == (["x", "x"], [[1]])
    answered()
