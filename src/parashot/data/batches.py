"""Batches of episodes, and which episodes each step and each rank reads.

b episodes · n n_way · k k_shot · q queries per episode (n_way * k_query, grouped by class) · h, w pixels
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch

from parashot.data.episodes import EpisodeSpec


def even_share(count: int, rank: int, ranks: int) -> slice:
    """Which of `count` things in a row are this rank's: consecutive ones, as evenly as can be."""
    base, extra = divmod(count, ranks)
    begin = rank * base + min(rank, extra)
    return slice(begin, begin + base + (rank < extra))


class Batch(NamedTuple):
    """Episodes of one optimizer step, or one rank's share of them.

    support [b, n, k, 3, h, w] and query [b, q, 3, h, w]: uint8, or float32 normalised; episodes: int64 [b],
    their indices. `total` counts the episodes of the whole step over all ranks; `weight` is 0 where a rank
    has no share and takes part with a stand-in.
    """

    support: torch.Tensor
    query: torch.Tensor
    episodes: torch.Tensor
    total: int
    weight: int

    @classmethod
    def of(cls, pixels: torch.Tensor, spec: EpisodeSpec, plan: Plan, step: int) -> Batch:
        """The batch of one step from its pixels [m, 3, h, w], which lie as `StepRows` orders them."""
        reads = plan.reads(step)
        b, n, k = len(reads), spec.n_way, spec.k_shot
        support, query = (
            pixels[: b * n * k].unflatten(0, (b, n, k)),
            pixels[b * n * k :].unflatten(0, (b, -1)),
        )
        episodes = torch.arange(reads.start, reads.stop, device=pixels.device)
        return cls(support, query, episodes, plan.total(step), plan.weight(step))

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What travels to a device: support, query, episodes."""
        return self.support, self.query, self.episodes

    def with_tensors(self, support: torch.Tensor, query: torch.Tensor, episodes: torch.Tensor) -> Batch:
        """The same batch, its tensors in another place."""
        return self._replace(support=support, query=query, episodes=episodes)

    def to(self, device: torch.device) -> Batch:
        """The batch on `device`; from pinned memory, nothing waits for the copy."""
        return self.with_tensors(*(each.to(device, non_blocking=True) for each in self.tensors))

    def parts(self, count: int) -> Iterator[Batch]:
        """Cut into `count` batches of consecutive episodes, or one for each where there are fewer."""
        count = min(count, len(self.episodes))
        for tensors in zip(*(each.tensor_split(count) for each in self.tensors), strict=True):
            yield self.with_tensors(*tensors)


@dataclass(frozen=True)
class Plan:
    """Which episodes of a budget each step and each rank reads.

    Step s takes [s * batchsz, (s + 1) * batchsz), the last one what is left. A step's episodes are shared out
    over the ranks in order, as evenly as can be; a rank without any reads the step's first episode with
    weight 0, so that collectives stay in step.
    """

    episodes: int
    batchsz: int
    rank: int = 0
    ranks: int = 1

    @property
    def steps(self) -> int:
        """Optimizer steps, the last one possibly smaller."""
        return -(-self.episodes // self.batchsz)

    def total(self, step: int) -> int:
        """Episodes of one step over all ranks."""
        return min(self.batchsz, self.episodes - step * self.batchsz)

    def share(self, step: int) -> range:
        """Episode indices of this rank in one step; may be empty."""
        first = step * self.batchsz
        return range(first, first + self.total(step))[even_share(self.total(step), self.rank, self.ranks)]

    def reads(self, step: int) -> range:
        """Episode indices that this rank reads in one step: its share, or the stand-in."""
        first = step * self.batchsz
        return self.share(step) or range(first, first + 1)

    def weight(self, step: int) -> int:
        """1 where this rank has a share of the step, else 0."""
        return int(len(self.share(step)) > 0)
