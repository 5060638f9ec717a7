"""The synthetic set: the same everywhere, and hard for anything that does not learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from parashot.data.images import decode, encode_jpeg
from parashot.data.sources.synthetic import CLASSES, class_splits, draw_image, draw_looks, synthetic
from parashot.params import SPLIT_CLASSES, SyntheticParams

Vectors = NDArray[np.float32]


@cache
def _images_of(split: str, count: int = 60) -> NDArray[np.uint8]:
    """Images of one split of the default set, [classes, count, s, s, 3]."""
    looks = draw_looks(np.random.default_rng((0, 0)), CLASSES)
    return np.array(
        [
            [decode(encode_jpeg(draw_image(looks, 0, int(label[-2:]), n, 32))) for n in range(count)]
            for label in class_splits(0)[split]
        ]
    )


def test_the_set_is_whole_and_its_images_are_those_drawn_by_class_and_number() -> None:
    stream = synthetic(SyntheticParams(2, 32), seed=0)
    images = {
        (image.label, image.name): image.data for image in stream.images if isinstance(image.data, bytes)
    }
    assert len(images) == 200
    assert stream.splits == class_splits(0) != class_splits(1)
    assert {split: len(labels) for split, labels in stream.splits.items()} == SPLIT_CLASSES
    assert len(set().union(*stream.splits.values())) == CLASSES
    for split in SPLIT_CLASSES:
        found = [[decode(images[k, f"{n}.jpg"]) for n in range(2)] for k in class_splits(0)[split]]
        assert np.array_equal(found, _images_of(split, 2))


def test_an_image_is_a_function_of_seed_class_and_number() -> None:
    looks = draw_looks(np.random.default_rng(0), 100)
    places = [(0, 1, 2), (1, 1, 2), (0, 2, 2), (0, 1, 3), (0, 1, 2)]
    *different, again = (draw_image(looks, *place, 32).tobytes() for place in places)
    assert len(set(different)) == 4
    assert again == different[0]


def _nearest_neighbour_accuracy(vectors: Vectors, episodes: int = 300, k_query: int = 15) -> float:
    """5-way 1-shot accuracy of the nearest support vector; `vectors` is [classes, images, d]."""
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(episodes):
        classes = rng.permutation(len(vectors))[:5, None]
        images = np.array([rng.permutation(vectors.shape[1])[: 1 + k_query] for _ in range(5)])
        chosen = vectors[classes, images]
        distance = np.square(chosen[:, 1:, None] - chosen[None, None, :, 0]).sum(-1)
        hits.append(distance.argmin(-1) == np.arange(5)[:, None])
    return float(np.mean(hits))


def _pixels(images: NDArray[np.uint8]) -> Vectors:
    return images.reshape(*images.shape[:2], -1).astype(np.float32)


def _colour_histogram(images: NDArray[np.uint8]) -> Vectors:
    """Joint histogram of 4×4×4 colours, as square roots (Hellinger)."""
    code = (images // 64) @ np.array([16, 4, 1])
    counts = (code.reshape(*images.shape[:2], -1, 1) == np.arange(64)).sum(2)
    found: Vectors = np.sqrt(counts).astype(np.float32)
    return found


Features = Callable[[NDArray[np.uint8]], Vectors]


@pytest.mark.parametrize("features", [_pixels, _colour_histogram])
def test_no_shortcut_by_pixels_or_colours(features: Features) -> None:
    assert _nearest_neighbour_accuracy(features(_images_of("test"))) <= 0.30


@pytest.mark.slow
def test_a_network_learns_what_carries_over_to_new_classes() -> None:
    """A small prototypical network, 1,500 episodes of 5-way 1-shot from the train classes."""
    torch.manual_seed(0)
    train = _tensor(_images_of("train"))
    layers: list[nn.Module] = []
    for width in (3, 64, 64, 64):
        layers += [nn.Conv2d(width, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)]
    network = nn.Sequential(*layers, nn.Flatten())
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    rng = np.random.default_rng(0)
    labels = torch.arange(5).repeat_interleave(5)
    for _ in range(1_500):
        classes = rng.permutation(len(train))[:5, None]
        images = np.array([rng.permutation(60)[:6] for _ in range(5)])
        embedded = network(train[classes, images].flatten(0, 1)).unflatten(0, (5, 6))
        support, query = embedded[:, 0], embedded[:, 1:].flatten(0, 1)
        scores = -torch.cdist(query, support).square() / 32
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores, labels).backward()
        optimizer.step()
    with torch.no_grad():
        vectors = network.eval()(_tensor(_images_of("test")).flatten(0, 1)).unflatten(0, (20, 60))
    assert _nearest_neighbour_accuracy(vectors.numpy()) >= 0.45


def _tensor(images: NDArray[np.uint8]) -> torch.Tensor:
    return torch.from_numpy(images).movedim(-1, -3).float() / 127.5 - 1
