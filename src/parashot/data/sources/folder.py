"""The user's own images: a folder per class, or train, val and test folders of such folders.

Files without an image's ending are passed over.
"""

from __future__ import annotations

from pathlib import Path

from parashot.data.archives import files_in
from parashot.data.images import is_image
from parashot.data.raw import ImageStream, RawImage, Splits
from parashot.data.splits import SPLIT_WORDS
from parashot.errors import DataError
from parashot.params import SPLIT_CLASSES


def folder(path: Path) -> ImageStream:
    """Return the images under `path`, and their class split where the folders are train, val and test.

    Raises `DataError` where an image lies in no class folder, a split is missing, or a class is in two.
    """
    files = [file.relative_to(path) for file in files_in(path) if is_image(file)]
    if not files:
        raise DataError("no image in it; give a folder with a folder of images per class")
    depth = 0  # of the class or split folders: each folder around them is the only one of its level
    while len({file.parts[depth] for file in files}) == 1 and all(
        len(file.parts) > depth + 2 for file in files
    ):
        depth += 1
    has_splits = len({SPLIT_WORDS.get(file.parts[depth].lower()) for file in files} - {None}) > 1
    depth += has_splits
    loose = next((file for file in files if len(file.parts) < depth + 2), None)
    if loose is not None:
        raise DataError(f"{loose} lies in no class folder; move it into one")
    images = (RawImage(file.parts[depth], "_".join(file.parts[depth + 1 :]), path / file) for file in files)
    return ImageStream(images, _splits(files, depth) if has_splits else None)


def _splits(files: list[Path], depth: int) -> Splits:
    """Split of the classes in the folders at `depth`, by the folder around each."""
    homes: dict[str, str] = {}
    for file in files:
        word, label = file.parts[depth - 1 : depth + 1]
        split = SPLIT_WORDS.get(word.lower())
        if split is None:
            raise DataError(f"{word} lies beside train, val and test folders; move it into one")
        if homes.setdefault(label, split) != split:
            raise DataError(
                f"class {label} is in {homes[label]} and in {split}; "
                "keep it in one, as the splits must hold different classes, or give a folder of classes alone"
            )
    missing = SPLIT_CLASSES.keys() - homes.values()
    if missing:
        raise DataError(f"no {min(missing)} folder beside the others; add it, or give class folders")
    return {
        split: tuple(sorted(label for label, home in homes.items() if home == split))
        for split in SPLIT_CLASSES
    }
