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


@dataclass(frozen=True)
class Claim:
    """A claim of the study and its figure there, with the measurement and the verdict here."""

    id: str
    claim: str
    study_figure: str
    measured: str
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Finding:
    """Judgement of a claim: the measurement, the verdict, and the reason."""

    measured: str
    verdict: Verdict
    reason: str


class UntestableError(Exception):
    """A claim or a choice cannot be tested with what was measured; the message says why."""


@dataclass(frozen=True)
class StudyClaim:
    """A sentence of the study, the figure it gave for it, and the function that judges it."""

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


def shown_by_test(test: str, verdict: Verdict, what: str) -> Finding:
    """Finding of a claim that an equality settles, once and for all machines."""
    return Finding("not a measurement of this study", verdict, f"shown by a test: {test}: {what}")


def by_ratio(study: Study, measured: str, ratio: Interval, holds: Side, name: str) -> Finding:
    """Judge by the side of 1 on which the interval of a ratio lies; `name` is that of the ratio."""
    return by_side(measured, ratio, 1, holds, f"the {confidence_level(study)} interval of {name}", "1")


def by_side(
    measured: str, interval: Interval, point: float, holds: Side, name: str, point_name: str
) -> Finding:
    """Judge by the side of a point on which an interval lies; undecided where it includes the point."""
    side = interval.side_of(point)
    if side == "around":
        return Finding(measured, "undecided", f"{name} includes {point_name}")
    return Finding(
        measured, "holds" if side == holds else "does not hold", f"{name} lies {side} {point_name}"
    )


def confidence_level(study: Study) -> str:
    """Confidence of the intervals in words: `95%`."""
    return f"{100 * study.resampling.confidence:g}%"


def needed(study: Study, name: str, part: T | None) -> T:
    """Return a part of the results. Raises `UntestableError` where it is missing."""
    if part is None:
        raise UntestableError(study.why_missing(name))
    return part
