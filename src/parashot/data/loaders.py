"""From packed data to batches of episodes, by any backend, with any number of worker processes.

`packed` gathers uint8 pixels from the array, `resident` from the split in the device's own memory; `jpeg`
decodes, resizes and normalises every image when asked, as the study did. All read the same episodes; where
the stored size is the network's, they give the same pixels.
"""

from __future__ import annotations

import math
import multiprocessing
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from parashot.data.ahead import one_ahead
from parashot.data.batches import Batch, Plan, even_share
from parashot.data.episodes import EpisodeSpec
from parashot.data.images import decode, resize_square
from parashot.data.packed import PackedSplit
from parashot.data.pixels import normalise
from parashot.data.resident import ResidentSplit
from parashot.data.step_rows import StepRows
from parashot.errors import DeviceError, one_line
from parashot.lifetime import end_with_maker

Backend = Literal["jpeg", "packed", "resident"]


class EpisodeDataset(Dataset[Batch]):
    """Item s is this rank's batch of step s, in the host's memory.

    Holds no arrays when it is sent to workers, so it is cheap with any start method.
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

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_rows"}

    def __len__(self) -> int:
        return self.plan.steps

    def __getitem__(self, step: int) -> Batch:
        return self.batch(step)

    def batch(self, step: int, pinned: bool = False) -> Batch:
        """This rank's batch of `step`; packed pixels in pinned memory, where it is meant for a GPU."""
        rows = self._rows.of(step)
        if self.backend == "jpeg":
            pixels = _decode_each(self.split, rows, self.image_size)
        else:
            pixels = _gather(self.split, rows, pinned)
        return Batch.of(pixels, self.spec, self.plan, step)

    @cached_property
    def _rows(self) -> StepRows[np.ndarray[Any, Any]]:
        return StepRows(self.seed, self.split.name, self.split.class_sizes, self.spec, self.plan)


def episode_loader(
    dataset: EpisodeDataset, workers: int, prefetch: int, device: torch.device, first: int = 0
) -> Iterator[Batch]:
    """Iterate over the steps of `dataset` from `first` on; on a GPU the batches arrive there, one ahead.

    Workers start by forkserver; what they import is imported once. The backend `resident` needs none.
    """
    steps = range(first, len(dataset))
    batches: Iterator[Batch]
    if dataset.backend == "resident":
        return ResidentSplit(dataset.split, device).batches(dataset.spec, dataset.plan, dataset.seed, steps)
    if workers == 0:
        batches = (dataset.batch(step, pinned=device.type == "cuda") for step in steps)
    else:
        batches = _by_workers(dataset, steps, workers, prefetch, device)
    return one_ahead(batches, device) if device.type == "cuda" else batches


def _by_workers(
    dataset: EpisodeDataset, steps: range, workers: int, prefetch: int, device: torch.device
) -> Iterator[Batch]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["parashot.data.loaders"])
    with warnings.catch_warnings():
        # more workers than cores is what is measured here
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        batches = iter(
            DataLoader(
                dataset,
                sampler=steps,
                batch_size=None,
                num_workers=workers,
                prefetch_factor=prefetch,
                multiprocessing_context=context,
                pin_memory=device.type == "cuda",
                worker_init_fn=_worker_begins,
            )
        )
    return _naming_lost_workers(batches)


def _naming_lost_workers(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same; a worker that was killed is told in one line.

    Raises `DeviceError`, in the place of what its queue or torch's own watch says.
    """
    try:
        yield from batches
    except (RuntimeError, ConnectionError, EOFError) as error:
        if isinstance(error, RuntimeError) and "DataLoader worker (pid" not in str(error):
            raise
        raise DeviceError(
            f"a loader worker was killed ({one_line(error)}); run again, which goes on where it was saved, "
            "and where memory is short with fewer loader.workers"
        ) from error


def _worker_begins(worker: int) -> None:
    """Nobody waits for the batches of a process that was killed."""
    end_with_maker()


def workers_of_rank(workers: int, local_rank: int, local_ranks: int) -> int:
    """A rank's share of a machine's loader workers."""
    return len(range(workers)[even_share(workers, local_rank, local_ranks)])


def _gather(split: PackedSplit, rows: npt.NDArray[np.int64], pinned: bool) -> torch.Tensor:
    """Rows [m] -> uint8 [m, 3, h, w], a view of pixels that lie channels last, by one call."""
    pixels = _empty((len(rows), *split.pixels.shape[1:]), pinned)
    torch.index_select(split.pixels, 0, torch.from_numpy(rows), out=pixels)  # by all threads torch has here
    return pixels.movedim(-1, -3)


def _empty(shape: tuple[int, ...], pinned: bool) -> torch.Tensor:
    """Memory for uint8 of `shape`, where it can go on without another copy.

    A worker's is shared with the process it works for; else it is pinned where that is asked for.
    """
    if get_worker_info() is None:
        return torch.empty(shape, dtype=torch.uint8, pin_memory=pinned)
    shared = torch.UntypedStorage._new_shared(math.prod(shape))
    return torch.empty(0, dtype=torch.uint8).set_(shared).view(shape)


def _decode_each(split: PackedSplit, rows: npt.NDArray[np.int64], image_size: int) -> torch.Tensor:
    """Rows [m] -> float32 [m, 3, h, w]. Each image is decoded, resized and normalised by itself."""
    return torch.stack([_load_image(split.encoded(int(row)), image_size) for row in rows])


def _load_image(data: bytes, image_size: int) -> torch.Tensor:
    pixels = decode(data)
    if pixels.shape[:2] != (image_size, image_size):
        pixels = resize_square(pixels, image_size)
    return normalise(torch.from_numpy(pixels.copy()).movedim(-1, -3))
