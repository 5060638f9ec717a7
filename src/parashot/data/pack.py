"""Decode a raw store once, into a packed folder (`packed.py` says what it holds)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from parashot.data.episodes import SPLITS, EpisodeSpec, SplitName, draw_rows
from parashot.data.images import decode, resize_square
from parashot.data.manifest import VERSION, PackManifest, SplitManifest, sha256, write_manifest
from parashot.data.raw import RawStore
from parashot.errors import DataError
from parashot.files import replacing_folder

_CHUNK = 512
_DECODING_THREADS = 4
_WRITTEN_AT_ONCE = 2**24
"""Bytes. Of large writes the kernel keeps large pages: a gather from them is a fifth faster on Linux 6.18."""

Progress = Callable[[str], None]


def pack(
    raw: Path,
    split: Mapping[str, Mapping[str, Sequence[str]]],
    out: Path,
    *,
    pack_size: int,
    seed: int,
    spec: EpisodeSpec,
    episodes: Mapping[SplitName, int],
    progress: Progress,
) -> PackManifest:
    """Decode the raw store at `raw` into the packed folder `out`.

    split: split -> class -> member names; spec and episodes: shape and number of the packed episodes per
    split. Images that all have one size keep it, otherwise each is brought to a square of `pack_size` pixels.
    Raises `DataError` for an image that cannot be decoded or a class too small for an episode.
    """
    store = RawStore.open(raw)
    with replacing_folder(out) as folder:
        try:
            side = None
            shape = _write_images(store, split, folder, side, progress)
        except _MixedSizesError:
            side = pack_size
            shape = _write_images(store, split, folder, side, progress)
        manifests: dict[str, SplitManifest] = {}
        for name in SPLITS:
            count = episodes.get(name, 0)
            sizes = np.array([len(members) for members in split[name].values()], dtype=np.int64)
            _save(folder / f"{name}.sizes.npy", sizes)
            if count:
                rows = draw_rows(seed, name, np.arange(count, dtype=np.int64), sizes, spec)
                _save(folder / f"{name}.episodes.npy", rows.astype(np.int32))
            manifests[name] = SplitManifest(tuple(split[name]), int(sizes.sum()), *shape, episodes=count)
        manifest = PackManifest(
            version=VERSION,
            source=store.manifest.source,
            encoding=store.manifest.encoding,
            skipped=len(store.manifest.skipped),
            resized_to=side,
            splits=manifests,
            sha256={path.name: sha256(path) for path in sorted(folder.iterdir())},
        )
        write_manifest(folder, manifest)
    return manifest


class _MixedSizesError(Exception):
    """The images are not all squares of one size, so they do not fit one array as they are."""


def _write_images(
    store: RawStore,
    split: Mapping[str, Mapping[str, Sequence[str]]],
    folder: Path,
    side: int | None,
    progress: Progress,
) -> tuple[int, int]:
    """Write pixels, encoded bytes and offsets of every split; return (height, width), the same for all.

    Written, not mapped: on a full disk a write fails, while a mapped page would kill the process.
    """
    shape: tuple[int, ...] | None = None
    for name in SPLITS:
        members = [member for each in split[name].values() for member in each]
        if not members:
            raise DataError(f"split {name} has no image; check data.source and data.archive")
        offsets = np.zeros(len(members) + 1, dtype=np.int64)
        with (
            (folder / f"{name}.encoded.bin").open("wb") as encoded,
            (folder / f"{name}.images.npy").open("wb", buffering=_WRITTEN_AT_ONCE) as out,
        ):
            for row, (data, pixels) in enumerate(_decoded(store, members, side)):
                shape = shape or pixels.shape
                if pixels.shape != shape or shape[0] != shape[1]:
                    raise _MixedSizesError
                if row == 0:
                    _write_header(out, pixels.dtype, (len(members), *shape))
                out.write(pixels.tobytes())
                encoded.write(data)
                offsets[row + 1] = offsets[row] + len(data)
                if row % 10_000 == 0:
                    progress(f"pack {name}: {row} of {len(members)} images")
        _save(folder / f"{name}.offsets.npy", offsets)
    assert shape is not None
    return shape[0], shape[1]


def _save(path: Path, array: npt.NDArray[np.int64] | npt.NDArray[np.int32]) -> None:
    """As np.save, which would not say that the disk is full."""
    with path.open("wb") as file:
        _write_header(file, array.dtype, array.shape)
        file.write(array.tobytes())


def _write_header(file: BinaryIO, kind: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Begin a .npy file, whose rows follow."""
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _decoded(
    store: RawStore, members: Sequence[str], side: int | None
) -> Iterator[tuple[bytes, npt.NDArray[np.uint8]]]:
    """Yield (encoded bytes, pixels) image after image.

    Pillow decodes outside the interpreter lock, so threads help.
    """

    entries = {entry.member: entry for entry in store.entries}

    def one(member: str) -> tuple[bytes, npt.NDArray[np.uint8]]:
        if member not in entries:
            raise DataError(f"{member}: in the split, but not in {store.tar}; run `dvc repro split`")
        data = store.read(entries[member])
        try:
            pixels = decode(data)
        except DataError as error:
            raise DataError(f"{member}: {error}") from error
        return data, pixels if side is None else resize_square(pixels, side)

    with ThreadPoolExecutor(_DECODING_THREADS) as pool:
        for begin in range(0, len(members), _CHUNK):
            yield from pool.map(one, members[begin : begin + _CHUNK])
