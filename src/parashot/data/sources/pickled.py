"""miniImageNet as pickled arrays. They hold no encoded bytes, so each image is encoded once, losslessly.

    mini-imagenet-cache-SPLIT.pkl                `image_data` [n, h, w, 3], `class_dict` {class: [index]}
    miniImageNet_category_split_SPLIT.pickle     `data` [n, h, w, 3], `labels` [n]
The first are learn2learn's and torchmeta's, the others Gidaris and Komodakis's and Meta-Baseline's.

`pickle.load` runs whatever a pickle names. The unpickler here knows the few names that arrays are built from,
under the module names of numpy 1 and 2, and refuses all others, so that no code of a downloaded file runs.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from parashot.data.images import encode_png
from parashot.data.raw import RawImage
from parashot.errors import DataError, one_line
from parashot.params import SPLIT_CLASSES

CACHE = re.compile(r"mini-?imagenet-cache-(train|val|validation|test)\.(pkl|pickle)", re.IGNORECASE)

CATEGORY = re.compile(
    r"miniimagenet_category_split_(train|train_phase_train|val|test)\.(pkl|pickle)", re.IGNORECASE
)
"""The files `train_phase_val` and `train_phase_test` hold further images of the train classes: not used."""

_ADMITTED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("_codecs", "encode"),  # bytes, as protocol 2 of Python 3 writes them
    ("collections", "OrderedDict"),
}


def pickled_images(path: Path) -> Iterator[RawImage]:
    """Yield the images of a pickle, by its name; numbered labels get the names of `category_splits`.

    Raises `DataError` where its content is not what its name says.
    """
    try:
        images, classes = _contents(path)
        for label, indices in classes.items():
            for place, index in enumerate(indices):
                if not 0 <= index < len(images):
                    raise DataError(f"class {label} asks for image {index} of {len(images)}")
                yield RawImage(str(label), f"{place:04d}.png", encode_png(images[index]))
    except DataError as error:
        raise DataError(f"{path.name}: {error}; get it again") from error
    except (TypeError, ValueError, IndexError) as error:  # of contents that are neither indices nor arrays
        raise DataError(f"{path.name}: odd contents ({one_line(error)}); get it again") from error


def category_splits() -> dict[str, tuple[str, ...]]:
    """Return the class names given to numbered labels: split and rank, such as val07."""
    return {split: tuple(_class_name(split, rank) for rank in range(n)) for split, n in SPLIT_CLASSES.items()}


def load_arrays(file: IO[bytes]) -> Any:
    """Load a pickle of arrays and plain containers; byte strings of Python 2 become text.

    Raises `DataError` on a pickle that asks for anything else and on a damaged one.
    """
    try:
        return _ArrayUnpickler(file, encoding="latin1").load()
    except DataError:
        raise
    except Exception as error:  # on malformed bytes, pickle and numpy raise almost anything
        raise DataError(f"not a whole pickle of arrays ({one_line(error)})") from error


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core.", "numpy._core.")
        if (module, name) not in _ADMITTED:
            raise DataError(f"asks for {module}.{name}, which is no array")
        return super().find_class(module, name)


def _contents(path: Path) -> tuple[Any, dict[Any, Any]]:
    """Return the images, uint8 [n, h, w, 3], and class -> indices of its images."""
    category = CATEGORY.fullmatch(path.name)
    images_key, classes_key = ("data", "labels") if category else ("image_data", "class_dict")
    with path.open("rb") as file:
        tree = load_arrays(file)
    if not isinstance(tree, dict) or not {images_key, classes_key} <= tree.keys():
        found = ", ".join(map(str, tree)) if isinstance(tree, dict) else type(tree).__name__
        raise DataError(f"{images_key} and {classes_key} wanted, {found} found")
    images, classes = np.asarray(tree[images_key]), tree[classes_key]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
        raise DataError(f"images of {images.dtype} and shape {images.shape}, not uint8 [n, h, w, 3]")
    if category is None:
        if not isinstance(classes, dict):
            raise DataError("class_dict is no dictionary")
        return images, classes
    if np.shape(classes) != (len(images),):
        raise DataError(f"{len(images)} images have labels of shape {np.shape(classes)}")
    split = category[1].lower().removeprefix("train_phase_")
    ranked = enumerate(np.unique(classes))
    return images, {_class_name(split, rank): np.flatnonzero(np.equal(classes, k)) for rank, k in ranked}


def _class_name(split: str, rank: int) -> str:
    return f"{split}{rank:02d}"
