"""miniImageNet as pickled arrays. They hold no encoded bytes, so each image is encoded once, losslessly."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from parashot.data.archives import Member
from parashot.data.images import Pixels, encode_png
from parashot.data.pickles import load_arrays
from parashot.data.raw import RawImage
from parashot.errors import DataError
from parashot.params import SPLIT_CLASSES

_CACHE = re.compile(r"mini-?imagenet-cache-(train|val|validation|test)\.(pkl|pickle)", re.IGNORECASE)
_CATEGORY = re.compile(
    r"miniimagenet_category_split_(train|train_phase_train|val|test)\.(pkl|pickle)", re.IGNORECASE
)


def is_cache(name: str) -> bool:
    """Whether a file is one of learn2learn's: `image_data` [n, h, w, 3] and `class_dict` {class: [index]}."""
    return _CACHE.fullmatch(name) is not None


def is_category(name: str) -> bool:
    """Whether a file is one of the three of Gidaris and Komodakis that make up the set: `data` and `labels`.

    Their `train_phase_val` and `train_phase_test` hold further images of the train classes: not used.
    """
    return _CATEGORY.fullmatch(name) is not None


def cache_images(member: Member) -> Iterator[RawImage]:
    """Yield the images of one of learn2learn's pickles. Raises `DataError` where it is not one."""
    tree = _load(member, "image_data", "class_dict")
    data, classes = _pixels(member, tree["image_data"]), tree["class_dict"]
    if not isinstance(classes, dict):
        raise _wrong(member, "class_dict is no dictionary")
    for label, indices in classes.items():
        if not isinstance(indices, Sequence | np.ndarray):
            raise _wrong(member, f"class {label} lists no images")
        for place, index in enumerate(indices):
            if not isinstance(index, int | np.integer) or not 0 <= index < len(data):
                raise _wrong(member, f"class {label} asks for image {index} of {len(data)}")
            yield RawImage(str(label), f"{place:04d}.png", encode_png(data[index]))


def category_images(member: Member) -> Iterator[RawImage]:
    """Yield the images of one of Gidaris and Komodakis's pickles; for labels see `category_splits`."""
    match = _CATEGORY.fullmatch(member.path.name)
    assert match is not None
    split = match[1].lower().removeprefix("train_phase_")
    tree = _load(member, "data", "labels")
    data, labels = _pixels(member, tree["data"]), _array(member, tree["labels"])
    if labels.dtype.kind not in "biuSU":
        raise _wrong(member, f"labels of type {labels.dtype}")
    if labels.shape != (len(data),):
        raise _wrong(member, f"{len(data)} images have labels of shape {labels.shape}")
    for rank, label in enumerate(np.unique(labels)):
        for place, index in enumerate(np.flatnonzero(labels == label)):
            yield RawImage(_class_name(split, rank), f"{place:04d}.png", encode_png(data[index]))


def category_splits() -> dict[str, tuple[str, ...]]:
    """The class names given to numbered labels: split and rank, such as val07."""
    return {split: tuple(_class_name(split, rank) for rank in range(n)) for split, n in SPLIT_CLASSES.items()}


def _class_name(split: str, rank: int) -> str:
    return f"{split}{rank:02d}"


def _load(member: Member, *keys: str) -> dict[str, Any]:
    with member.open() as file:
        tree = load_arrays(file, f"{member.archive}: {member.name}")
    if not isinstance(tree, dict) or any(key not in tree for key in keys):
        found = ", ".join(str(key) for key in tree) if isinstance(tree, dict) else type(tree).__name__
        raise _wrong(member, f"{' and '.join(keys)} wanted, {found} found")
    return tree


def _pixels(member: Member, data: Any) -> Pixels:
    """Return `data` as uint8 [n, h, w, 3]."""
    array = _array(member, data)
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[-1] != 3 or not array.size:
        raise _wrong(member, f"images of type {array.dtype} and shape {array.shape}, not uint8 [n, h, w, 3]")
    return array


def _array(member: Member, data: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(data)
    except ValueError as error:
        raise _wrong(member, "images or labels of different sizes") from error


def _wrong(member: Member, what: str) -> DataError:
    return DataError(f"{member.archive}: {member.name}: {what}; get it anew")
