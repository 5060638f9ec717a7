"""Advice, and words for how sure it is."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from parashot.parsing import Value
from parashot.questions.statistics import Interval, Ranking, Rounds, paired_ratio, together
from parashot.questions.text import listed, times

T = TypeVar("T")

MORE_BLOCKS = "more blocks (parallel.bench.blocks)"


@dataclass(frozen=True)
class Advice:
    """One choice. Where nothing could be measured `choice` is empty and `sure` says what is missing."""

    topic: str
    choice: str
    phrase: str  # the choice as a sentence of the study's answer; empty where it is no part of that
    buys: str  # what it gains over what people do by default
    sure: str
    decided: bool  # whether the intervals separate it from every other choice
    settings: Mapping[str, Value] = field(default_factory=dict)  # keys of params.yaml that make the choice
    changes: str = ""  # what would change it, by what was measured


@dataclass(frozen=True)
class Choice(Generic[T]):
    """A setting taken out of those that were compared.

    decided: it is shown to be as good as the best (`Ranking.margin`), and no simpler one may be.
    """

    choice: T
    ranking: Ranking[T]
    decided: bool

    @classmethod
    def of(
        cls,
        ranking: Ranking[T],
        usual: T,
        simplest: Sequence[T] = (),
        better: Container[T] | None = None,
    ) -> Choice[T]:
        """Take the simplest that may be as good as the best, if it is shown to be.

        While one that is simpler may still be as good nothing is decided, so that more blocks never turn a
        decision. Then take one that is shown to be better than the usual setting: the simplest of those that
        were measured within the margin of the best, or the best. If none is, take the usual one: no luck of a
        measurement turns a user away from what people do by default. Where that was not measured, or is shown
        to be slower, take the simplest near the best.

        simplest: settings in the order of preference; others come after them, the best first.
        better: those shown to be better than the usual one; None: by the ranking.
        """
        best_first = sorted(ranking.behind, key=lambda each: ranking.behind[each].value)
        order = (*simplest, *best_first)
        first = next(each for each in order if each in ranking.possible)
        if first in ranking.as_good:
            return cls(first, ranking, decided=True)
        if better is None:
            better = ranking.better.get(usual, ())
        shown = [each for each in best_first if each in better and each in ranking.possible]
        enough, behind = ranking.even + ranking.margin, ranking.behind
        near = [each for each in order if each in behind and behind[each].value <= enough]
        simple = [each for each in near if each in shown]
        fallback = usual if usual in ranking.possible else near[0]
        return cls((*simple, *shown, fallback)[0], ranking, decided=False)

    def gain(self, usual: T, seconds: Mapping[T, Rounds], confidence: float) -> Interval:
        """How many times as fast as the usual setting it is, which may be none of those that were compared.

        Its interval holds together with those of all other settings: the same blocks have chosen it.
        """
        others = len(self.ranking.behind.keys() - {usual})
        return paired_ratio(seconds[usual], seconds[self.choice], together(confidence, others))

    @property
    def others(self) -> list[T]:
        """Further settings that may be as good as the best."""
        return [each for each in self.ranking.possible if each != self.choice]

    @property
    def doubt(self) -> str:
        """Say which others may be as good; empty where it is decided."""
        return "" if self.decided else f"undecided: {listed(self.others)} may be as good"

    @property
    def gains_nothing(self) -> str:
        """Say that what people do by default is advised."""
        return f"nothing was shown to be more than {100 * self.ranking.margin:g}% faster"

    def open_until(self, more: str) -> str:
        """Say what would decide it; empty where it is decided."""
        return "" if self.decided else f"{more} may show {listed(self.others)} to be as good or better"

    @property
    def next_best(self) -> tuple[T, Interval]:
        """The best of those left out, and how far it is behind."""
        left = {each: behind for each, behind in self.ranking.behind.items() if each != self.choice}
        return min(left.items(), key=lambda item: item[1].value)

    def how_sure(self, noun: str) -> str:
        """Say how far the choice, taken by its time, is from the others."""
        behind, margin = self.ranking.behind, f"{100 * self.ranking.margin:g}%"
        if len(behind) == 1:
            return f"the only {noun} that was measured"
        if not self.decided:
            return self.doubt
        if not self.others and behind[self.choice].high <= 1:
            name, slower = self.next_best
            return f"faster than every other {noun}: the next, {name}, takes {times(slower)} its time"
        best = f"takes {times(behind[self.choice])} the time of the best other {noun}"
        return best if behind[self.choice].high < 1 else f"{best}: at most {margin} more"
