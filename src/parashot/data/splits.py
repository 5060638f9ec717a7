"""Class-disjoint train, val and test: three CSVs with the header `filename,label`, as Ravi and Larochelle's.

`filename` is a member of the raw store's tar. Classes come in sorted order, and so do the images of a class.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from parashot.data.raw import RawManifest, RawStore, Splits
from parashot.errors import DataError
from parashot.files import replacing_folder
from parashot.params import SPLIT_CLASSES
from parashot.plain import cell, from_cell

COLUMNS = ("filename", "label")

_STREAM = 11  # keeps the shuffle of classes apart from other uses of the seed


def write_split(raw_folder: Path, out_folder: Path, seed: int, n_way: int, images_needed: int) -> None:
    """Write train.csv, val.csv and test.csv, atomically: by the source's own split, else by a seeded one.

    Raises `DataError` where a split has fewer than `n_way` classes, or a class fewer than `images_needed`
    images.
    """
    store = RawStore.open(raw_folder)
    splits = store.manifest.splits or seeded_splits(store.manifest.images_per_class, seed, n_way)
    _check_enough(store.manifest, splits, n_way, images_needed)
    members: dict[str, list[str]] = {label: [] for label in store.manifest.images_per_class}
    for entry in store.entries:
        members[entry.label].append(entry.member)
    with replacing_folder(out_folder) as folder:
        for split in SPLIT_CLASSES:
            rows = [(cell(name), cell(label)) for label in sorted(splits[split]) for name in members[label]]
            with (folder / f"{split}.csv").open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


def read_split(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Read the three CSVs: split -> class -> members of the raw store's tar, in the order of the files.

    Raises `DataError` naming the file and the line or column that is not as it should be.
    """
    splits: dict[str, dict[str, list[str]]] = {}
    home: dict[str, str] = {}
    for split in SPLIT_CLASSES:
        path = folder / f"{split}.csv"
        classes: dict[str, list[str]] = {}
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise DataError(f"{path}: missing; run the stage `split` again") from error
        for member, label in read_rows(data, str(path)):
            if home.setdefault(label, split) != split:
                raise DataError(f"{path}: class {label} is in {home[label]}.csv too; keep it in one split")
            classes.setdefault(label, []).append(member)
        splits[split] = classes
    return splits


def read_rows(data: bytes, where: str) -> Iterator[tuple[str, str]]:
    """Yield (filename, label) of each row of a CSV in UTF-8. Raises `DataError`, naming `where`."""
    try:
        text = io.StringIO(data.decode("utf-8-sig"), newline="")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8 text; write it anew in this encoding") from error
    reader = csv.reader(text, strict=True)
    try:
        places = _places([name.strip() for name in next(reader, [])], where)
        for row in filter(None, reader):
            line = f"{where}: line {reader.line_num}"
            cells = [from_cell(row[place]) for place in places if place < len(row)]
            if len(cells) < len(COLUMNS) or not all(cells):
                raise DataError(f"{line} lacks a filename or a label")
            if not all(map(str.isprintable, cells)):
                raise DataError(f"{line} holds control characters; rename what it names")
            yield cells[0], cells[1]
    except csv.Error as error:
        raise DataError(f"{where}: line {reader.line_num} is not CSV ({error})") from error


def _places(header: Sequence[str], where: str) -> list[int]:
    """Where `COLUMNS` are among the names of the first line."""
    for column in COLUMNS:
        if (count := header.count(column)) != 1:
            found = "more than one" if count else "no"
            names = ", ".join(header) or "nothing"
            raise DataError(f"{where}: {found} column {column!r}, only {names}")
    return [header.index(column) for column in COLUMNS]


def seeded_splits(labels: Iterable[str], seed: int, n_way: int) -> dict[str, tuple[str, ...]]:
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


def _check_enough(manifest: RawManifest, splits: Splits, n_way: int, images_needed: int) -> None:
    """Raise `DataError` where an episode could not be drawn."""
    counts: Mapping[str, int] = manifest.images_per_class
    for split in SPLIT_CLASSES:
        if len(splits[split]) < n_way:
            raise DataError(
                f"split {split} has {len(splits[split])} classes, episodes need {n_way}; "
                "add classes, or lower episode.n_way"
            )
        for label in sorted(splits[split]):
            found = counts.get(label, 0)
            if found < images_needed:
                raise DataError(
                    f"class {label} of split {split} has {found} images, "
                    f"episodes need {images_needed}; "
                    "add images, or lower episode.k_shot, episode.k_query or evaluate.k_query"
                )
