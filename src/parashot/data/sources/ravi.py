"""The class split of miniImageNet by Ravi and Larochelle (ICLR 2017), and the check that a copy is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from parashot.data.raw import RawImage, Splits
from parashot.errors import DataError

SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
"""What people call the three splits in file and folder names."""


@cache
def class_splits() -> dict[str, tuple[str, ...]]:
    """Split -> its classes (64, 16, 20) by WordNet id, sorted; from the table beside this file."""
    splits: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for line in Path(__file__).with_name("miniimagenet.txt").read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            split, wordnet_id = line.split()
            splits[split].append(wordnet_id)
    return {split: tuple(sorted(labels)) for split, labels in splits.items()}


@cache
def split_of() -> dict[str, str]:
    """Class -> its split."""
    return {label: split for split, labels in class_splits().items() for label in labels}


def whole(images: Iterable[RawImage], splits: Splits, per_class: int, where: str) -> Iterator[RawImage]:
    """Pass `images` on, then raise `DataError` unless each class of `splits` had `per_class` of them."""
    counts = Counter[str]()
    known = {label for labels in splits.values() for label in labels}
    for image in images:
        if image.label not in known:
            raise DataError(
                f"{where}: {image.label}/{image.name}: this class is none of the "
                f"{len(known)} of miniImageNet; remove it, or use data.source=folder"
            )
        counts[image.label] += 1
        if counts[image.label] > per_class:
            raise DataError(f"{where}: class {image.label} has more than {per_class} images; get it anew")
        yield image
    for split, labels in splits.items():
        if not any(counts[label] for label in labels):
            raise DataError(f"{where}: no image of split {split}; add it, or get the whole of miniImageNet")
        for label in labels:
            if counts[label] != per_class:
                raise DataError(
                    f"{where}: class {label} of split {split} has {counts[label]} images, not {per_class} "
                    f"({len(labels)} classes, {len(labels) * per_class} images make up {split}); get it anew"
                )
