"""miniImageNet from a local copy, in any layout people have.

    images/ (beside CSVs, which are not needed)   flat, or in one tar or several
    folders of class folders                      split by class or by image: regrouped by WordNet id
    mini-imagenet-cache-{train,validation,test}.pkl             learn2learn, torchmeta
    miniImageNet_category_split_{train,val,test}.pickle         Gidaris and Komodakis, Meta-Baseline
The split of the classes is Ravi and Larochelle's (ICLR 2017), whatever folders are called.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from parashot.data.archives import files_in
from parashot.data.images import is_image
from parashot.data.raw import ImageStream, RawImage, Splits
from parashot.data.sources.pickled import CACHE, CATEGORY, category_splits, pickled_images
from parashot.data.splits import SPLIT_WORDS
from parashot.errors import DataError
from parashot.params import IMAGES_PER_CLASS, SPLIT_CLASSES

_WORDNET_ID = re.compile(r"n\d{8}")
_FILE_NAME = re.compile(r"(n\d{8})(\d{8}|_.*)?\.\w+")


def miniimagenet(folder: Path, per_class: int = IMAGES_PER_CLASS) -> ImageStream:
    """Return the images of the copy in `folder`; counts are checked while they are consumed.

    Raises `DataError` where nothing there looks like miniImageNet, or a class or an image is missing or too
    many.
    """
    files = [file.relative_to(folder) for file in files_in(folder)]
    labelled = [(file, label) for file in files if is_image(file) and (label := _class_of(file))]
    cache, category = ([file for file in files if kind.fullmatch(file.name)] for kind in (CACHE, CATEGORY))
    if not (labelled or cache or category):
        raise DataError(
            "nothing in it looks like miniImageNet; wanted: images with a WordNet id in their names or "
            "folders, or the pickles of learn2learn or Meta-Baseline"
        )
    splits = class_splits() if labelled or cache else category_splits()
    images: Iterable[RawImage] = (RawImage(k, _name(file, k), folder / file) for file, k in labelled)
    if not labelled:
        images = chain.from_iterable(pickled_images(folder / file) for file in cache or category)
    return ImageStream(_whole(images, splits, per_class), splits)


def class_splits() -> Splits:
    """Return split -> its classes (64, 16, 20) by WordNet id, sorted; from the table beside this file."""
    text = Path(__file__).with_name("miniimagenet.txt").read_text(encoding="ascii")
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {split: tuple(sorted(label for home, label in rows if home == split)) for split in SPLIT_CLASSES}


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
    known = set().union(*splits.values())
    for image in images:
        if image.label not in known:
            raise DataError(
                f"{image.label}/{image.name}: this class is none of miniImageNet's; remove it, or in a study "
                "set data.source=folder, which takes any"
            )
        counts[image.label] += 1
        yield image
    for split, labels in splits.items():
        for label in labels:
            if counts[label] != per_class:
                raise DataError(
                    f"class {label} of split {split} has {counts[label]} images, not {per_class}; "
                    "get miniImageNet again, whole"
                )
