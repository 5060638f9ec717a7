"""Records of the loader question: results/loader."""

from __future__ import annotations

from dataclasses import dataclass

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


@record
class LoadingBlock:
    """One timed block of training steps that load their batches; rounds count on over the launches."""

    launch: int
    round: int
    backend: str
    workers: int  # of the machine, shared out over the ranks
    strategy: str  # that trains meanwhile
    replicas: int
    steps: int
    seconds: float
    waiting_seconds: float  # of `seconds`, without a batch: the mean over ranks
    memory_bytes: int  # of all ranks and workers, above the ranks before the loader was made


@dataclass(frozen=True)
class LoaderResults:
    """`results/loader`: batches that are read and thrown away, and steps that train on them."""

    blocks: tuple[LoaderBlock, ...]
    loading: tuple[LoadingBlock, ...] = ()
