"""A few episodes to look at: their images as one picture each, and the scores of their queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from parashot.data.episodes import EpisodeSpec
from parashot.data.images import Pixels, encode_png, resize_square
from parashot.data.packed import PackedSplit
from parashot.questions.accuracy.records import ShownScore

_EPISODES = 2
_QUERIES = 2
_SIDE = 96
"""Pixels of a tile; larger images are shrunk."""


def shown_episodes(
    split: PackedSplit,
    rows: npt.NDArray[np.integer[Any]],
    scores: npt.NDArray[np.floating[Any]],
    spec: EpisodeSpec,
) -> tuple[list[ShownScore], dict[str, bytes]]:
    """Scores and pictures of the first episodes, whatever became of them; pictures are PNGs by file name.

    rows: image rows [e, n, per_class]; scores: before the sigmoid, [e, n · k_query, n].
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
    rows = [np.concatenate([resize_square(tile, side) for tile in row], axis=1) for row in tiles]
    return np.concatenate(rows)
