"""Records of the user's own training."""

from __future__ import annotations

from dataclasses import dataclass

from parashot.questions.ways.records import Way, WayBlock
from parashot.records import record

PLAIN = "default"
"""Name of the way that people take by default: one process on all cores or one GPU, no workers, fp32."""


@record
class SkippedWay:
    """A strategy that cannot train it here."""

    strategy: str
    reason: str


@record
class GradientCheck:
    """A strategy's gradient of the first step against that of one process, in float64."""

    strategy: str
    difference: float  # the largest of an entry, over the largest entry


@dataclass(frozen=True)
class OwnResults:
    """What was measured of one training.

    search: a block of each way, then of the better half, and so on. finals: the default and the last ways,
    in interleaved blocks over several launches; the advice is of these. stopped: by the user, before the end.
    warnings: what the checks mean, in words.
    """

    ways: tuple[Way, ...]
    skipped: tuple[SkippedWay, ...]
    search: tuple[WayBlock, ...]
    finals: tuple[WayBlock, ...]
    stopped: bool = False
    checks: tuple[GradientCheck, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def finalists(self) -> tuple[Way, ...]:
        """The ways of the finals, the default first."""
        names = {each.way for each in self.finals}
        return tuple(each for each in self.ways if each.way in names)
