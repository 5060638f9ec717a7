"""Packed splits: images decoded once at their own size, as arrays that open by memory map.

A folder of packed data holds, for each split,
    SPLIT.images.npy      uint8 [images, height, width, 3], class after class
    SPLIT.encoded.bin     the encoded bytes of the same images, one after another (for the study's own way of loading)
    SPLIT.offsets.npy     int64 [images + 1], where each begins in SPLIT.encoded.bin
    SPLIT.sizes.npy       int64 [classes], images per class
    SPLIT.episodes.npy    int32 [episodes, n_way, per_class], rows of the packed episodes (val and test only)
and manifest.json with version, class names, shapes and a checksum of every file. The folder appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from parashot.data.episodes import SPLITS, EpisodeSpec, SplitName, draw_rows
from parashot.data.images import decode, resize_square
from parashot.data.raw import RawStore, printable
from parashot.errors import DataError
from parashot.files import replacing_folder, write_text

VERSION = 1
_CHUNK = 512
_DECODING_THREADS = 4

Progress = Callable[[str], None]


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
    """One split of a packed folder. Cheap to make and to pickle: arrays open on first use, in whichever process.

    images: uint8 [images, height, width, 3]; class_sizes: int64 [classes].
    """

    def __init__(self, folder: Path, name: SplitName) -> None:
        self.folder = folder
        self.name = name

    def __reduce__(self) -> tuple[type[PackedSplit], tuple[Path, SplitName]]:
        return PackedSplit, (self.folder, self.name)

    @cached_property
    def images(self) -> npt.NDArray[np.uint8]:
        """Decoded pixels, memory-mapped."""
        return self._open("images")

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

    split: split -> class -> member names; spec and episodes: shape and number of the packed episodes per split.
    Images that all have one size keep it, otherwise each is brought to a square of `pack_size` pixels.
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
            np.save(folder / f"{name}.sizes.npy", sizes)
            if count:
                rows = draw_rows(seed, name, np.arange(count, dtype=np.int64), sizes, spec)
                np.save(folder / f"{name}.episodes.npy", rows.astype(np.int32))
            manifests[name] = SplitManifest(tuple(split[name]), int(sizes.sum()), *shape, episodes=count)
        manifest = PackManifest(
            version=VERSION,
            source=store.manifest.source,
            encoding=store.manifest.encoding,
            skipped=len(store.manifest.skipped),
            resized_to=side,
            splits=manifests,
            sha256={path.name: _sha256(path) for path in sorted(folder.iterdir())},
        )
        write_text(folder / "manifest.json", json.dumps(asdict(manifest), indent=2) + "\n")
    return manifest


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
    """Compare every file of a packed folder with its checksum. Raises `DataError` naming the first that differs."""
    for name, expected in read_manifest(folder).sha256.items():
        path = folder / name
        if not path.is_file() or _sha256(path) != expected:
            raise DataError(
                f"{path}: damaged or missing; run `dvc checkout` or `dvc repro -f pack` to restore it"
            )


class _MixedSizesError(Exception):
    """Two images differ in size, so they do not fit one array as they are."""


def _write_images(
    store: RawStore,
    split: Mapping[str, Mapping[str, Sequence[str]]],
    folder: Path,
    side: int | None,
    progress: Progress,
) -> tuple[int, int]:
    """Write pixels, encoded bytes and offsets of every split; return (height, width), the same for all."""
    shape: tuple[int, ...] | None = None
    for name in SPLITS:
        members = [member for each in split[name].values() for member in each]
        if not members:
            raise DataError(f"split {name} has no image; check data.source and data.archive")
        offsets = np.zeros(len(members) + 1, dtype=np.int64)
        with (folder / f"{name}.encoded.bin").open("wb") as encoded:
            for row, (data, pixels) in enumerate(_decoded(store, members, side)):
                if row == 0:
                    shape = shape or pixels.shape
                    path = folder / f"{name}.images.npy"
                    array = np.lib.format.open_memmap(
                        path, mode="w+", dtype=np.uint8, shape=(len(members), *shape)
                    )
                if pixels.shape != shape:
                    raise _MixedSizesError
                array[row] = pixels
                encoded.write(data)
                offsets[row + 1] = offsets[row] + len(data)
                if row % 10_000 == 0:
                    progress(f"pack {name}: {row} of {len(members)} images")
        np.save(folder / f"{name}.offsets.npy", offsets)
        array.flush()
    assert shape is not None
    return shape[0], shape[1]


def _decoded(
    store: RawStore, members: Sequence[str], side: int | None
) -> Iterator[tuple[bytes, npt.NDArray[np.uint8]]]:
    """Yield (encoded bytes, pixels) image after image; Pillow decodes outside the interpreter lock, so threads help."""

    entries = {entry.member: entry for entry in store.entries}

    def one(member: str) -> tuple[bytes, npt.NDArray[np.uint8]]:
        if member not in entries:
            raise DataError(
                f"{printable(member)}: in the split, but not in {store.tar}; run `dvc repro split`"
            )
        data = store.read(entries[member])
        try:
            pixels = decode(data)
        except DataError as error:
            raise DataError(f"{printable(member)}: {error}") from error
        return data, pixels if side is None else resize_square(pixels, side)

    with ThreadPoolExecutor(_DECODING_THREADS) as pool:
        for begin in range(0, len(members), _CHUNK):
            yield from pool.map(one, members[begin : begin + _CHUNK])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
