"""Ways to compute a step: those that were tried before training, and the one that was chosen."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from parashot.questions.statistics import Interval, Rounds, by_round, median_of_rounds, paired_ratio
from parashot.questions.step.records import TuneBlock
from parashot.train.records import Choices


@dataclass(frozen=True)
class StepRow(Choices):
    """One way to compute a step of one replica; `speedup` is over the usual way, or the slowest."""

    chosen: bool
    blocks: int
    seconds_per_step: Interval
    speedup: Interval


def step_rows(blocks: Iterable[TuneBlock], chosen: Choices, confidence: float) -> list[StepRow]:
    """Return one row per way, the slowest first."""
    seconds = seconds_by_way(blocks)
    medians = {way: median_of_rounds(own, confidence) for way, own in seconds.items()}
    order = sorted(medians, key=lambda way: -medians[way].value)
    base = base_way(chosen, seconds) if seconds else chosen
    return [
        StepRow(
            **asdict(way),
            chosen=way == chosen,
            blocks=len(seconds[way]),
            seconds_per_step=medians[way],
            speedup=paired_ratio(seconds[base], seconds[way], confidence),
        )
        for way in order
    ]


def usual_way(taken: Choices, measured: Container[Choices]) -> Choices:
    """What people do by default: pairs joined as in the paper, where that is open, in fp32, not compiled."""
    concat = Choices("concat", "fp32", "none")
    return concat if concat in measured else replace(concat, pairing=taken.pairing)


def base_way(taken: Choices, seconds: Mapping[Choices, Rounds]) -> Choices:
    """The usual way, or the slowest where params leave that out."""
    usual = usual_way(taken, seconds)
    return usual if usual in seconds else max(seconds, key=lambda way: median(seconds[way].values()))


def seconds_by_way(blocks: Iterable[TuneBlock]) -> dict[Choices, dict[Any, float]]:
    """Seconds of a step of each way, by launch and round."""
    return by_round(
        (Choices(each.pairing, each.precision, each.compile), (each.launch, each.round), each.seconds)
        for each in blocks
    )
