"""Records of the gain question: results/gain."""

from __future__ import annotations

from dataclasses import dataclass

from parashot.questions.loader.rows import Loading
from parashot.records import record
from parashot.train.records import Choices

USUAL, ADVISED = "default", "advised"
"""The two ways: one process whose DataLoader decodes images, in fp32; and what the study advises."""


@record
class Way:
    """A way to train."""

    way: str  # default | advised
    strategy: str
    replicas: int
    threads_per_replica: int
    batchsz: int  # episodes per step, over all replicas
    backend: str
    workers: int
    pairing: str
    precision: str
    compile: str

    @property
    def loading(self) -> Loading:
        """How it reads."""
        return Loading(self.backend, self.workers)

    @property
    def computing(self) -> Choices:
        """How it computes a step."""
        return Choices(self.pairing, self.precision, self.compile)


@record
class GainBlock:
    """One timed block of training steps in one way; rounds count on over the launches."""

    launch: int
    round: int
    way: str
    episodes: int
    seconds: float
    waiting_seconds: float  # of `seconds`, without a batch: the mean over ranks


@dataclass(frozen=True)
class GainResults:
    """`results/gain`; empty where the advice is not complete."""

    ways: tuple[Way, ...]
    blocks: tuple[GainBlock, ...]
