"""The raw store: the encoded images of a data set in one tar, and a manifest that says what they are.

    images.tar      members CLASS/NAME.ext, uncompressed, sorted; equal images give a byte-identical file
    manifest.json   `RawManifest`
Every image in it has been decoded once, so later stages need not expect a broken one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from parashot.data.images import decode
from parashot.errors import DataError
from parashot.files import replacing_folder

IMAGES = "images.tar"
MANIFEST = "manifest.json"
VERSION = 1

Encoding = Literal["as found", "png, from arrays"]
OnBadImage = Literal["fail", "skip"]
Progress = Callable[[str], None]
Splits = Mapping[str, Sequence[str]]

_LONGEST_NAME = 255
_PROGRESS_EVERY = 5_000
_ADVICE = "run the stage `download` again"


@dataclass(frozen=True)
class RawImage:
    """One encoded image of class `label`; `name` is a file name with its ending."""

    label: str
    name: str
    data: bytes


@dataclass(frozen=True)
class ImageStream:
    """What a source gives: images in any order, and the class split where the source has one."""

    images: Iterable[RawImage]
    splits: Splits | None = None
    encoding: Encoding = "as found"


@dataclass(frozen=True)
class Skipped:
    """An image that was left out, with the reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class RawManifest:
    """What `images.tar` holds; `sha256` is that of the whole tar."""

    version: int
    source: str
    classes: int
    images: int
    images_per_class: dict[str, int]
    encoding: Encoding
    skipped: tuple[Skipped, ...]
    splits: dict[str, tuple[str, ...]] | None
    sha256: str


@dataclass(frozen=True)
class RawEntry:
    """Where one image lies in `images.tar`: `size` bytes from `offset` on."""

    label: str
    name: str
    offset: int
    size: int

    @property
    def member(self) -> str:
        """Name of the tar member."""
        return f"{self.label}/{self.name}"


@dataclass(frozen=True)
class RawStore:
    """An opened raw store; `entries` are sorted by class, then name."""

    folder: Path
    manifest: RawManifest
    entries: tuple[RawEntry, ...]

    @classmethod
    def open(cls, folder: Path) -> RawStore:
        """Read manifest and tar headers. Raises `DataError` where the folder is not a whole raw store."""
        manifest = read_manifest(folder)
        entries = _scan(folder / IMAGES)
        if len(entries) != manifest.images:
            raise DataError(
                f"{folder / IMAGES}: {len(entries)} images, {manifest.images} expected; {_ADVICE}"
            )
        return cls(folder, manifest, entries)

    @property
    def tar(self) -> Path:
        """The tar, to be memory-mapped by whoever reads many entries."""
        return self.folder / IMAGES

    def read(self, entry: RawEntry) -> bytes:
        """Encoded bytes of one image."""
        with self.tar.open("rb") as file:
            return os.pread(file.fileno(), entry.size, entry.offset)


