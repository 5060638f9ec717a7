"""Packed folders (`packed.py` describes their files), made of a raw store or of a copy of miniImageNet."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from parashot.data.archives import unpacked
from parashot.data.images import Pixels, decode, resize_square
from parashot.data.manifest import MANIFEST, PackManifest, SplitManifest, sha256
from parashot.data.raw import open_images, read_manifest, write_raw
from parashot.data.sources.miniimagenet import miniimagenet
from parashot.data.splits import read_split, write_split
from parashot.errors import DataError
from parashot.files import replacing_folder
from parashot.params import SPLIT_CLASSES
from parashot.progress import passing
from parashot.records import write_result

_MINIIMAGENET_SIDE = 84
"""Pixels to which the images of a copy are brought, where they are not all of one size."""

_CHUNK = 512
_DECODING_THREADS = 4
_WRITTEN_AT_ONCE = 2**24
"""Bytes. Of large writes the kernel keeps large pages: a gather from them is a fifth faster on Linux 6.18."""

Classes = Mapping[str, Sequence[str]]
"""Class -> its members of the raw store's tar."""


def pack(raw: Path, split: Mapping[str, Classes], out: Path, *, pack_size: int) -> None:
    """Decode the raw store at `raw` into the packed folder `out`, atomically.

    split: split -> class -> member names, as `read_split` returns. Images that are all squares of one size
    keep it, otherwise each is brought to a square of `pack_size` pixels.
    """
    side = read_manifest(raw).side or pack_size
    with replacing_folder(out) as folder, open_images(raw) as read:
        splits = {name: _pack_split(split[name], read, folder / name, side) for name in SPLIT_CLASSES}
        checksums = {path.name: sha256(path) for path in sorted(folder.iterdir())}
        write_result(folder / MANIFEST, PackManifest(splits, checksums))


@contextmanager
def packed_images(path: Path) -> Iterator[Path]:
    """Yield a packed folder: `path` itself, or one made of a copy of miniImageNet in any layout.

    The latter needs some 2.5 GB in the temporary folder and goes with the block. Raises `DataError` where
    `path` is neither.
    """
    if not path.exists():
        raise DataError(f"{path}: does not exist; give a copy of miniImageNet, or a study's data/packed")
    if (path / MANIFEST).is_file():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="parashot-data-") as name:
        raw, split, packed, scratch = (Path(name) / each for each in ("raw", "split", "packed", "scratch"))
        with unpacked(path, scratch, nested=True) as folder:
            write_raw(raw, miniimagenet(folder))
        write_split(raw, split, seed=0, n_way=1, images_needed=1)
        pack(raw, read_split(split), packed, pack_size=_MINIIMAGENET_SIDE)
        yield packed


def _pack_split(classes: Classes, read: Callable[[str], bytes], stem: Path, side: int) -> SplitManifest:
    """Write the files of one split, whose names begin with `stem`.

    Pixels are written, not mapped: on a full disk a write fails, while a mapped page would kill the process.
    """
    members = [member for each in classes.values() for member in each]
    lengths = []
    with (
        Path(f"{stem}.encoded.bin").open("wb") as encoded,
        Path(f"{stem}.images.npy").open("wb", buffering=_WRITTEN_AT_ONCE) as out,
        ThreadPoolExecutor(_DECODING_THREADS) as pool,  # Pillow decodes outside the GIL
    ):
        header = {"descr": "|u1", "fortran_order": False, "shape": (len(members), side, side, 3)}
        np.lib.format.write_array_header_1_0(out, header)
        for begin in range(0, len(members), _CHUNK):
            chunk = [read(member) for member in members[begin : begin + _CHUNK]]
            for data, pixels in zip(chunk, pool.map(partial(_square, side=side), chunk), strict=True):
                out.write(pixels.tobytes())
                encoded.write(data)
                lengths.append(len(data))
            passing("pack %s: %d of %d images", stem.name, len(lengths), len(members))
    _save(Path(f"{stem}.offsets.npy"), np.cumsum([0, *lengths], dtype=np.int64))
    _save(Path(f"{stem}.sizes.npy"), np.array([len(each) for each in classes.values()], dtype=np.int64))
    return SplitManifest(tuple(classes), len(members), side, side)


def _square(data: bytes, side: int) -> Pixels:
    return resize_square(decode(data), side)


def _save(path: Path, array: npt.NDArray[Any]) -> None:
    """Save as np.save does, which by itself does not say that the disk is full."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    path.write_bytes(buffer.getvalue())
