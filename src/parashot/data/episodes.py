"""Episode i of a split is a pure function of (seed, split, i).

So every strategy, world size, number of workers, batch size, loader backend and restart sees the same
episodes in the same order. Randomness is a counter-based integer hash (the finalizer of SplitMix64: Steele,
Lea and Flood, OOPSLA 2014), written once in wrapping 64-bit signed arithmetic that numpy and torch share:
numpy draws episodes, and torch, on any device, what is done to their images.

    b episodes · n n_way · m images per class (k_shot support images first, then k_query query images)
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from parashot.params import EpisodeSpec

SplitName = Literal["train", "val", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "val", "test")

Array = TypeVar("Array", np.ndarray[Any, Any], torch.Tensor)
Integers = npt.NDArray[np.int64]

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MULTIPLIER_1 = 0xBF58476D1CE4E5B9 - 2**64
_MULTIPLIER_2 = 0x94D049BB133111EB - 2**64
DRAWING, AUGMENTATION, IMAGE_ORDER, IMAGE_AUGMENTATION, IMAGE_ROTATION, IMAGE_DROPS = range(6)
"""What numbers are for, each its own stream: of episodes, twice; of epochs; of images in a plan, thrice."""

_CLASS_STREAM = 1 << 20
"""Counters below it choose classes; from it on, one stream per chosen class chooses images."""


def draw_rows(
    seed: int, split: SplitName, episodes: Integers, class_sizes: Integers, spec: EpisodeSpec
) -> Integers:
    """Draw episodes as row numbers of a split whose images lie class after class.

    episodes: int64 [b], the indices i; class_sizes: int64 [classes]. Returns int64 [b, n_way, per_class]:
    distinct classes and, within each, distinct images, all equally likely.
    """
    keys = episode_keys(seed, split, episodes, DRAWING)
    classes = _distinct(keys, np.full_like(episodes, len(class_sizes)), spec.n_way)
    class_keys = np.stack([_hash(keys, _CLASS_STREAM + slot) for slot in range(spec.n_way)], -1)
    images = _distinct(class_keys, class_sizes[classes], spec.per_class)
    starts = class_sizes.cumsum(0) - class_sizes
    rows: Integers = starts[classes][..., None] + images
    return rows


def episode_keys(seed: int, split: SplitName, episodes: Array, stream: int) -> Array:
    """A key for each episode, whose indices are int64 [b]: int64 [b]; streams are independent."""
    return _hash(episodes, _scalar_hash(_scalar_hash(seed, SPLITS.index(split)), stream))


def uniforms(keys: torch.Tensor, count: int) -> torch.Tensor:
    """Numbers uniform in [0, 1) for each key: int64 [...] -> float32 [..., count], one per counter from 0 on.

    They are multiples of 2**-24, which float32 holds exactly: any device gives the same.
    """
    counters = torch.arange(count, device=keys.device)
    hashed = _hash(keys[..., None] + counters * _GOLDEN, 0)  # as _hash(keys, counter) for each
    return _unsigned_shift(hashed, 40).float() * 2.0**-24


def _distinct(keys: Integers, population: Integers, count: int) -> Integers:
    """Draw `count` distinct numbers below `population` for each key: [...] and [...] -> [..., count].

    The j-th draw takes the r-th number not taken yet, r uniform; walking the taken ones in ascending order
    turns that rank into the number itself.
    """
    drawn: list[Integers] = []
    taken: list[Integers] = []  # ascending, elementwise
    for j in range(count):
        number = _unsigned_shift(_hash(keys, j), 1) % (population - j)
        for smaller in taken:
            number = number + (number >= smaller)
        drawn.append(number)
        for place, each in enumerate(taken):  # insert it
            taken[place], number = np.minimum(each, number), np.maximum(each, number)
        taken.append(number)
    return np.stack(drawn, -1)


def _hash(keys: Array, counter: int) -> Array:
    """Hash each key with a counter: int64 of any shape -> int64 of that shape."""
    state = keys + _wrap((counter + 1) * _GOLDEN)
    state = (state ^ _unsigned_shift(state, 30)) * _MULTIPLIER_1
    state = (state ^ _unsigned_shift(state, 27)) * _MULTIPLIER_2
    hashed: Array = state ^ _unsigned_shift(state, 31)
    return hashed


def _scalar_hash(key: int, counter: int) -> int:
    return int(_hash(np.array([key], dtype=np.int64), counter)[0])


def _unsigned_shift(values: Array, bits: int) -> Array:
    """Shift right filling with zeros: signed arrays, which torch wants, would fill with the sign."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def _wrap(number: int) -> int:
    """Bring a Python integer into the range of int64, as the arrays' arithmetic does."""
    return (number + 2**63) % 2**64 - 2**63
