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
from parashot.data.raw import RawImage, Splits
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
        with path.open("rb") as file:
            tree = load_arrays(file)
        category = CATEGORY.fullmatch(path.name)
        images = np.asarray(tree["data" if category else "image_data"])
        if images.dtype != np.uint8 or images.ndim != 4:
            raise TypeError(f"images of {images.dtype} and shape {images.shape}, not uint8 [n, h, w, 3]")
        classes = _numbered(category[1], tree["labels"]) if category else tree["class_dict"]
        for label, indices in classes.items():
            for place, index in enumerate(indices):
                yield RawImage(label, f"{place:04d}.png", encode_png(images[index]))
    except DataError as error:
        raise DataError(f"{path.name}: {error}; get it again") from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # of other things than arrays
        raise DataError(f"{path.name}: odd contents ({one_line(error)}); get it again") from error


def category_splits() -> Splits:
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


def _numbered(split: str, labels: Any) -> dict[str, Any]:
    """Class -> indices of its images, from the number of each image's class."""
    split = split.lower().removeprefix("train_phase_")
    numbers = enumerate(np.unique(labels))
    return {_class_name(split, rank): np.flatnonzero(np.equal(labels, number)) for rank, number in numbers}


def _class_name(split: str, rank: int) -> str:
    return f"{split}{rank:02d}"
