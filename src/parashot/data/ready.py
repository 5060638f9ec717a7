"""Images ready to be drawn from, whatever form they are given in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parashot.data.archives import unpacked
from parashot.data.manifest import MANIFEST
from parashot.data.pack import pack
from parashot.data.raw import Progress, write_raw
from parashot.data.sources.miniimagenet import miniimagenet
from parashot.data.splits import read_split, write_split
from parashot.errors import DataError

_SIDE = 84
"""Pixels of miniImageNet's images; others are brought to it."""


@contextmanager
def packed_images(path: Path, progress: Progress) -> Iterator[Path]:
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
            write_raw(raw, miniimagenet(folder), "miniimagenet", "fail", progress)
        write_split(raw, split, seed=0, n_way=1, images_needed=1)
        pack(raw, read_split(split), packed, pack_size=_SIDE, progress=progress)
        yield packed
