"""What is mistaken for what among unseen classes.

e episodes · n n_way · q queries per episode · c classes of the split
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from parashot.questions.accuracy.records import Confusion


def confusions(
    scores: npt.NDArray[np.floating[Any]],
    rows: npt.NDArray[np.integer[Any]],
    class_sizes: npt.NDArray[np.int64],
    names: Sequence[str],
) -> list[Confusion]:
    """Count, of scores [e, q, n] of the episodes with image rows [e, n, per_class], one row per two classes.

    An episode offers a few classes only, so a class is mistaken for another no oftener than both meet:
    `offered` counts the queries for which that was possible.
    """
    classes = np.searchsorted(class_sizes.cumsum(), rows[:, :, 0], side="right")  # [e, n]
    per_class = scores.shape[1] // scores.shape[2]
    actual = classes.repeat(per_class, axis=1)  # [e, q]
    taken_for = np.take_along_axis(classes, scores.argmax(2), axis=1)
    taken = np.zeros((len(names), len(names)), dtype=np.int64)
    offered = np.zeros_like(taken)
    np.add.at(taken, (actual, taken_for), 1)
    np.add.at(offered, (classes[:, :, None], classes[:, None, :]), per_class)
    return [
        Confusion(own, other, int(offered[i, j]), int(taken[i, j]))
        for i, own in enumerate(names)
        for j, other in enumerate(names)
    ]
