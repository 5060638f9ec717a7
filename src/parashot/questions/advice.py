"""Advice, and words for how sure it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from parashot.questions.statistics import Interval, tied
from parashot.questions.text import listed, times

T = TypeVar("T")


@dataclass(frozen=True)
class Advice:
    """One choice. Where nothing could be measured `choice` is empty and `sure` says what is missing."""

    topic: str
    choice: str
    setting: str  # for `dvc exp run -S`; empty where no parameter makes the choice
    phrase: str  # the choice as a part of the study's answer; empty where it is no part of that
    buys: str
    sure: str
    decided: bool  # whether the intervals separate it from every other choice


@dataclass(frozen=True)
class Choice(Generic[T]):
    """A setting taken out of those that were timed, with the ratios of the others' times to the fastest."""

    choice: T
    fastest: T
    ratios: Mapping[T, Interval]

    @property
    def others(self) -> list[T]:
        """Settings that tie with the choice; it is decided where there is none."""
        return [each for each in (self.fastest, *tied(self.ratios)) if each != self.choice]

    @property
    def next_best(self) -> tuple[T, Interval]:
        """The fastest of those left out, and the ratio of its time to the fastest."""
        return min(self.ratios.items(), key=lambda item: item[1].value)

    def how_sure(self, noun: str, note: str = "") -> str:
        """Say how far the choice is from the others; `note` goes with a tie."""
        if self.others:
            return f"as fast as {listed(self.others)} as far as these blocks tell{note}"
        if not self.ratios:
            return f"the only {noun} that was measured"
        name, ratio = self.next_best
        return f"faster than every other {noun}: the next, {name}, takes {times(ratio)} its time"
