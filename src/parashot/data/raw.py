"""The raw store: the encoded images of a data set in one tar, and a manifest that says what they are.

    images.tar      members CLASS/NAME.ext, uncompressed, in the order of the source
    manifest.json   `RawManifest`
Every image in it has been decoded once, so later stages need not expect a broken one.
"""

from __future__ import annotations

import io
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, cast

from pydantic import PositiveInt

from parashot.data.images import decode, read_encoded
from parashot.data.manifest import MANIFEST
from parashot.errors import DataError
from parashot.files import replacing_folder
from parashot.progress import passing
from parashot.records import read_result, record, write_result

IMAGES = "images.tar"

OnBadImage = Literal["fail", "skip"]
Splits = dict[str, tuple[str, ...]]
"""Split -> its classes."""

_PROGRESS_EVERY = 5_000
_AGAIN = "run `dvc repro -f -s download`"


@dataclass(frozen=True)
class RawImage:
    """One encoded image, or its file; `name` is a file name with its ending."""

    label: str
    name: str
    data: bytes | Path


@dataclass(frozen=True)
class ImageStream:
    """Images of a source in any order, and the class split where the source has one."""

    images: Iterable[RawImage]
    splits: Splits | None = None


@record
class RawManifest:
    """Contents of images.tar."""

    side: PositiveInt | None
    """Pixels of a side where all images are squares of one size."""
    skipped: dict[str, str]
    """Images left out, with the reason."""
    splits: Splits | None
    images: dict[str, tuple[str, ...]]
    """Class -> names of its images, both sorted."""


def read_manifest(folder: Path) -> RawManifest:
    """Read manifest.json of a raw store. Raises `RecordError` where it is missing or none."""
    return read_result(RawManifest, folder / MANIFEST)


@contextmanager
def open_images(folder: Path) -> Iterator[Callable[[str], bytes]]:
    """Yield a function from a member CLASS/NAME.ext to its encoded bytes, for one thread.

    Raises `DataError` where the tar is missing or damaged, or lacks a member.
    """
    path = folder / IMAGES
    try:
        with tarfile.open(path, "r:") as tar:
            entries = {entry.name: entry for entry in tar}

            def read(member: str) -> bytes:
                if member not in entries:
                    raise DataError(f"{path}: {member} is not in it; {_AGAIN}")
                return cast("IO[bytes]", tar.extractfile(entries[member])).read()

            yield read
    except (FileNotFoundError, tarfile.TarError) as error:
        raise DataError(f"{path}: missing or damaged ({error}); {_AGAIN}") from error


def write_raw(out: Path, stream: ImageStream, on_bad_image: OnBadImage = "fail") -> None:
    """Write the raw store `out` from `stream`, atomically.

    Raises `DataError` on an image that cannot be read (unless skipped), on a name that comes twice, and on
    one that is no printable text.
    """
    names: dict[str, set[str]] = defaultdict(set)
    shapes: set[tuple[int, ...]] = set()
    skipped: dict[str, str] = {}
    with replacing_folder(out) as folder:
        with tarfile.open(folder / IMAGES, "w", format=tarfile.PAX_FORMAT) as tar:
            for number, image in enumerate(stream.images, start=1):
                member = f"{image.label}/{image.name}"
                if not member.isprintable():  # CSV and JSON of later stages are UTF-8
                    raise DataError(f"'{member}' has control characters or is not UTF-8; rename it")
                if image.name in names[image.label]:
                    raise DataError(f"{member}: this image comes twice; keep one of the two")
                try:
                    data = image.data if isinstance(image.data, bytes) else read_encoded(image.data)
                    shapes.add(decode(data).shape)
                except DataError as error:
                    if on_bad_image == "fail":
                        advice = "replace it, or in a study leave such images out by data.on_bad_image=skip"
                        raise DataError(f"{member}: {error}; {advice}") from error
                    skipped[member] = str(error)
                    continue
                names[image.label].add(image.name)
                entry = tarfile.TarInfo(member)  # time and owner are 0, the mode 644
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
                if number % _PROGRESS_EVERY == 0:
                    passing("%d images checked", number)
        if not shapes:
            raise DataError("no readable image found; give another copy")
        height, width, _ = next(iter(shapes))
        manifest = RawManifest(
            side=height if len(shapes) == 1 and height == width else None,
            skipped=dict(sorted(skipped.items())),
            splits=stream.splits,
            images={label: tuple(sorted(each)) for label, each in sorted(names.items()) if each},
        )
        write_result(folder / MANIFEST, manifest)
