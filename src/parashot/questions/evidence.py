"""What a claim is judged by, and what a judgement is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from parashot.params import Params
from parashot.questions.batchsz.rows import BatchszRow, batchsz_rows
from parashot.questions.loader.rows import LoaderRow, loader_rows
from parashot.questions.results import StudyResults
from parashot.questions.statistics import Interval, Resampling
from parashot.questions.strategies.rows import StrategyRow, strategy_rows

Verdict = Literal["holds", "does not hold", "undecided", "cannot be tested here"]


@dataclass(frozen=True)
class Evidence:
    """The measurements and the rows made of them."""

    results: StudyResults
    params: Params
    resampling: Resampling
    loader: tuple[LoaderRow, ...]
    strategies: Mapping[str, StrategyRow]
    batchsz: Mapping[int, BatchszRow]

    @classmethod
    def of(cls, results: StudyResults, params: Params) -> Evidence:
        """Make the rows. Raises `RecordError` where a file holds too little for an interval."""
        resampling = Resampling.of(params.claims)
        sizes = results.batchsz and batchsz_rows(results.batchsz, params.batchsz_study.baseline, resampling)
        return cls(
            results,
            params,
            resampling,
            tuple(loader_rows(results.loader.blocks, resampling)) if results.loader else (),
            {row.variant: row for row in strategy_rows(results, resampling)},
            {row.batchsz: row for row in sizes or ()},
        )

    def why_missing(self, part: str) -> str:
        """Say why a part of the results is not there."""
        return self.results.missing.get(part, f"results/{part} is missing; run `dvc repro` to make it")


@dataclass(frozen=True)
class Finding:
    """What was measured for a claim, what follows, and why."""

    measured: str
    verdict: Verdict
    reason: str


class UntestableError(Exception):
    """A claim cannot be tested with what is there; the message says why."""


def judged(
    measured: str, interval: Interval, holds: Literal["above", "below"], what: str, confidence: float
) -> Finding:
    """Decide by the side of 1 on which the interval of a ratio lies; `what` names the ratio."""
    side = interval.side_of(1)
    level = f"{100 * confidence:g}%"
    if side == "around":
        return Finding(measured, "undecided", f"the {level} interval of {what} includes 1")
    verdict: Verdict = "holds" if side == holds else "does not hold"
    return Finding(measured, verdict, f"the {level} interval of {what} lies {side} 1")
