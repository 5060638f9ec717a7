"""Whatever the bytes, parsers accept them or raise the project's own errors, each in one line."""

from __future__ import annotations

import io
import pickle
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from copies import as_tar, as_zip
from hypothesis import given, settings
from hypothesis import strategies as st

from parashot.data.archives import unpacked
from parashot.data.images import decode, encode_jpeg
from parashot.data.manifest import MANIFEST, PackManifest, SplitManifest, read_manifest, write_manifest
from parashot.data.packed import PackedSplit
from parashot.data.sources.pickled import load_arrays
from parashot.data.splits import read_rows
from parashot.errors import ParashotError
from parashot.params import load_params

FILES = {"train/cat/1.jpg": b"one", "train/caf\u00e9/" + "x" * 120: b"two" * 400}
TREE = {"image_data": np.zeros((2, 2, 2, 3), np.uint8), "class_dict": {"n01": [0, np.int64(1)]}}


def _unpack(file: Path) -> None:
    with unpacked(file, file.with_name("scratch")):
        pass


def _pack_manifest(folder: Path) -> None:
    write_manifest(folder, PackManifest({"val": SplitManifest(("a", "b"), 6, 2, 2)}, {}))


def _read_manifest(file: Path) -> None:
    file.rename(file.with_name(MANIFEST))
    read_manifest(file.parent)


def _read_sizes(file: Path) -> None:
    _pack_manifest(file.parent)
    file.rename(file.with_name("val.sizes.npy"))
    _ = PackedSplit(file.parent, "val").class_sizes


PARSERS: dict[str, Callable[[Path], object]] = {
    "archives": _unpack,
    "images": lambda file: decode(file.read_bytes()),
    "csv": lambda file: list(read_rows(file.read_bytes(), "train.csv")),
    "pickles": lambda file: load_arrays(io.BytesIO(file.read_bytes())),
    "params": load_params,
    "manifest": _read_manifest,
    "arrays": _read_sizes,
}
"""By name: what reads a file."""


@cache
def _whole(name: str) -> list[bytes]:
    """Files that the parser accepts."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _pack_manifest(place)
        np.save(place / "x.npy", np.array([3, 3]))
        archives = (
            as_tar(place / "1", FILES),
            as_tar(place / "2", FILES, "w:gz"),
            as_zip(place / "3", FILES),
        )
        files: dict[str, list[bytes]] = {
            "archives": [archive.read_bytes() for archive in archives],
            "images": [encode_jpeg(np.zeros((8, 8, 3), np.uint8))],
            "csv": [b'filename,label\na.jpg,cat\n"b, c.jpg","d ""e"""\n', b"label,filename,x\r\na,b,c\r\n"],
            "pickles": [pickle.dumps(TREE, protocol) for protocol in (0, 2, 4, 5)],
            "params": [(Path(__file__).parents[2] / "params.yaml").read_bytes()],
            "manifest": [(place / MANIFEST).read_bytes()],
            "arrays": [(place / "x.npy").read_bytes()],
        }
    return files[name]


def _accepts(name: str, data: bytes) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "params.yaml")
        file.write_bytes(data)
        try:
            PARSERS[name](file)
        except ParashotError as error:
            assert str(error).isprintable()
            return False
    return True


changes = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "insert", "repeat"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 255),
        st.integers(1, 24),
    ),
    max_size=6,
)
"""Changes of a whole file: how, at which share of its length, with which byte, to how many bytes."""


def _changed(data: bytes, change: tuple[str, float, int, int]) -> bytes:
    how, share, byte, count = change
    at = int(share * len(data))
    part = data[at : at + count]
    flipped, longer = bytes(each ^ byte for each in part), part + bytes([byte]) * count
    middle = {"flip": flipped, "cut": b"", "insert": longer, "repeat": part * 9}
    return data[:at] + middle[how] + data[at + count :]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=40)
@given(data=st.binary(max_size=2_000), which=st.integers(0, 3), steps=changes)
def test_any_bytes_and_any_change(name: str, data: bytes, which: int, steps: list[Any]) -> None:
    _accepts(name, data)
    changed = whole = _whole(name)[which % len(_whole(name))]
    for step in steps:
        changed = _changed(changed, step)
    assert _accepts(name, changed) or changed != whole  # else the search would never get far
