"""The user's own images: a folder per class, or train, val and test folders of such folders.

A tar or zip of the same is as good. Files that are no images, by their endings, are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from parashot.data.archives import members
from parashot.data.images import SUFFIXES
from parashot.data.raw import ImageStream, RawImage
from parashot.data.sources.ravi import SPLIT_WORDS
from parashot.errors import DataError


def folder(path: Path) -> ImageStream:
    """Return the images under `path`, and their class split where the folders are train, val and test.

    Raises `DataError` where an image lies in no class folder, a split is missing, or a class is in two.
    """
    files = [member.path for member in members(path) if _is_image(member.path)]
    if not files:
        raise DataError(f"{path}: no image in it ({', '.join(sorted(SUFFIXES))}); check data.archive")
    depth = _wrapping(files)
    tops = {file.parts[depth] for file in files}
    if len({SPLIT_WORDS[top.lower()] for top in tops if top.lower() in SPLIT_WORDS}) < 2:
        return ImageStream(_images(path, depth))
    return ImageStream(_images(path, depth + 1), _splits(path, files, depth))


def _wrapping(files: list[PurePosixPath]) -> int:
    """How many folders, each the only one of its level, lie around the class or split folders."""
    depth = 0
    while len({file.parts[depth] for file in files}) == 1 and all(
        len(file.parts) > depth + 2 for file in files
    ):
        depth += 1
    return depth


def _splits(path: Path, files: list[PurePosixPath], depth: int) -> dict[str, tuple[str, ...]]:
    """Split -> its classes, by the folders at `depth`."""
    homes: dict[str, str] = {}
    for file in files:
        word, label = file.parts[depth], file.parts[depth + 1]
        split = SPLIT_WORDS.get(word.lower())
        if split is None:
            raise DataError(
                f"{path}: {word} lies beside train, val and test folders; move it into one of them"
            )
        if homes.setdefault(label, split) != split:
            raise DataError(
                f"{path}: class {label} is in {homes[label]} and in {split}; "
                "keep it in one, as the splits must hold different classes, or give a folder of classes alone"
            )
    splits = {
        split: tuple(sorted(k for k, home in homes.items() if home == split))
        for split in ("train", "val", "test")
    }
    for split, labels in splits.items():
        if not labels:
            raise DataError(
                f"{path}: no {split} folder beside the others; add it, or give a folder of classes"
            )
    return splits


def _images(path: Path, depth: int) -> Iterator[RawImage]:
    """Yield the images of the class folders at `depth`; deeper folders become part of the name."""
    for member in members(path):
        if not _is_image(member.path):
            continue
        parts = member.path.parts[depth:]
        if len(parts) < 2:
            raise DataError(f"{path}: {member.name} lies in no class folder; move it into one")
        yield RawImage(parts[0], "_".join(parts[1:]), member.read())


def _is_image(path: PurePosixPath) -> bool:
    return path.suffix.lower() in SUFFIXES
