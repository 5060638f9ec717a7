"""The user's own images: a folder per class, or train, val and test folders of such folders.

A tar or zip of the same is read as well. Files without an image's ending are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from parashot.data.archives import members
from parashot.data.images import is_image
from parashot.data.raw import ImageStream, RawImage
from parashot.data.sources.ravi import SPLIT_WORDS
from parashot.errors import DataError
from parashot.params import SPLIT_CLASSES


def folder(path: Path) -> ImageStream:
    """Return the images under `path`, and their class split where the folders are train, val and test.

    Raises `DataError` where an image lies in no class folder, a split is missing, or a class is in two.
    """
    files = [member.path for member in members(path) if is_image(member.path)]
    if not files:
        raise DataError(f"{path}: no image in it; check data.archive")
    depth = _wrapping(files)
    words = {file.parts[depth].lower() for file in files}
    if len({SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS}) < 2:
        return ImageStream(_images(path, depth))
    return ImageStream(_images(path, depth + 1), _splits(path, files, depth))


def _wrapping(files: list[PurePosixPath]) -> int:
    """Count the folders, each the only one of its level, around the class or split folders."""
    depth = 0
    while len({file.parts[depth] for file in files}) == 1 and all(
        len(file.parts) > depth + 2 for file in files
    ):
        depth += 1
    return depth


def _splits(path: Path, files: list[PurePosixPath], depth: int) -> dict[str, list[str]]:
    """Return split -> its classes, by the folders at `depth`."""
    homes: dict[str, str] = {}
    for file in files:
        word, label = file.parts[depth], file.parts[depth + 1]
        split = SPLIT_WORDS.get(word.lower())
        if split is None:
            raise DataError(f"{path}: {word} lies beside train, val and test folders; move it into one")
        if homes.setdefault(label, split) != split:
            raise DataError(
                f"{path}: class {label} is in {homes[label]} and in {split}; "
                "keep it in one, as the splits must hold different classes, or give a folder of classes alone"
            )
    missing = SPLIT_CLASSES.keys() - homes.values()
    if missing:
        raise DataError(f"{path}: no {min(missing)} folder beside the others; add it, or give class folders")
    return {split: sorted(k for k, home in homes.items() if home == split) for split in SPLIT_CLASSES}


def _images(path: Path, depth: int) -> Iterator[RawImage]:
    """Yield the images of the class folders at `depth`; deeper folders become part of the name."""
    for member in members(path):
        if not is_image(member.path):
            continue
        label, *inside = member.path.parts[depth:]
        if not inside:
            raise DataError(f"{path}: {member.name} lies in no class folder; move it into one")
        yield RawImage(label, "_".join(inside), member.read())
