"""miniImageNet as pickled arrays. They hold no encoded bytes, so each image is encoded once, losslessly.

    mini-imagenet-cache-SPLIT.pkl                `image_data` [n, h, w, 3], `class_dict` {class: [index]}
    miniImageNet_category_split_SPLIT.pickle     `data` [n, h, w, 3], `labels` [n]
The first are learn2learn's and torchmeta's, the others Gidaris and Komodakis's and Meta-Baseline's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from parashot.data.archives import Member
from parashot.data.images import encode_png
from parashot.data.pickles import load_arrays
from parashot.data.raw import RawImage
from parashot.errors import DataError
from parashot.params import SPLIT_CLASSES

CACHE = re.compile(r"mini-?imagenet-cache-(train|val|validation|test)\.(pkl|pickle)", re.IGNORECASE)

CATEGORY = re.compile(
    r"miniimagenet_category_split_(train|train_phase_train|val|test)\.(pkl|pickle)", re.IGNORECASE
)
"""The files `train_phase_val` and `train_phase_test` hold further images of the train classes: not used."""


def pickled_images(member: Member) -> Iterator[RawImage]:
    """Yield the images of a pickle, by its name; numbered labels get the names of `category_splits`.

    Raises `DataError` where its content is not what its name says.
    """
    category = CATEGORY.fullmatch(member.path.name)
    if category is None:
        images, classes = _load(member, "image_data", "class_dict")
        if not isinstance(classes, dict):
            raise _wrong(member, "class_dict is no dictionary")
    else:
        split = category[1].lower().removeprefix("train_phase_")
        images, labels = _load(member, "data", "labels")
        if np.shape(labels) != (len(images),):
            raise _wrong(member, f"{len(images)} images have labels of shape {np.shape(labels)}")
        ranked = enumerate(np.unique(labels))
        classes = {_class_name(split, rank): np.flatnonzero(np.equal(labels, k)) for rank, k in ranked}
    for label, indices in classes.items():
        for place, index in enumerate(indices):
            if not 0 <= index < len(images):
                raise _wrong(member, f"class {label} asks for image {index} of {len(images)}")
            yield RawImage(str(label), f"{place:04d}.png", encode_png(images[index]))


def category_splits() -> dict[str, tuple[str, ...]]:
    """Return the class names given to numbered labels: split and rank, such as val07."""
    return {split: tuple(_class_name(split, rank) for rank in range(n)) for split, n in SPLIT_CLASSES.items()}


def _class_name(split: str, rank: int) -> str:
    return f"{split}{rank:02d}"


def _load(member: Member, images_key: str, classes_key: str) -> tuple[Any, Any]:
    """Return the images, uint8 [n, h, w, 3], and what tells their classes."""
    with member.open() as file:
        tree = load_arrays(file, f"{member.archive}: {member.name}")
    if not isinstance(tree, dict) or not {images_key, classes_key} <= tree.keys():
        found = ", ".join(map(str, tree)) if isinstance(tree, dict) else type(tree).__name__
        raise _wrong(member, f"{images_key} and {classes_key} wanted, {found} found")
    images = np.asarray(tree[images_key])
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
        raise _wrong(member, f"images of {images.dtype} and shape {images.shape}, not uint8 [n, h, w, 3]")
    return images, tree[classes_key]


def _wrong(member: Member, what: str) -> DataError:
    return DataError(f"{member.archive}: {member.name}: {what}; get it again")
