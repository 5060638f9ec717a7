"""Class-disjoint train, val and test: three CSVs with the header `filename,label`, as Ravi and Larochelle's.

Classes come in sorted order, and so do the images of a class.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from parashot.data.raw import RawManifest, Splits, read_manifest
from parashot.errors import DataError
from parashot.files import replacing_folder
from parashot.params import SPLIT_CLASSES
from parashot.records import read_rows, record, write_rows

SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
"""Names of the three splits in file and folder names."""

_STREAM = 11  # keeps the shuffle of classes apart from other uses of the seed


@record
class Row:
    """An image of a split: its member of the raw store's tar, and its class."""

    filename: str
    label: str


def write_split(raw_folder: Path, out_folder: Path, seed: int, n_way: int, images_needed: int) -> None:
    """Write train.csv, val.csv and test.csv, atomically: by the source's own split, else by a seeded one.

    Raises `DataError` where no episode could be drawn: a split has fewer than `n_way` classes, or a class
    fewer than `images_needed` images.
    """
    raw = read_manifest(raw_folder)
    splits = raw.splits or seeded_splits(raw.images, seed, n_way)
    _check_enough(raw, splits, n_way, images_needed)
    with replacing_folder(out_folder) as folder:
        for split in SPLIT_CLASSES:
            labels = sorted(splits[split])
            rows = [Row(f"{label}/{name}", label) for label in labels for name in raw.images[label]]
            write_rows(folder / f"{split}.csv", Row, rows)


def read_split(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Read the three CSVs: split -> class -> members of the raw store's tar, in the order of the files.

    Raises `RecordError` where a file is missing or wrong.
    """
    splits: dict[str, dict[str, list[str]]] = {split: {} for split in SPLIT_CLASSES}
    for split, classes in splits.items():
        for row in read_rows(Row, folder / f"{split}.csv"):
            classes.setdefault(row.label, []).append(row.filename)
    return splits


def seeded_splits(labels: Iterable[str], seed: int, n_way: int) -> Splits:
    """Shuffle classes by `seed` into 64 % train, 16 % val and 20 % test, none smaller than `n_way`."""
    order = sorted(labels)
    np.random.default_rng((seed, _STREAM)).shuffle(order)
    whole = sum(SPLIT_CLASSES.values())
    val, test = (max(n_way, round(len(order) * SPLIT_CLASSES[split] / whole)) for split in ("val", "test"))
    parts = {"test": order[:test], "val": order[test : test + val], "train": order[test + val :]}
    if len(parts["train"]) < n_way:
        raise DataError(
            f"{len(order)} classes cannot be split into train, val and test of at least {n_way} classes each "
            f"(episode.n_way): {3 * n_way} are needed; add classes, or lower episode.n_way"
        )
    return {split: tuple(sorted(parts[split])) for split in SPLIT_CLASSES}


def _check_enough(raw: RawManifest, splits: Splits, n_way: int, images_needed: int) -> None:
    for split in SPLIT_CLASSES:
        if len(splits[split]) < n_way:
            raise DataError(
                f"split {split} has {len(splits[split])} classes, episodes need {n_way}; "
                "add classes, or lower episode.n_way"
            )
        for label in splits[split]:
            found = len(raw.images.get(label, ()))
            if found < images_needed:
                raise DataError(
                    f"class {label} of split {split} has {found} images, episodes need {images_needed}; "
                    "add images, or lower episode.k_shot, train.k_shot, episode.k_query or evaluate.k_query"
                )
