"""Packed splits: images decoded once at their own size, opened by memory map or copied to a device.

A folder of packed data holds, for each split,
    SPLIT.images.npy      uint8 [images, height, width, 3], class after class
    SPLIT.encoded.bin     the encoded bytes of the same images, one after another, for the study's own
                          way of loading
    SPLIT.offsets.npy     int64 [images + 1], where each begins in SPLIT.encoded.bin
    SPLIT.sizes.npy       int64 [classes], images per class
and manifest.json (`manifest.py`). The folder appears whole or not at all.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import torch

from parashot.data.episodes import SplitName
from parashot.data.manifest import MANIFEST, SplitManifest, read_manifest
from parashot.errors import DataError, DeviceError, one_line

_AGAIN = "run `dvc repro --force --single-item pack` to make it again"

_ROOM_TO_WORK = 1.1
"""Share of a split's size that must be free to copy it: a little more than it takes."""


class PackedSplit:
    """One split of a packed folder.

    Cheap to make and to pickle: arrays open on first use, in whichever process. Each must have the type and
    the shape that the manifest gives. Raises `DataError` where one has not, or is missing.
    """

    def __init__(self, folder: Path, name: SplitName) -> None:
        self.folder = folder
        self.name = name

    def __reduce__(self) -> tuple[type[PackedSplit], tuple[Path, SplitName]]:
        return PackedSplit, (self.folder, self.name)

    @cached_property
    def manifest(self) -> SplitManifest:
        return read_manifest(self.folder).splits[self.name]

    @cached_property
    def images(self) -> npt.NDArray[np.uint8]:
        """Decoded pixels, uint8 [images, height, width, 3], memory-mapped; never written to."""
        shape = (self.manifest.images, self.manifest.height, self.manifest.width, 3)
        return self._open("images", np.uint8, shape)

    @cached_property
    def pixels(self) -> torch.Tensor:
        """`images` as a tensor over the same memory."""
        with warnings.catch_warnings():
            # a map that could be written to is refused by the kernel where it is larger than the memory
            warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
            return torch.from_numpy(self.images)

    @cached_property
    def class_sizes(self) -> npt.NDArray[np.int64]:
        """Images per class, int64 [classes]."""
        return self._open("sizes", np.int64, (len(self.manifest.classes),))

    def encoded(self, row: int) -> bytes:
        begin, end = self._offsets[row : row + 2]
        return self._encoded[begin:end].tobytes()

    @cached_property
    def _offsets(self) -> npt.NDArray[np.int64]:
        return self._open("offsets", np.int64, (self.manifest.images + 1,))

    @cached_property
    def _encoded(self) -> npt.NDArray[np.uint8]:
        path = self.folder / f"{self.name}.encoded.bin"
        try:
            return np.asarray(np.memmap(path, np.uint8, "r", shape=(int(self._offsets[-1]),)))
        except (OSError, ValueError) as error:  # missing, or too short
            raise DataError(f"{path}: cannot be read ({one_line(error)}); {_AGAIN}") from error

    def _open(self, part: str, kind: type[np.generic], shape: tuple[int, ...]) -> npt.NDArray[Any]:
        path = self.folder / f"{self.name}.{part}.npy"
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # on a damaged header, numpy raises almost anything
            raise DataError(f"{path}: cannot be read ({one_line(error)}); {_AGAIN}") from error
        if (array.dtype, array.shape) != (kind, shape):
            raise DataError(f"{path}: not {np.dtype(kind)} {list(shape)} as {MANIFEST} says; {_AGAIN}")
        return np.asarray(array)


def resident_images(split: PackedSplit, device: torch.device) -> torch.Tensor:
    """All images of a split, uint8 [images, h, w, 3], copied to `device`.

    Raises `DeviceError` where the device has not the room for them.
    """
    free = _free_bytes(device)
    if split.images.nbytes * _ROOM_TO_WORK > free:
        raise DeviceError(
            f"loader.backend: resident needs {split.images.nbytes / 2**30:.1f} GiB on {device} for the "
            f"split {split.name}, but {free / 2**30:.1f} GiB are free; set it to packed"
        )
    return torch.from_numpy(np.array(split.images)).to(device)


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":  # what PyTorch has freed it keeps for the next tensor
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    return int(psutil.virtual_memory().available)
