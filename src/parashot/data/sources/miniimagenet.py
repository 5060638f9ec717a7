"""miniImageNet from a local copy, in any layout people have.

    images/ and train.csv, val.csv, test.csv      flat, or in one tar or several
    folders of class folders                      split by class or by image: regrouped by WordNet id
    mini-imagenet-cache-{train,validation,test}.pkl             learn2learn, torchmeta
    miniImageNet_category_split_{train,val,test}.pickle         Gidaris and Komodakis, Meta-Baseline
each as a folder, tar or zip. A class lies where Ravi and Larochelle put it, whatever the folders are called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from parashot.data.archives import Member, members
from parashot.data.images import SUFFIXES
from parashot.data.raw import ImageStream, RawImage
from parashot.data.sources.pickled import (
    cache_images,
    category_images,
    category_splits,
    is_cache,
    is_category,
)
from parashot.data.sources.ravi import SPLIT_WORDS, class_splits, split_of, whole
from parashot.data.splits import read_rows
from parashot.errors import DataError
from parashot.params import IMAGES_PER_CLASS

_WORDNET_ID = re.compile(r"n\d{8}")
_FILE_NAME = re.compile(r"(n\d{8})(\d{8}|_.*)?\.\w+")

Listings = Mapping[str, Mapping[str, str]]


@dataclass
class _Layout:
    """What a first walk over the names finds."""

    tables: dict[str, tuple[str, bytes]] = field(default_factory=dict)  # split -> name and bytes of its CSV
    flat: bool = False  # images whose file name alone tells the class
    foldered: bool = False  # images in a folder named after the class
    cached: bool = False
    categories: bool = False


def miniimagenet(path: Path, per_class: int = IMAGES_PER_CLASS) -> ImageStream:
    """Return the images of the copy at `path`; counts are checked while they are consumed.

    Raises `DataError` where nothing there looks like miniImageNet, a CSV contradicts the files, or a class or
    an image is missing or too many.
    """
    layout, splits = _survey(path), class_splits()
    if layout.flat or layout.foldered:
        listings = _listings(path, layout.tables) if layout.flat else {}
        return ImageStream(whole(_images(path, listings), splits, per_class, str(path)), splits)
    if layout.cached:
        images = _pickled(path, is_cache, cache_images)
        return ImageStream(whole(images, splits, per_class, str(path)), splits, "png, from arrays")
    if layout.categories:
        splits, images = category_splits(), _pickled(path, is_category, category_images)
        return ImageStream(whole(images, splits, per_class, str(path)), splits, "png, from arrays")
    raise DataError(
        f"{path}: nothing in it looks like miniImageNet; wanted: images/ and train.csv, val.csv, test.csv, "
        "folders named by WordNet id, or the pickles of learn2learn or Meta-Baseline; check data.archive"
    )


def _survey(path: Path) -> _Layout:
    """Look at every name once, and read the CSVs."""
    layout = _Layout()
    for member in members(path, nested=True):
        if _is_image(member.path):
            label, is_foldered = _class_of(member)
            layout.foldered |= label is not None and is_foldered
            layout.flat |= label is not None and not is_foldered
        elif member.path.suffix.lower() == ".csv" and member.path.stem.lower() in SPLIT_WORDS:
            split = SPLIT_WORDS[member.path.stem.lower()]
            layout.tables[split] = (member.name, member.read())
        layout.cached |= is_cache(member.path.name)
        layout.categories |= is_category(member.path.name)
    return layout


def _listings(path: Path, tables: Mapping[str, tuple[str, bytes]]) -> dict[str, dict[str, str]]:
    """Split -> file name -> class, as the CSVs say. Raises `DataError` where their split is not Ravi's."""
    listings: dict[str, dict[str, str]] = {}
    for split, (name, data) in tables.items():
        where = f"{path}: {name}"
        rows = listings[split] = {}
        for filename, label in read_rows(data, where):
            if split_of().get(label) != split:
                raise DataError(
                    f"{where}: class {label} does not belong to {split} in the split of Ravi and "
                    "Larochelle; remove the CSVs to have the images regrouped by their classes"
                )
            rows[PurePosixPath(filename).name] = label
    return listings


def _images(path: Path, listings: Listings) -> Iterator[RawImage]:
    """Yield the images of `path`; of flat ones only those that the CSV of their split lists, if any."""
    missing = {(split, name) for split, rows in listings.items() for name in rows}
    for member in members(path, nested=True):
        label, is_foldered = _class_of(member) if _is_image(member.path) else (None, False)
        if label is None:
            continue
        rows = listings.get(split_of().get(label, ""))
        if rows is not None and not is_foldered:
            listed = rows.get(member.path.name)
            if listed is None:
                continue
            if listed != label:
                raise DataError(f"{path}: {member.name} is listed as {listed}; correct the CSV")
        missing.discard((split_of().get(label, ""), member.path.name))
        yield RawImage(label, _name(member.path, label), member.read())
    if missing:
        split, name = min(missing)
        example = f"{name} of {split}.csv"
        raise DataError(
            f"{path}: {len(missing)} images that the CSVs list are missing, as {example}; get it anew"
        )


def _pickled(
    path: Path, is_wanted: Callable[[str], bool], images_of: Callable[[Member], Iterator[RawImage]]
) -> Iterator[RawImage]:
    """Yield the images of each wanted pickle of `path`."""
    for member in members(path, nested=True):
        if is_wanted(member.path.name):
            yield from images_of(member)


def _class_of(member: Member) -> tuple[str | None, bool]:
    """Return the class of an image by its folder, or else its name, and whether the folder told it."""
    folder = next((part for part in reversed(member.path.parts[:-1]) if _WORDNET_ID.fullmatch(part)), None)
    match = _FILE_NAME.fullmatch(member.path.name)
    if folder and match and match[1] != folder:
        raise DataError(
            f"{member.archive}: {member.name}: the file name tells another class; move or rename it"
        )
    return folder or (match[1] if match else None), folder is not None


def _name(path: PurePosixPath, label: str) -> str:
    """A name that is unique within the class."""
    if path.name.startswith(label):
        return path.name
    # split by image, a class may have its 0.jpg both in train/ and in val/
    return "-".join([*(part for part in path.parts[:-1] if part.lower() in SPLIT_WORDS), path.name])


def _is_image(path: PurePosixPath) -> bool:
    return path.suffix.lower() in SUFFIXES
