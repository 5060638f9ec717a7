"""Images ready to be drawn from, whatever form they are given in."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from parashot.data.episodes import EpisodeSpec
from parashot.data.manifest import MANIFEST, read_manifest
from parashot.data.pack import pack
from parashot.data.raw import write_raw
from parashot.data.sources.miniimagenet import miniimagenet
from parashot.data.splits import read_split, write_split
from parashot.errors import DataError

_ONE_IMAGE = EpisodeSpec(1, 1, 0)
_SIDE = 84
"""Pixels of miniImageNet's images; others are brought to it."""


@contextmanager
def packed_images(path: Path, progress: Callable[[str], None]) -> Iterator[Path]:
    """Yield a packed folder: `path` itself, or one made of a copy of miniImageNet in any layout.

    What is made lies in the temporary folder, needs some 2.5 GB there, and goes with the block. Raises
    `DataError` where `path` is neither.
    """
    if not path.exists():
        raise DataError(f"{path}: does not exist; give a copy of miniImageNet, or a study's data/packed")
    if (path / MANIFEST).is_file():
        read_manifest(path)
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="parashot-data-") as name:
        folder = Path(name)
        write_raw(folder / "raw", miniimagenet(path), "miniimagenet", "fail", progress)
        write_split(folder / "raw", folder / "split", seed=0, n_way=1, images_needed=1)
        pack(
            folder / "raw",
            read_split(folder / "split"),
            folder / "packed",
            pack_size=_SIDE,
            seed=0,
            spec=_ONE_IMAGE,
            episodes={},
            progress=progress,
        )
        yield folder / "packed"
