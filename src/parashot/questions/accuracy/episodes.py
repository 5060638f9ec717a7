"""What stage `evaluate` keeps of the test episodes: confusions of classes, and a few episodes to look at.

e episodes · n n_way · q queries per episode · c classes of the split
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from parashot.data.episodes import EpisodeSpec
from parashot.data.images import Pixels, encode_png, resize_square
from parashot.data.packed import PackedSplit
from parashot.questions.accuracy.records import Confusion, ShownScore

Floats = npt.NDArray[np.floating[Any]]
Rows = npt.NDArray[np.integer[Any]]

_EPISODES = 2
_QUERIES = 2
_SIDE = 96
"""Pixels of a tile; larger images are shrunk."""


def confusions(
    scores: Floats, rows: Rows, class_sizes: npt.NDArray[np.int64], names: Sequence[str]
) -> list[Confusion]:
    """Count, of scores [e, q, n] of the episodes with image rows [e, n, per_class], one row per two classes.

    An episode offers a few classes only, so a class is mistaken for another no oftener than both meet:
    `offered` counts the queries for which that was possible.
    """
    classes = np.searchsorted(class_sizes.cumsum(), rows[:, :, 0], side="right")  # [e, n]
    per_class = scores.shape[1] // scores.shape[2]
    actual = classes.repeat(per_class, axis=1)  # [e, q]
    taken_for = np.take_along_axis(classes, scores.argmax(2), axis=1)
    taken = np.zeros((len(names), len(names)), dtype=np.int64)  # [c, c]
    offered = np.zeros_like(taken)
    np.add.at(taken, (actual, taken_for), 1)
    np.add.at(offered, (classes[:, :, None], classes[:, None, :]), per_class)
    return [
        Confusion(own, other, int(offered[i, j]), int(taken[i, j]))
        for i, own in enumerate(names)
        for j, other in enumerate(names)
    ]


def shown_episodes(
    split: PackedSplit, rows: Rows, scores: Floats, spec: EpisodeSpec
) -> tuple[list[ShownScore], dict[str, bytes]]:
    """Scores and pictures of the first episodes, whatever became of them; pictures are PNGs by file name.

    rows: image rows [e, n, per_class]; scores: before the sigmoid, [e, q, n].
    """
    queries = min(_QUERIES, spec.k_query)
    table: list[ShownScore] = []
    pictures: dict[str, bytes] = {}
    for number in range(min(_EPISODES, len(rows))):
        tiles = split.images[rows[number, :, : spec.k_shot + queries]]  # [n, images, h, w, 3]
        pictures[f"episode_{number}.png"] = encode_png(_mosaic(tiles))
        relations = 1 / (1 + np.exp(-scores[number].astype(np.float64)))
        per_query = relations.reshape(spec.n_way, spec.k_query, spec.n_way)[:, :queries]
        table += [
            ShownScore(number, spec.n_way, spec.k_shot, actual, query, offered, float(score))
            for (actual, query, offered), score in np.ndenumerate(per_query)
        ]
    return table, pictures


def _mosaic(tiles: npt.NDArray[np.uint8]) -> Pixels:
    """One picture [n · side, images · side, 3] of images [n, images, h, w, 3], each a square."""
    side = min(_SIDE, *tiles.shape[2:4])
    return np.concatenate(
        [np.concatenate([resize_square(tile, side) for tile in row], axis=1) for row in tiles]
    )
