"""The user's own pictures: examples in a folder per class, and what is to be classified."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from parashot.data.archives import MAX_FILE_BYTES
from parashot.data.images import SUFFIXES, Pixels, decode, resize_square
from parashot.errors import DataError

Shots = dict[str, list[Path]]
"""Class -> the files of its examples."""


def find_shots(folder: Path) -> Shots:
    """Find the examples in `folder`: a folder per class, one or more images in each, deeper ones included.

    Raises `DataError` where there are fewer than two classes, or a class has no image.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; --shots takes one with a folder of images per class")
    shots = {
        each.name: _images_in(each)
        for each in sorted(folder.iterdir())
        if each.is_dir() and not each.name.startswith(".")
    }
    if len(shots) < 2:
        found = f"only the class {next(iter(shots))}" if shots else "no folder of a class"
        raise DataError(f"{folder}: {found} in it; make a folder of images for each of 2 or more classes")
    for label, files in shots.items():
        if not files:
            raise DataError(f"{folder / label}: no image in it; add at least one, or remove the folder")
    return shots


def find_images(places: Iterable[Path]) -> list[Path]:
    """Expand folders to the images in them, by their endings, in order; a file is taken whatever its ending.

    Raises `DataError` where a place does not exist or a folder holds no image.
    """
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            files = _images_in(place)
            if not files:
                raise DataError(f"{place}: no image in it ({', '.join(sorted(SUFFIXES))})")
            found += files
        elif place.exists():
            found.append(place)
        else:
            raise DataError(f"{place}: no such file or folder")
    return list(dict.fromkeys(found))


def read_picture(path: Path) -> Pixels:
    """Decode a file to uint8 RGB [h, w, 3]. Raises `DataError`, which names the file, where it cannot be."""
    try:
        size = path.stat().st_size
        if not path.is_file() or size > MAX_FILE_BYTES:
            raise DataError(f"no plain file, or {size} bytes, more than an image can have")
        return decode(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def read_square(path: Path, side: int) -> Pixels:
    """The same as a square [side, side, 3], so that many large photographs fit in memory."""
    return resize_square(read_picture(path), side)


def _images_in(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
