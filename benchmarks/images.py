"""Sets of images made on the spot: photo-like JPEGs, and packed pixels of any number.

Photos are 64 classes of JPEGs (quality 90), each the sum of random colours at three scales and of fine noise:
about 4 KB at 84 pixels, where miniImageNet's are 3. Packed pixels are random bytes: a loader gathers them
without looking at them.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image

from parashot.data.images import Pixels, encode_jpeg
from parashot.data.manifest import MANIFEST, PackManifest, SplitManifest
from parashot.records import write_result

CLASSES = 64
"""As the training split of miniImageNet has."""

_SCALES = ((3, 0.5), (11, 0.25), (29, 0.25))  # cells along a side, share of their colours in the picture
_NOISE = 10.0  # standard deviation of grey values
_BLOCK_BYTES = 64 * 2**20


def write_photos(folder: Path, per_class: int, size: int) -> None:
    """Write `CLASSES` folders of `per_class` JPEGs of size × size pixels."""
    for label in range(CLASSES):
        home = folder / f"{label:02}"
        home.mkdir(parents=True)
        for number in range(per_class):
            (home / f"{number:04}.jpg").write_bytes(encode_jpeg(photo(label * per_class + number, size)))


def photos_by_class(folder: Path) -> list[list[Path]]:
    """Return the files of `write_photos`, class after class."""
    return [sorted(home.iterdir()) for home in sorted(each for each in folder.iterdir() if each.is_dir())]


def photo(number: int, size: int) -> Pixels:
    """Picture `number` of endlessly many, uint8 [size, size, 3]."""
    generator = np.random.default_rng(number)
    picture = generator.normal(0.0, _NOISE, (size, size, 3))
    for cells, share in _SCALES:
        colours = Image.fromarray(generator.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        picture += share * np.asarray(colours.resize((size, size), Image.Resampling.BICUBIC))
    return picture.clip(0, 255).astype(np.uint8)


def pack_noise(out: Path, images: int, size: int) -> None:
    """Write what the backends `packed` and `resident` read: random images in `CLASSES` classes of one size.

    A random block is written over and over; the file has no holes and shares no pages.
    """
    out.mkdir()
    np.save(out / "train.sizes.npy", np.full(CLASSES, images // CLASSES, dtype=np.int64))
    split = SplitManifest(tuple(map(str, range(CLASSES))), images, size, size)
    write_result(out / MANIFEST, PackManifest({"train": split}, {}))
    left = packed_bytes(images, size)
    block = np.random.default_rng(0).bytes(min(left, _BLOCK_BYTES))
    header = {"descr": "|u1", "fortran_order": False, "shape": (images, size, size, 3)}
    with (out / "train.images.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        while left > 0:
            left -= file.write(block[:left])
        os.fsync(file.fileno())  # the kernel is done with it before anything is timed


def packed_bytes(images: int, size: int) -> int:
    """Size of packed images in bytes."""
    return images * size * size * 3
