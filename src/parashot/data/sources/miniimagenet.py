"""miniImageNet from a local copy, in any layout people have.

    images/ and train.csv, val.csv, test.csv      flat, or in one tar or several
    folders of class folders                      split by class or by image: regrouped by WordNet id
    mini-imagenet-cache-{train,validation,test}.pkl             learn2learn, torchmeta
    miniImageNet_category_split_{train,val,test}.pickle         Gidaris and Komodakis, Meta-Baseline
each as a folder, tar or zip. The split of the classes is Ravi and Larochelle's, whatever folders are called.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from parashot.data.archives import members
from parashot.data.images import is_image
from parashot.data.raw import ImageStream, RawImage
from parashot.data.sources.pickled import CACHE, CATEGORY, category_splits, pickled_images
from parashot.data.sources.ravi import SPLIT_WORDS, class_splits, whole
from parashot.data.splits import read_rows
from parashot.errors import DataError
from parashot.params import IMAGES_PER_CLASS

_WORDNET_ID = re.compile(r"n\d{8}")
_FILE_NAME = re.compile(r"(n\d{8})(\d{8}|_.*)?\.\w+")


def miniimagenet(path: Path, per_class: int = IMAGES_PER_CLASS) -> ImageStream:
    """Return the images of the copy at `path`; counts are checked while they are consumed.

    Raises `DataError` where nothing there looks like miniImageNet, or a class or an image is missing or too
    many.
    """
    has_images = False
    pickles: set[re.Pattern[str]] = set()
    listed: set[str] = set()
    for member in members(path, nested=True):
        if is_image(member.path):
            has_images |= _class_of(member.path) is not None
        elif member.path.suffix.lower() == ".csv" and member.path.stem.lower() in SPLIT_WORDS:
            rows = read_rows(member.read(), f"{path}: {member.name}")
            listed |= {PurePosixPath(filename).name for filename, _ in rows}
        else:
            pickles |= {kind for kind in (CACHE, CATEGORY) if kind.fullmatch(member.path.name)}
    if has_images:
        images, splits = _images(path, listed), class_splits()
        return ImageStream(whole(images, splits, per_class, str(path)), splits)
    if not pickles:
        raise DataError(
            f"{path}: nothing in it looks like miniImageNet; wanted: images/ and train.csv, val.csv, "
            "test.csv, folders named by WordNet id, or the pickles of learn2learn or Meta-Baseline; "
            "check data.archive"
        )
    kind = CACHE if CACHE in pickles else CATEGORY
    images, splits = _pickled(path, kind), class_splits() if kind is CACHE else category_splits()
    return ImageStream(whole(images, splits, per_class, str(path)), splits, "png, from arrays")


def _images(path: Path, listed: set[str]) -> Iterator[RawImage]:
    """Yield the images of `path`; of those outside class folders only the `listed` ones, if any are."""
    for member in members(path, nested=True):
        label = _class_of(member.path) if is_image(member.path) else None
        if label is None:
            continue
        if listed and label not in member.path.parts and member.path.name not in listed:
            continue
        yield RawImage(label, _name(member.path, label), member.read())


def _pickled(path: Path, kind: re.Pattern[str]) -> Iterator[RawImage]:
    """Yield the images of every pickle of `path` whose name is of one `kind`."""
    for member in members(path, nested=True):
        if kind.fullmatch(member.path.name):
            yield from pickled_images(member)


def _class_of(path: PurePosixPath) -> str | None:
    """Return the class of an image by its innermost folder that is one, else by its file name."""
    folder = next((part for part in reversed(path.parts[:-1]) if _WORDNET_ID.fullmatch(part)), None)
    match = _FILE_NAME.fullmatch(path.name)
    return folder or (match[1] if match else None)


def _name(path: PurePosixPath, label: str) -> str:
    """Return a name that is unique within the class."""
    if path.name.startswith(label):
        return path.name
    # split by image, a class may have its 0.jpg both in train/ and in val/
    return "-".join([*(part for part in path.parts[:-1] if part.lower() in SPLIT_WORDS), path.name])
