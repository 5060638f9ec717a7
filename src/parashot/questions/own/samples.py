"""Checks of samples: are they random anew in each worker, and does every rank have the same ones?"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, Dataset

from parashot.task import Plan
from parashot.tasks.own import OwnTask, StepsOfDataset, as_raised, own_errors, steps_of
from parashot.tasks.packed import pack

READINGS = 16
"""Readings of a sample: a random flip alone is the same in so many of two workers once in 65536 times."""


@dataclass
class Readings(Dataset[list[bytes]]):
    """Each item is the same: digests of some readings of the first sample, with nothing seeded."""

    steps: StepsOfDataset

    def __getitem__(self, index: int) -> list[bytes]:
        with own_errors(self.steps.file):
            return [digest(self.steps, 0) for _ in range(READINGS)]


def repeats_in_workers(task: OwnTask) -> bool:
    """Whether a sample that is random is random alike in two workers, started as PyTorch does by default.

    PyTorch seeds itself, NumPy and Python in every worker. A generator of the data set's own, or of the
    file's, is copied into each as it is.
    """
    steps = steps_of(task.file, Plan(task.batchsz, task.batchsz))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fewer cores than workers, and of forking a process with threads
        loader = DataLoader(Readings(steps), batch_size=None, sampler=range(2), num_workers=2)
        first, second = as_raised(iter(loader))
    return len(set(first)) > 1 and first == second


def digests(task: OwnTask) -> Sequence[bytes]:
    """Of the first, the middle and the last sample, as this process reads them; none of one that is random.

    What PyTorch, NumPy and Python draw at random is seeded.
    """
    steps = steps_of(task.file, Plan(task.batchsz, task.batchsz), random=False)
    count = len(steps.dataset)
    with own_errors(task.file):
        once, again = ([digest(steps, index) for index in (0, count // 2, count - 1)] for _ in range(2))
    return once if once == again else []


def digest(steps: StepsOfDataset, index: int) -> bytes:
    """Digest of the tensors of one sample, collated."""
    found = hashlib.sha256()
    for leaf in tree_leaves(pack(steps.collated([index]))):
        if isinstance(leaf, Tensor):
            found.update(leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.digest()
