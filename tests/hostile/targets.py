"""Parsers that strangers' bytes reach, and whole files for each to begin with."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from tiny_data import pack_tiny

from parashot.data.archives import members
from parashot.data.manifest import read_manifest
from parashot.data.packed import PackedSplit
from parashot.data.pickles import load_arrays
from parashot.data.splits import read_rows
from parashot.errors import ParashotError
from parashot.params import load_params

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Target:
    """`parse` reads bytes, in a folder of its own; `whole` gives inputs that it accepts."""

    parse: Callable[[bytes, Path], object]
    whole: Callable[[], Sequence[bytes]]

    def accepts(self, data: bytes) -> bool:
        """Tell whether `data` is accepted. Raises what is no error of the project's."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                self.parse(data, Path(folder))
            except ParashotError as error:
                assert str(error).isprintable()
                return False
        return True


def _archive(data: bytes, folder: Path) -> None:
    (folder / "x").write_bytes(data)
    for member in members(folder / "x"):
        member.read()


def _archives() -> list[bytes]:
    tar, zipped = io.BytesIO(), io.BytesIO()
    files = {"train/cat/1.jpg": b"one", "train/caf\u00e9/" + "x" * 120: b"two" * 400}
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in files.items():
            packed.writestr(name, data)
    return [tar.getvalue(), gzip.compress(tar.getvalue()), zipped.getvalue()]


def _csv(data: bytes, _: Path) -> None:
    list(read_rows(data, "train.csv"))


def _csvs() -> list[bytes]:
    return [
        b'filename,label\na.jpg,cat\n"b, c.jpg","d ""e"""\n',
        b"\xef\xbb\xbflabel,filename,x\r\na,b,c\r\n",
    ]


def _pickle(data: bytes, _: Path) -> None:
    load_arrays(io.BytesIO(data), "train.pkl")


def _pickles() -> list[bytes]:
    tree = {
        "image_data": np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3),
        "class_dict": {"n01": [0, np.int64(1)]},
        "labels": np.array(["a", "bc"]),
    }
    return [pickle.dumps(tree, protocol) for protocol in (0, 2, 4, 5)]


def _params(data: bytes, folder: Path) -> None:
    (folder / "params.yaml").write_bytes(data)
    load_params(folder / "params.yaml")


def _all_params() -> list[bytes]:
    return [(ROOT / "params.yaml").read_bytes()]


def _manifest(data: bytes, folder: Path) -> None:
    (folder / "manifest.json").write_bytes(data)
    read_manifest(folder)


def _manifests() -> list[bytes]:
    return [_packed()["manifest.json"]]


def _sizes(data: bytes, folder: Path) -> None:
    (folder / "manifest.json").write_bytes(_packed()["manifest.json"])
    (folder / "val.sizes.npy").write_bytes(data)
    _ = PackedSplit(folder, "val").class_sizes


def _all_sizes() -> list[bytes]:
    return [_packed()["val.sizes.npy"]]


@cache
def _packed() -> dict[str, bytes]:
    """Return the files of a small packed folder."""
    with tempfile.TemporaryDirectory() as place:
        return {path.name: path.read_bytes() for path in pack_tiny(Path(place)).iterdir()}


TARGETS = {
    "archives": Target(_archive, _archives),
    "csv": Target(_csv, _csvs),
    "pickles": Target(_pickle, _pickles),
    "params": Target(_params, _all_params),
    "manifest": Target(_manifest, _manifests),
    "arrays": Target(_sizes, _all_sizes),
}
