"""miniImageNet from a local copy, in any layout people have.

    images/ and train.csv, val.csv, test.csv      flat, or in one tar or several
    folders of class folders                      split by class or by image: regrouped by WordNet id
    mini-imagenet-cache-{train,validation,test}.pkl             learn2learn, torchmeta
    miniImageNet_category_split_{train,val,test}.pickle         Gidaris and Komodakis, Meta-Baseline
The split of the classes is Ravi and Larochelle's (ICLR 2017), whatever folders are called.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path

from parashot.data.archives import files_in
from parashot.data.images import is_image
from parashot.data.raw import ImageStream, RawImage, Splits
from parashot.data.sources.pickled import CACHE, CATEGORY, category_splits, pickled_images
from parashot.data.splits import SPLIT_WORDS, read_rows
from parashot.errors import DataError
from parashot.params import IMAGES_PER_CLASS

_WORDNET_ID = re.compile(r"n\d{8}")
_FILE_NAME = re.compile(r"(n\d{8})(\d{8}|_.*)?\.\w+")


def miniimagenet(folder: Path, per_class: int = IMAGES_PER_CLASS) -> ImageStream:
    """Return the images of the copy in `folder`; counts are checked while they are consumed.

    Raises `DataError` where nothing there looks like miniImageNet, or a class or an image is missing or too
    many.
    """
    files = [file.relative_to(folder) for file in files_in(folder)]
    labelled = [(file, label) for file in files if is_image(file) and (label := _class_of(file))]
    if labelled:
        splits = class_splits()
        images = _images(folder, labelled, _listed(folder, files))
        return ImageStream(_whole(images, splits, per_class), splits)
    for pattern, splits in ((CACHE, class_splits()), (CATEGORY, category_splits())):
        pickles = [folder / file for file in files if pattern.fullmatch(file.name)]
        if pickles:
            images = chain.from_iterable(map(pickled_images, pickles))
            return ImageStream(_whole(images, splits, per_class), splits)
    raise DataError(
        "nothing in it looks like miniImageNet; wanted: images/ and train.csv, val.csv, test.csv, folders "
        "named by WordNet id, or the pickles of learn2learn or Meta-Baseline"
    )


@cache
def class_splits() -> dict[str, tuple[str, ...]]:
    """Return split -> its classes (64, 16, 20) by WordNet id, sorted; from the table beside this file."""
    splits: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for line in Path(__file__).with_name("miniimagenet.txt").read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            split, wordnet_id = line.split()
            splits[split].append(wordnet_id)
    return {split: tuple(sorted(labels)) for split, labels in splits.items()}


def _listed(folder: Path, files: Iterable[Path]) -> set[str]:
    """Return the names of the images that train.csv, val.csv and test.csv list."""
    tables = [each for each in files if each.suffix.lower() == ".csv" and each.stem.lower() in SPLIT_WORDS]
    rows = chain.from_iterable(read_rows((folder / each).read_bytes(), str(each)) for each in tables)
    return {Path(filename).name for filename, _ in rows}


def _images(folder: Path, labelled: Iterable[tuple[Path, str]], listed: set[str]) -> Iterator[RawImage]:
    """Yield the images; of those outside class folders only the `listed` ones, if any are."""
    for file, label in labelled:
        if not listed or label in file.parts or file.name in listed:
            yield RawImage(label, _name(file, label), folder / file)


def _class_of(file: Path) -> str | None:
    """Return the class of an image by its innermost folder that is one, else by its file name."""
    inner = next((part for part in reversed(file.parts[:-1]) if _WORDNET_ID.fullmatch(part)), None)
    match = _FILE_NAME.fullmatch(file.name)
    return inner or (match[1] if match else None)


def _name(file: Path, label: str) -> str:
    """Return a name that is unique within the class."""
    if file.name.startswith(label):
        return file.name
    # split by image, a class may have its 0.jpg both in train/ and in val/
    return "-".join([*(part for part in file.parts[:-1] if part.lower() in SPLIT_WORDS), file.name])


def _whole(images: Iterable[RawImage], splits: Splits, per_class: int) -> Iterator[RawImage]:
    """Pass `images` on, then raise `DataError` unless each class of `splits` had `per_class` of them."""
    counts = Counter[str]()
    known = {label for labels in splits.values() for label in labels}
    for image in images:
        if image.label not in known:
            raise DataError(
                f"{image.label}/{image.name}: this class is none of the "
                f"{len(known)} of miniImageNet; remove it (in a study data.source=folder takes any)"
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
