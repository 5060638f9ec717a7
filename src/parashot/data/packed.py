"""Packed splits: images decoded once at their own size, as arrays that open by memory map.

A folder of packed data holds, for each split,
    SPLIT.images.npy      uint8 [images, height, width, 3], class after class
    SPLIT.encoded.bin     the encoded bytes of the same images, one after another, for the study's own
                          way of loading
    SPLIT.offsets.npy     int64 [images + 1], where each begins in SPLIT.encoded.bin
    SPLIT.sizes.npy       int64 [classes], images per class
    SPLIT.episodes.npy    int32 [episodes, n_way, per_class], rows of the packed episodes (val and test only)
and manifest.json with version, class names, shapes and a checksum of every file. The folder appears whole or
not at all.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from parashot.data.episodes import SplitName
from parashot.errors import DataError
from parashot.files import write_text

VERSION = 1


@dataclass(frozen=True)
class SplitManifest:
    """What one packed split holds."""

    classes: tuple[str, ...]
    images: int
    height: int
    width: int
    episodes: int  # packed episodes; 0 for train, whose episodes are drawn when asked


@dataclass(frozen=True)
class PackManifest:
    """manifest.json of a packed folder."""

    version: int
    source: str
    encoding: str
    skipped: int
    resized_to: int | None  # None: every image is as large as it came
    splits: dict[str, SplitManifest]
    sha256: dict[str, str]  # file name -> checksum


class PackedSplit:
    """One split of a packed folder.

    Cheap to make and to pickle: arrays open on first use, in whichever process.
    images: uint8 [images, height, width, 3]; class_sizes: int64 [classes].
    """

    def __init__(self, folder: Path, name: SplitName) -> None:
        self.folder = folder
        self.name = name

    def __reduce__(self) -> tuple[type[PackedSplit], tuple[Path, SplitName]]:
        return PackedSplit, (self.folder, self.name)

    @cached_property
    def images(self) -> npt.NDArray[np.uint8]:
        """Decoded pixels, memory-mapped; never written to."""
        return self._open("images")

    @cached_property
    def pixels(self) -> torch.Tensor:
        """`images` as a tensor over the same memory."""
        with warnings.catch_warnings():
            # a map that could be written to is refused by the kernel where it is larger than the memory
            warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
            return torch.from_numpy(self.images)

    @cached_property
    def class_sizes(self) -> npt.NDArray[np.int64]:
        """Images per class."""
        return np.asarray(self._open("sizes"))

    @cached_property
    def episodes(self) -> npt.NDArray[np.int32]:
        """Rows of the packed episodes, int32 [episodes, n_way, per_class]."""
        return np.asarray(self._open("episodes"))

    def encoded(self, row: int) -> bytes:
        """The encoded bytes of one image."""
        begin, end = self._offsets[row : row + 2]
        return self._encoded[begin:end].tobytes()

    @cached_property
    def _offsets(self) -> npt.NDArray[np.int64]:
        return self._open("offsets")

    @cached_property
    def _encoded(self) -> npt.NDArray[np.uint8]:
        return np.asarray(np.memmap(self.folder / f"{self.name}.encoded.bin", dtype=np.uint8, mode="r"))

    def _open(self, part: str) -> npt.NDArray[Any]:
        path = self.folder / f"{self.name}.{part}.npy"
        try:
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not a packed array; run `dvc repro pack` to make it again") from error


def write_manifest(folder: Path, manifest: PackManifest) -> None:
    """Write manifest.json of a packed folder."""
    write_text(folder / "manifest.json", json.dumps(asdict(manifest), indent=2) + "\n")


def read_manifest(folder: Path) -> PackManifest:
    """Read and check manifest.json of a packed folder. Raises `DataError`."""
    path = folder / "manifest.json"
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        splits = {
            name: SplitManifest(**{**each, "classes": tuple(each["classes"])})
            for name, each in tree["splits"].items()
        }
        manifest = PackManifest(**{**tree, "splits": splits})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not a packed data set; run `dvc repro pack` to make it") from error
    if manifest.version != VERSION:
        raise DataError(
            f"{path}: format {manifest.version}, {VERSION} is needed; run `dvc repro pack` to make it again"
        )
    return manifest


def verify(folder: Path) -> None:
    """Compare every file of a packed folder with its checksum.

    Raises `DataError` naming the first that differs.
    """
    for name, expected in read_manifest(folder).sha256.items():
        path = folder / name
        if not path.is_file() or sha256(path) != expected:
            raise DataError(
                f"{path}: damaged or missing; run `dvc checkout` or `dvc repro -f pack` to restore it"
            )


def sha256(path: Path) -> str:
    """Checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
