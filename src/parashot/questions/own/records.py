"""Records of the user's own training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parashot.allocator import as_environment
from parashot.errors import ParashotError
from parashot.questions.text import counted
from parashot.questions.ways.records import SkippedWay, Way, WayBlock
from parashot.records import record

PREFETCH = 2
"""Batches that each worker of a DataLoader has ready by default."""

EXTRAS = {
    "pin_memory": ("no pinned memory", "pinned memory"),
    "channels_last": ("no channels_last", "channels_last"),
    "fused": ("no fused optimizer", "fused optimizer"),
    "compile": ("not compiled", "compiled"),
    "keep_memory": ("freed memory not kept", "freed memory kept"),
}
"""Words for what is switched off, and on."""

PLAIN = "default"
"""Name of the way that people take by default: one process on all cores or one GPU, no workers, fp32."""


@record
class OwnWay(Way):
    """A way to train a user's own network; what has a default is as PyTorch has it by default."""

    device: str  # cpu or cuda
    prefetch: int = PREFETCH  # batches that each worker has ready
    pin_memory: bool = False
    channels_last: bool = False
    fused: bool = False  # the optimizer's update of all parameters by one kernel
    keep_memory: bool = False  # freed memory stays with the process (allocator.py)

    def __str__(self) -> str:
        return ", ".join([self.devices, self.loading, self.precision, *self.extras])

    @property
    def devices(self) -> str:
        """Strategy and devices in words."""
        if self.device == "cpu":
            return super().devices
        return "one GPU" if self.replicas == 1 else f"{self.strategy} on {self.replicas} GPUs"

    @property
    def loading(self) -> str:
        """Its DataLoader in words."""
        if not self.workers:
            return "no workers"
        ahead = "" if self.prefetch == PREFETCH else f" with {self.prefetch} batches each"
        return f"{counted(self.workers, 'worker')}{ahead}"

    @property
    def extras(self) -> list[str]:
        """What is switched on."""
        return [words[True] for name, words in EXTRAS.items() if self._has(name)]

    def unlike(self, other: OwnWay) -> str:
        """What sets it apart from `other`, in words."""
        pairs = [(getattr(self, name), getattr(other, name)) for name in ("devices", "loading", "precision")]
        switched = [
            words[self._has(name)] for name, words in EXTRAS.items() if self._has(name) != other._has(name)
        ]
        return ", ".join([*(mine for mine, theirs in pairs if mine != theirs), *switched])

    def _has(self, name: str) -> bool:
        return getattr(self, name) not in (False, "none")

    @property
    def trained_as(self) -> tuple[object, ...]:
        """All but the loading."""
        return *super().trained_as, self.channels_last, self.fused

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """Those by which its processes keep freed memory."""
        return tuple(as_environment().items()) if self.keep_memory else ()


@record
class StepParts:
    """Where a step of a way spends its time, as the profiler saw it, loading left out: shares of it."""

    way: str
    forward: float
    backward: float
    optimizer: float
    exchange: float  # what is waited for; fully_shard's gathering of weights is within
    idle: float  # a device without work


@record
class SizeRow:
    """A batch size in the way that is recommended."""

    batchsz: int  # samples per step, over all replicas
    seconds_per_step: float
    memory_bytes: int  # at most, of all processes but loader workers; on GPUs of the first GPU
    took_seconds: float  # to measure it

    @property
    def samples_per_second(self) -> float:
        """Of training."""
        return self.batchsz / self.seconds_per_step


@dataclass(frozen=True)
class OwnResults:
    """What was measured of one training; finals are interleaved blocks over several launches."""

    ways: tuple[OwnWay, ...]
    skipped: tuple[SkippedWay, ...]
    search: tuple[WayBlock, ...]  # a block of each way, then of the better half, and so on
    refining: tuple[WayBlock, ...]  # of the best of them as it is and with one thing changed
    finals: tuple[WayBlock, ...]  # of the default and the last ways: the advice is of these
    parts: tuple[StepParts, ...] = ()  # of a step by default and as recommended
    sizes: tuple[SizeRow, ...] = ()
    no_larger: str = ""  # why larger batches were not tried
    unused: bool = False  # some parameters get no gradient
    stopped: bool = False  # before the end, by the user or by `error`
    error: ParashotError | None = None
    # of each strategy: the largest difference of an entry to that of one process, over the largest entry
    gradients: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # what the checks mean, in words

    @property
    def finalists(self) -> tuple[OwnWay, ...]:
        """The ways of the finals that were timed more than once, the default first."""
        blocks = Counter(each.way for each in self.finals)
        return tuple(each for each in self.ways if blocks[each.way] > 1)


RAW: Mapping[str, type[Any]] = {
    "ways": OwnWay,
    "skipped": SkippedWay,
    "search": WayBlock,
    "refining": WayBlock,
    "finals": WayBlock,
    "parts": StepParts,
    "sizes": SizeRow,
}
"""What of `OwnResults` the report has as NAME.csv."""
