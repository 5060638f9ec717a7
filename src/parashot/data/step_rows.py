"""Which images each step reads, drawn for many steps by one call."""

from __future__ import annotations

from typing import Any, Generic

import numpy as np
import torch

from parashot.data.batches import Plan
from parashot.data.episodes import Array, EpisodeSpec, SplitName, draw_rows

DRAWN_AT_ONCE = 1024
"""Episodes of one call: for a few, calling numpy takes longer than copying their pixels."""


class StepRows(Generic[Array]):
    """Rows of each step of a plan, as numpy or torch arrays, whichever `class_sizes` [classes] is."""

    def __init__(
        self, seed: int, split: SplitName, class_sizes: Array, spec: EpisodeSpec, plan: Plan
    ) -> None:
        self.seed = seed
        self.split: SplitName = split
        self.class_sizes: Array = class_sizes
        self.spec = spec
        self.plan = plan
        self._steps_at_once = max(1, DRAWN_AT_ONCE * plan.ranks // plan.batchsz)
        self._first = -1
        self._drawn: list[Array] = []

    def of(self, step: int) -> Array:
        """Rows int64 [m] of one step: the support images of all its episodes, then all queries.

        In this order one gather fills both.
        """
        first = step - step % self._steps_at_once
        if first != self._first:
            self._first, self._drawn = first, self._draw(first)
        return self._drawn[step - first]

    def _draw(self, first: int) -> list[Array]:
        plan, k = self.plan, self.spec.k_shot
        reads = [plan.reads(step) for step in range(first, min(first + self._steps_at_once, plan.steps))]
        episodes = _like(
            self.class_sizes, np.concatenate([np.arange(each.start, each.stop) for each in reads])
        )
        rows = draw_rows(self.seed, self.split, episodes, self.class_sizes, self.spec)
        ends = np.cumsum([len(each) for each in reads])
        steps = [rows[end - len(each) : end] for end, each in zip(ends, reads, strict=True)]
        return [_join(step[:, :, :k].reshape(-1), step[:, :, k:].reshape(-1)) for step in steps]


def _like(example: Array, values: np.ndarray[Any, Any]) -> Array:
    """`values` as an array of the example's kind, where it is."""
    return torch.from_numpy(values).to(example.device) if isinstance(example, torch.Tensor) else values


def _join(first: Array, second: Array) -> Array:
    if isinstance(first, torch.Tensor):
        return torch.cat((first, second))
    return np.concatenate((first, second))
