"""Records of the loader question: results/loader."""

from __future__ import annotations

from dataclasses import dataclass

from parashot.questions.ways.records import EpisodeWay, WayBlock
from parashot.records import record


@record
class LoaderBlock:
    """One timed block of one loader setting in one round; warm-up batches are not in it."""

    round: int
    backend: str
    workers: int
    batchsz: int
    batches: int
    seconds: float
    first_batch_seconds: float  # from making the loader to its first batch
    memory_bytes: int  # summed PSS of the process tree above the same process without a loader


@dataclass(frozen=True)
class LoaderResults:
    """`results/loader`: batches that are read and thrown away, and ways to train that differ in loading."""

    blocks: tuple[LoaderBlock, ...]
    ways: tuple[EpisodeWay, ...] = ()
    training: tuple[WayBlock, ...] = ()
