"""A piece of advice, and how sure it is in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from parashot.questions.statistics import Interval, tied
from parashot.questions.text import listed, times


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


def how_sure(ratios: Mapping[Any, Interval], noun: str) -> str:
    """Say how far the fastest is from the others; `ratios` are of their times to its own."""
    if not ratios:
        return f"the only {noun} that was measured"
    if equals := tied(ratios):
        return f"the fastest median, but statistically tied with {listed(equals)}"
    name, ratio = min(ratios.items(), key=lambda item: item[1].value)
    return f"faster than every other {noun}: the next, {name}, takes {times(ratio)} its time"


def as_fast_as(others: Iterable[Any]) -> str:
    """Say that the choice ties with `others`."""
    return f"as fast as {listed(others)} as far as these blocks tell"
