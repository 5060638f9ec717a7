"""Records of ways to train."""

from __future__ import annotations

from dataclasses import asdict
from typing import NamedTuple

from parashot.questions.text import counted
from parashot.records import record
from parashot.train.records import Choices


@record
class Way:
    """A way to train; what is trained may add fields of its own."""

    way: str  # its name
    strategy: str
    replicas: int
    threads_per_replica: int
    batchsz: int  # items per step, over all replicas
    workers: int  # of the machine, shared out over the ranks
    precision: str
    compile: str

    @property
    def devices(self) -> str:
        """Strategy and replicas in words."""
        if self.replicas == 1:
            return f"one process with {counted(self.threads_per_replica, 'thread')}"
        return f"{self.strategy} on {self.replicas} replicas"

    @property
    def trained_as(self) -> tuple[object, ...]:
        """All but the loading: ways that are alike in it can share their network."""
        return self.strategy, self.replicas, self.threads_per_replica, self.precision, self.compile

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """Variables of the environment that its processes are started with."""
        return ()


class Loading(NamedTuple):
    """A way of loading episodes."""

    backend: str
    workers: int

    def __str__(self) -> str:
        return f"{self.backend} with {counted(self.workers, 'worker') if self.workers else 'no workers'}"

    @property
    def name(self) -> str:
        """Name of a way to train that is like others but for its loading."""
        return f"{self.backend}-{self.workers}"


PLAIN_LOADER = Loading("jpeg", 0)
"""What a DataLoader does by default: images are decoded on request, in the process that trains."""


@record
class EpisodeWay(Way):
    """A way to train on episodes."""

    backend: str
    pairing: str

    @classmethod
    def of(
        cls, way: str, strategy: str, replicas: int, threads: int, batchsz: int, reads: Loading, how: Choices
    ) -> EpisodeWay:
        """Make one that loads as `reads` and computes a step as `how` says."""
        return cls(way, strategy, replicas, threads, batchsz, **reads._asdict(), **asdict(how))

    def __str__(self) -> str:
        return f"{self.devices}, {self.loading}, {self.computing}"

    @property
    def loading(self) -> Loading:
        """How it reads."""
        return Loading(self.backend, self.workers)

    @property
    def computing(self) -> Choices:
        """How it computes a step."""
        return Choices(self.pairing, self.precision, self.compile)

    @property
    def trained_as(self) -> tuple[object, ...]:
        """All but the loading."""
        return *super().trained_as, self.pairing


@record
class SkippedWay:
    """What is not tried here, or has failed: a way, all ways of a strategy, or keeping freed memory."""

    what: str
    reason: str


@record
class WayBlock:
    """One timed block of training steps that load their batches; rounds count on over the launches."""

    launch: int
    round: int
    way: str  # `Way.way`
    steps: int
    seconds: float
    waiting_seconds: float  # of `seconds`, without a batch: the mean over ranks
    memory_bytes: int  # of all ranks and workers, above the ranks before the loader was made
