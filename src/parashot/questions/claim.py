"""Claims of the study of 2020 and the verdicts on them.

Verdicts come from statistics alone: "faster" asks for an interval that excludes 1, "the same accuracy" for an
equivalence test. What the data do not decide is `undecided`; what could not be measured `cannot be tested
here`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from parashot.questions.statistics import Interval

if TYPE_CHECKING:
    from parashot.questions.study import Study

Verdict = Literal["holds", "does not hold", "undecided", "cannot be tested here"]
Side = Literal["above", "below"]
T = TypeVar("T")

BY_TEST = "decided by a test, not measured here"
"""What is said to be measured of a claim that a test decides."""


@dataclass(frozen=True)
class Finding:
    """Judgement of a claim: the measurement, the verdict, and the reason."""

    measured: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Claim:
    """A claim of 2020 and its figure there, with the measurement and the verdict here."""

    id: str
    claim: str
    study_figure: str
    measured: str
    verdict: Verdict
    reason: str

    @property
    def measured_here(self) -> bool:
        """Whether the study measured it: else it cannot be tested here, or a test decides it."""
        return self.verdict != "cannot be tested here" and self.measured != BY_TEST


class UntestableError(Exception):
    """A claim or a choice cannot be tested with what was measured; the message says why."""


@dataclass(frozen=True)
class StudyClaim:
    """A sentence of the report of 2020, the figure it gave for it, and the function that judges it."""

    id: str
    claim: str
    figure: str
    finding: Callable[[Study], Finding]

    def judge(self, study: Study) -> Claim:
        """Judge the claim by the measurements of a study."""
        try:
            found = self.finding(study)
        except UntestableError as reason:
            found = Finding("not measured", "cannot be tested here", str(reason))
        return Claim(self.id, self.claim, self.figure, found.measured, found.verdict, found.reason)


def claim(
    name: str, sentence: str, figure: str = "no figure"
) -> Callable[[Callable[[Study], Finding]], StudyClaim]:
    """Decorate the function that judges a claim; it raises `UntestableError` for what was not measured."""
    return lambda finding: StudyClaim(name, sentence, figure, finding)


def settled(name: str, sentence: str, verdict: Verdict, test: str, figure: str = "no figure") -> StudyClaim:
    """Claim that an equality settles, once and for all machines; `test` shows it."""
    return StudyClaim(name, sentence, figure, lambda study: by_test(verdict, test))


def by_test(verdict: Verdict, test: str) -> Finding:
    """Finding that a test shows: its path, and what it shows."""
    return Finding(BY_TEST, verdict, f"shown by a test: {test}")


def by_side(
    measured: str, interval: Interval, holds: Side, name: str, point: float = 1, point_name: str = "1"
) -> Finding:
    """Judge by the side of a point on which an interval lies; undecided where it includes the point."""
    side = interval.side_of(point)
    if side == "around":
        return Finding(measured, "undecided", f"the interval of {name} includes {point_name}")
    return Finding(measured, holds_if(side == holds), f"the interval of {name} lies {side} {point_name}")


def holds_if(it_does: bool) -> Verdict:
    """Return the verdict of a comparison that decides."""
    return "holds" if it_does else "does not hold"


def needed(study: Study, name: str, part: T | None) -> T:
    """Return a part of the results. Raises `UntestableError` where it is missing."""
    if part is None:
        raise UntestableError(study.why_missing(name))
    return part
