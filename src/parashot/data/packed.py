"""Packed splits: images decoded once at their own size, as arrays that open by memory map.

A folder of packed data holds, for each split,
    SPLIT.images.npy      uint8 [images, height, width, 3], class after class
    SPLIT.encoded.bin     the encoded bytes of the same images, one after another, for the study's own
                          way of loading
    SPLIT.offsets.npy     int64 [images + 1], where each begins in SPLIT.encoded.bin
    SPLIT.sizes.npy       int64 [classes], images per class
    SPLIT.episodes.npy    int32 [episodes, n_way, per_class], rows of the packed episodes (val and test only)
and manifest.json (`manifest.py`). The folder appears whole or not at all.
"""

from __future__ import annotations

import math
import re
import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from parashot.data.episodes import SplitName
from parashot.data.manifest import AGAIN, MANIFEST, SplitManifest, read_manifest
from parashot.errors import DataError, one_line


class PackedSplit:
    """One split of a packed folder.

    Cheap to make and to pickle: arrays open on first use, in whichever process. There each is compared with
    the manifest by its header and its size; of the contents only what leads to other places, which is little.
    images: uint8 [images, height, width, 3]; class_sizes: int64 [classes]. Raises `DataError` where something
    is not as it should be.
    """

    def __init__(self, folder: Path, name: SplitName) -> None:
        self.folder = folder
        self.name = name

    def __reduce__(self) -> tuple[type[PackedSplit], tuple[Path, SplitName]]:
        return PackedSplit, (self.folder, self.name)

    @cached_property
    def manifest(self) -> SplitManifest:
        """What the split is to hold."""
        try:
            return read_manifest(self.folder).splits[self.name]
        except KeyError as error:
            raise DataError(f"{self.folder / MANIFEST}: it has no split {self.name}; {AGAIN}") from error

    @cached_property
    def images(self) -> npt.NDArray[np.uint8]:
        """Decoded pixels, memory-mapped; never written to."""
        there = self.manifest
        return self._open("images", np.uint8, (there.images, there.height, there.width, 3))

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
        sizes = self._open("sizes", np.int64, (len(self.manifest.classes),))
        most = self.manifest.images
        if not (sizes.min() >= 1 and sizes.max() <= most and sum(sizes.tolist()) == most):
            raise self._unfit("sizes.npy", f"not the sizes of classes of {most} images")
        return sizes

    @cached_property
    def episodes(self) -> npt.NDArray[np.int32]:
        """Rows of the packed episodes, int32 [episodes, n_way, per_class]."""
        if not self.manifest.episodes:
            raise DataError(f"{self.folder / MANIFEST}: no episodes are packed of {self.name}; {AGAIN}")
        rows = self._open("episodes", np.int32, (self.manifest.episodes, None, None))
        if rows.min() < 0 or rows.max() >= self.manifest.images:
            raise self._unfit("episodes.npy", f"it has rows beyond the {self.manifest.images} images")
        return rows

    def encoded(self, row: int) -> bytes:
        """The encoded bytes of one image."""
        begin, end = self._offsets[row : row + 2]
        return self._encoded[begin:end].tobytes()

    @cached_property
    def _offsets(self) -> npt.NDArray[np.int64]:
        offsets = self._open("offsets", np.int64, (self.manifest.images + 1,))
        if offsets[0] != 0 or (offsets[1:] <= offsets[:-1]).any():
            raise self._unfit("offsets.npy", "it does not ascend from 0")
        return offsets

    @cached_property
    def _encoded(self) -> npt.NDArray[np.uint8]:
        return self._map("encoded.bin", np.uint8, (int(self._offsets[-1]),), 0)

    def _open(self, part: str, kind: type[np.generic], shape: tuple[int | None, ...]) -> npt.NDArray[Any]:
        """The array of a .npy file, whose header must say this type and shape; None is any length."""
        name = f"{part}.npy"
        try:
            with (self.folder / f"{self.name}.{name}").open("rb") as file:
                header = _HEADER.match(file.read(_LONGEST_HEADER))
        except OSError as error:
            raise self._unfit(name, one_line(error)) from error
        if header is None or header["kind"] != np.dtype(kind).str.encode():
            raise self._unfit(name, f"not a packed array of {np.dtype(kind)}")
        found = tuple(map(int, _NUMBER.findall(header["shape"])))
        if len(found) != len(shape) or any(
            want not in {None, length} or not length for want, length in zip(shape, found, strict=True)
        ):
            raise self._unfit(name, f"its shape is {found}, and the manifest says {shape}")
        return self._map(name, kind, found, _LENGTH_ENDS + int.from_bytes(header["length"], "little"))

    def _map(
        self, name: str, kind: type[np.generic], shape: tuple[int, ...], offset: int
    ) -> npt.NDArray[Any]:
        path = self.folder / f"{self.name}.{name}"
        needed = offset + math.prod(shape) * np.dtype(kind).itemsize
        try:
            if (size := path.stat().st_size) != needed:
                raise self._unfit(name, f"{size} bytes long, and {needed} are needed")
            return np.asarray(np.memmap(path, kind, "r", offset, shape))
        except OSError as error:
            raise self._unfit(name, one_line(error)) from error

    def _unfit(self, name: str, reason: str) -> DataError:
        return DataError(f"{self.folder / self.name}.{name}: {reason}; {AGAIN}")


_LONGEST_HEADER = 512
_LENGTH_ENDS = 10
_NUMBER = re.compile(rb"\d+")
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(?P<length>..)"
    rb"\{'descr': '(?P<kind>[^']{1,9})', 'fortran_order': False, "
    rb"'shape': \((?P<shape>\d{1,15}(, \d{1,15}){0,3},?)\), \} *\n",
    re.DOTALL,
)
"""How numpy begins a file. Its own reader believes any type and shape, and evaluates Python literals."""
