"""The class split of miniImageNet by Ravi and Larochelle (ICLR 2017), and the check that a copy is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from parashot.data.raw import RawImage, Splits
from parashot.errors import DataError

SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
"""Names of the three splits in file and folder names."""


@cache
def class_splits() -> dict[str, tuple[str, ...]]:
    """Return split -> its classes (64, 16, 20) by WordNet id, sorted; from the table beside this file."""
    splits: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for line in Path(__file__).with_name("miniimagenet.txt").read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            split, wordnet_id = line.split()
            splits[split].append(wordnet_id)
    return {split: tuple(sorted(labels)) for split, labels in splits.items()}


def whole(images: Iterable[RawImage], splits: Splits, per_class: int) -> Iterator[RawImage]:
    """Pass `images` on, then raise `DataError` unless each class of `splits` had `per_class` of them."""
    counts = Counter[str]()
    known = {label for labels in splits.values() for label in labels}
    for image in images:
        if image.label not in known:
            raise DataError(
                f"{image.label}/{image.name}: this class is none of the "
                f"{len(known)} of miniImageNet; remove it, or use data.source=folder"
            )
        counts[image.label] += 1
        yield image
    for split, labels in splits.items():
        for label in labels:
            if counts[label] != per_class:
                raise DataError(
                    f"class {label} of split {split} has {counts[label]} images, not {per_class} "
                    f"({len(labels) * per_class} images of {len(labels)} classes make up {split}); "
                    "get miniImageNet again, whole"
                )
