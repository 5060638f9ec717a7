"""Whatever the bytes, parsers answer with the project's own errors, each in one line, or accept them."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parashot.data.archives import members
from parashot.data.manifest import PackManifest, SplitManifest, read_manifest, write_manifest
from parashot.data.packed import PackedSplit
from parashot.data.pickles import load_arrays
from parashot.data.splits import read_rows
from parashot.errors import ParashotError
from parashot.params import load_params

FILES = {"train/cat/1.jpg": b"one", "train/caf\u00e9/" + "x" * 120: b"two" * 400}
TREE = {"image_data": np.zeros((2, 2, 2, 3), np.uint8), "class_dict": {"n01": [0, np.int64(1)]}}


def _tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in FILES.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in FILES.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def _manifest(folder: Path) -> bytes:
    write_manifest(folder, PackManifest({"val": SplitManifest(("a", "b"), 6, 2, 2)}, {}))
    return (folder / "manifest.json").read_bytes()


def _array() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([3, 3]))
    return buffer.getvalue()


def _read_archive(file: Path) -> None:
    for member in members(file):
        member.read()


def _read_sizes(file: Path) -> None:
    _manifest(file.parent)
    file.rename(file.with_name("val.sizes.npy"))
    _ = PackedSplit(file.parent, "val").class_sizes


def _read_manifest(file: Path) -> None:
    file.rename(file.with_name("manifest.json"))
    read_manifest(file.parent)


ARCHIVES = [_tar(), gzip.compress(_tar()), _zip()]
CSVS = [b'filename,label\na.jpg,cat\n"b, c.jpg","d ""e"""\n', b"\xef\xbb\xbflabel,filename,x\r\na,b,c\r\n"]
PICKLES = [pickle.dumps(TREE, protocol) for protocol in (0, 2, 4, 5)]
with tempfile.TemporaryDirectory() as _folder:
    MANIFESTS = [_manifest(Path(_folder))]

PARSERS: dict[str, tuple[Callable[[Path], object], list[bytes]]] = {
    "archives": (_read_archive, ARCHIVES),
    "csv": (lambda file: list(read_rows(file.read_bytes(), "train.csv")), CSVS),
    "pickles": (lambda file: load_arrays(io.BytesIO(file.read_bytes()), "train.pkl"), PICKLES),
    "params": (load_params, [(Path(__file__).parents[2] / "params.yaml").read_bytes()]),
    "manifest": (_read_manifest, MANIFESTS),
    "arrays": (_read_sizes, [_array()]),
}
"""By name: what reads a file, and whole files that it accepts."""


def _accepts(name: str, data: bytes) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "params.yaml")
        file.write_bytes(data)
        try:
            PARSERS[name][0](file)
        except ParashotError as error:
            assert str(error).isprintable()
            return False
    return True


@pytest.mark.parametrize("name", PARSERS)
def test_whole_files_are_accepted(name: str) -> None:
    """Else the fuzzing would never get far."""
    assert all(_accepts(name, data) for data in PARSERS[name][1])


quickly = settings(max_examples=60, deadline=None, derandomize=True)

changes = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "insert", "repeat"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 255),
        st.integers(1, 24),
    ),
    min_size=1,
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
@quickly
@given(data=st.binary(max_size=2_000))
def test_any_bytes(name: str, data: bytes) -> None:
    _accepts(name, data)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PARSERS)
@quickly
@given(which=st.integers(0), steps=changes)
def test_whole_files_with_changes(name: str, which: int, steps: list[Any]) -> None:
    data = PARSERS[name][1][which % len(PARSERS[name][1])]
    for change in steps:
        data = _changed(data, change)
    _accepts(name, data)
