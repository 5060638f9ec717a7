"""The user's own pictures: examples in a folder per class, and pictures to classify."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from parashot.data.archives import files_in
from parashot.data.images import Pixels, decode, is_image, read_encoded, resize_square
from parashot.errors import DataError

Shots = dict[str, list[Path]]
"""Class -> the files of its examples."""


def find_shots(folder: Path) -> Shots:
    """Find the examples in `folder`: a folder per class, one or more images in each, deeper ones included.

    Raises `DataError` where there are fewer than two classes, or a class has no image.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; --shots takes one with a folder of images per class")
    labels = [each for each in sorted(folder.iterdir()) if each.is_dir() and not each.name.startswith(".")]
    if len(labels) < 2:
        found = f"only the class {labels[0].name}" if labels else "no folder of a class"
        raise DataError(f"{folder}: {found} in it; make a folder of images for each of 2 or more classes")
    return {each.name: _images_in(each) for each in labels}


def find_images(places: Iterable[Path]) -> list[Path]:
    """Expand folders to the images in them, by their endings, in order; a file is taken whatever its ending.

    Raises `DataError` where a place does not exist or a folder holds no image.
    """
    found: list[Path] = []
    for place in places:
        if not place.exists():
            raise DataError(f"{place}: no such file or folder")
        found += _images_in(place) if place.is_dir() else [place]
    return list(dict.fromkeys(found))


def read_picture(path: Path) -> Pixels:
    """Decode a file to uint8 RGB [h, w, 3]. Raises `DataError`, which names the file, where it cannot be."""
    try:
        return decode(read_encoded(path))
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def read_square(path: Path, side: int) -> Pixels:
    """The same as a square [side, side, 3], so that many large photographs fit in memory."""
    return resize_square(read_picture(path), side)


def _images_in(folder: Path) -> list[Path]:
    images = [path for path in files_in(folder) if is_image(path)]
    if not images:
        raise DataError(f"{folder}: no image in it; add at least one, or leave the folder out")
    return images
