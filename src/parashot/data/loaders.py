"""From packed data to batches of episodes, by either backend, with any number of worker processes.

    b episodes · n n_way · k k_shot · q queries per episode (n_way * k_query, grouped by class) · h, w pixels

`packed` gathers uint8 pixels from the array; `jpeg` decodes, resizes and normalises every image when asked,
as the study did. Both read the same episodes; where the stored size is the network's, they give the same
pixels.
"""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from parashot.data.episodes import EpisodeSpec, draw_rows
from parashot.data.images import decode, resize_square
from parashot.data.packed import PackedSplit

Backend = Literal["jpeg", "packed"]

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""Per-channel statistics of ImageNet, as torchvision's models use them."""


class Batch(NamedTuple):
    """Episodes of one optimizer step, or one rank's share of them.

    support [b, n, k, 3, h, w] and query [b, q, 3, h, w]: uint8, or float32 normalised. `total` counts the
    episodes of the whole step over all ranks; `weight` is 0 where a rank has no share and takes part with a
    stand-in.
    """

    support: torch.Tensor
    query: torch.Tensor
    total: int
    weight: int


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
        first, total = step * self.batchsz, self.total(step)
        base, extra = divmod(total, self.ranks)
        begin = first + self.rank * base + min(self.rank, extra)
        return range(begin, begin + base + (self.rank < extra))


class EpisodeDataset(Dataset[Batch]):
    """Item s is this rank's batch of step s.

    Holds no arrays, so it is cheap to send to workers of any start method.
    """

    def __init__(
        self, split: PackedSplit, spec: EpisodeSpec, plan: Plan, seed: int, backend: Backend, image_size: int
    ) -> None:
        self.split = split
        self.spec = spec
        self.plan = plan
        self.seed = seed
        self.backend = backend
        self.image_size = image_size

    def __len__(self) -> int:
        return self.plan.steps

    def __getitem__(self, step: int) -> Batch:
        share = self.plan.share(step)
        episodes = share or range(step * self.plan.batchsz, step * self.plan.batchsz + 1)
        rows = draw_rows(
            self.seed,
            self.split.name,
            np.arange(episodes.start, episodes.stop),
            self.split.class_sizes,
            self.spec,
        )
        support, query = read_episodes(self.split, rows, self.spec, self.backend, self.image_size)
        return Batch(support, query, self.plan.total(step), int(len(share) > 0))


def read_episodes(
    split: PackedSplit,
    rows: npt.NDArray[np.integer[Any]],
    spec: EpisodeSpec,
    backend: Backend,
    image_size: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Read the images at `rows` [b, n, per_class]: support [b, n, k, 3, h, w] and query [b, q, 3, h, w]."""
    support = rows[:, :, : spec.k_shot]
    query = rows[:, :, spec.k_shot :].reshape(len(rows), -1)
    if backend == "packed":
        return _gather(split, support), _gather(split, query)
    return _decode_each(split, support, image_size), _decode_each(split, query, image_size)


def episode_loader(
    dataset: EpisodeDataset, workers: int, prefetch: int, device: torch.device
) -> Iterator[Batch]:
    """Iterate over all steps of `dataset`, in order.

    Workers start by forkserver; what they import is imported once.
    """
    pinned = device.type == "cuda"
    if workers == 0:
        return iter(DataLoader(dataset, batch_size=None, pin_memory=pinned))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["parashot.data.loaders"])
    with warnings.catch_warnings():
        # more workers than cores is what is measured here
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        return iter(
            DataLoader(
                dataset,
                batch_size=None,
                num_workers=workers,
                prefetch_factor=prefetch,
                multiprocessing_context=context,
                pin_memory=pinned,
            )
        )


def prepare(images: torch.Tensor, image_size: int) -> torch.Tensor:
    """Bring images [..., 3, h, w], where they are, to `image_size` and to normalised float32.

    What the `jpeg` backend has resized and normalised passes through unchanged.
    """
    if images.dtype.is_floating_point:
        return images
    values = images.to(torch.float32)
    if images.shape[-1] != image_size or images.shape[-2] != image_size:
        flat = F.interpolate(
            values.flatten(0, -4),
            size=(image_size, image_size),
            mode="bilinear",
            antialias=True,
            align_corners=False,
        )
        values = flat.unflatten(0, images.shape[:-3])
    return normalise(values)


def normalise(values: torch.Tensor) -> torch.Tensor:
    """Turn float pixels [..., 3, h, w] of 0..255 into zero mean and unit variance over ImageNet."""
    mean, std = _statistics(values.device)
    return (values / 255 - mean) / std


@cache
def _statistics(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """MEAN and STD as [3, 1, 1], once per device: copying them to a GPU makes it wait."""
    return torch.tensor(MEAN, device=device).view(3, 1, 1), torch.tensor(STD, device=device).view(3, 1, 1)


def workers_of_rank(workers: int, local_rank: int, local_ranks: int) -> int:
    """A rank's share of a machine's loader workers."""
    base, extra = divmod(workers, local_ranks)
    return base + (local_rank < extra)


def _gather(split: PackedSplit, rows: npt.NDArray[np.integer[Any]]) -> torch.Tensor:
    """Rows of any shape [...] -> uint8 [..., 3, h, w], a view of pixels that lie channels last."""
    pixels = split.images.take(rows.reshape(-1), axis=0).reshape(*rows.shape, *split.images.shape[1:])
    return torch.from_numpy(pixels).movedim(-1, -3)


def _decode_each(split: PackedSplit, rows: npt.NDArray[np.integer[Any]], image_size: int) -> torch.Tensor:
    """Rows of any shape [...] -> float32 [..., 3, h, w].

    Each image is decoded, resized and normalised by itself.
    """
    images = [_load_image(split.encoded(int(row)), image_size) for row in rows.reshape(-1)]
    return torch.stack(images).view(*rows.shape, 3, image_size, image_size)


def _load_image(data: bytes, image_size: int) -> torch.Tensor:
    pixels = decode(data)
    if pixels.shape[:2] != (image_size, image_size):
        pixels = resize_square(pixels, image_size)
    return normalise(torch.from_numpy(pixels.astype(np.float32)).movedim(-1, -3))