def read_manifest(folder: Path) -> RawManifest:
    """Read `manifest.json`. Raises `DataError` where it is missing or not ours."""
    path = folder / MANIFEST
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        if tree["version"] != VERSION:
            raise DataError(f"{path}: version {tree['version']}, this program knows {VERSION}; {_ADVICE}")
        tree["skipped"] = tuple(Skipped(**each) for each in tree["skipped"])
        if tree["splits"] is not None:
            tree["splits"] = {split: tuple(labels) for split, labels in tree["splits"].items()}
        return RawManifest(**tree)
    except FileNotFoundError as error:
        raise DataError(f"{path}: missing; {_ADVICE}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(f"{path}: not a manifest of a raw store; {_ADVICE}") from error


def write_raw(
    out: Path, stream: ImageStream, source: str, on_bad_image: OnBadImage, progress: Progress
) -> RawManifest:
    """Write the raw store `out` from `stream`, atomically and in constant memory.

    Raises `DataError` on an image that cannot be read (unless skipped), on a name that comes twice, and on
    one that is no plain file name.
    """
    with replacing_folder(out) as folder, tempfile.TemporaryFile(dir=folder) as spool:
        entries, skipped = _fill_spool(spool, stream.images, on_bad_image, progress)
        if not entries:
            raise DataError(f"{source}: no readable image found; check data.archive")
        _write_tar(folder / IMAGES, spool, entries)
        counts = Counter(entry.label for entry in entries)
        manifest = RawManifest(
            version=VERSION,
            source=source,
            classes=len(counts),
            images=len(entries),
            images_per_class=dict(sorted(counts.items())),
            encoding=stream.encoding,
            skipped=skipped,
            splits=None if stream.splits is None else {k: tuple(v) for k, v in stream.splits.items()},
            sha256=_sha256(folder / IMAGES),
        )
        text = json.dumps(dataclasses.asdict(manifest), indent=1, ensure_ascii=False)
        (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    return manifest


def _fill_spool(
    spool: IO[bytes], images: Iterable[RawImage], on_bad_image: OnBadImage, progress: Progress
) -> tuple[list[RawEntry], tuple[Skipped, ...]]:
    """Append every readable image to `spool`; return where each lies, sorted, and what was skipped.

    Sources come in the order of their archive, the tar is sorted: the spool lets both stream.
    """
    entries: dict[str, RawEntry] = {}
    skipped: list[Skipped] = []
    offset = 0
    for image in images:
        entry = RawEntry(_component(image.label), _component(image.name), offset, len(image.data))
        if entry.member in entries:
            raise DataError(f"{entry.member}: this image comes twice; keep one of the two")
        try:
            decode(image.data)
        except DataError as error:
            if on_bad_image == "fail":
                advice = "replace it, or leave such images out with data.on_bad_image=skip"
                raise DataError(f"{entry.member}: {error}; {advice}") from error
            skipped.append(Skipped(entry.member, str(error)))
            continue
        spool.write(image.data)
        offset += len(image.data)
        entries[entry.member] = entry
        if len(entries) % _PROGRESS_EVERY == 0:
            progress(f"{len(entries):,} images checked")
    order = sorted(entries.values(), key=lambda entry: (entry.label, entry.name))
    return order, tuple(sorted(skipped, key=lambda each: each.name))


def _write_tar(path: Path, spool: IO[bytes], entries: Iterable[RawEntry]) -> None:
    """Copy `entries` from `spool` into a tar, in the given order; no time and no owner enters its headers."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for entry in entries:
            member = tarfile.TarInfo(entry.member)  # mtime, uid and gid are 0, the mode is 644
            member.size = entry.size
            spool.seek(entry.offset)
            tar.addfile(member, io.BytesIO(spool.read(entry.size)))


def _scan(path: Path) -> tuple[RawEntry, ...]:
    """Read the headers of the tar once."""
    try:
        with tarfile.open(path, "r:") as tar:
            entries = tuple(_entries(tar))
    except FileNotFoundError as error:
        raise DataError(f"{path}: missing; {_ADVICE}") from error
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise DataError(f"{path}: damaged ({error}); {_ADVICE}") from error
    if entries and entries[-1].offset + entries[-1].size > path.stat().st_size:
        raise DataError(f"{path}: cut short; {_ADVICE}")
    return entries


def _entries(tar: tarfile.TarFile) -> Iterator[RawEntry]:
    for member in tar:
        label, _, name = member.name.partition("/")
        yield RawEntry(label, name, member.offset_data, member.size)


def _component(name: str) -> str:
    """Return `name` if it can stand as one part of a path anywhere, else raise `DataError`."""
    is_plain = name.isprintable() and not set(name) & set("/\\") and name not in {"", ".", ".."}
    if not is_plain or len(name.encode()) > _LONGEST_NAME:
        raise DataError(
            f"'{name}' is not a plain file name; rename it without slashes and control characters, "
            f"at most {_LONGEST_NAME} bytes long"
        )
    return name


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
