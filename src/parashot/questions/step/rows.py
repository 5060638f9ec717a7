"""Ways to compute a step: those that were tried before training, and the one that was chosen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parashot.questions.statistics import Interval, Resampling, median_interval, paired, ratio_interval
from parashot.questions.step.records import TuneBlock
from parashot.records import read_result, read_rows
from parashot.train.records import Choices


@dataclass(frozen=True)
class TuneResults:
    """`results/choices.json` and `results/tune`; no blocks where params left nothing open."""

    choices: Choices
    blocks: tuple[TuneBlock, ...]


def load_tune(results: Path) -> TuneResults:
    """Read both from the folder `results`. Raises `RecordError`."""
    choices = read_result(Choices, results / "choices.json")
    return TuneResults(choices, tuple(read_rows(TuneBlock, results / "tune/blocks.csv")))


@dataclass(frozen=True)
class StepRow:
    """One way to compute a step of one replica; `speedup` is over the slowest way."""

    pairing: str
    precision: str
    compile: str
    chosen: bool
    blocks: int
    seconds_per_step: Interval
    speedup: Interval


def step_rows(blocks: Sequence[TuneBlock], chosen: Choices, resampling: Resampling) -> list[StepRow]:
    """Return one row per way, the slowest first."""
    seconds = seconds_by_way(blocks)
    medians = {way: median_interval(list(times.values()), resampling) for way, times in seconds.items()}
    order = sorted(medians, key=lambda way: -medians[way].value)
    return [
        StepRow(
            pairing=way.pairing,
            precision=way.precision,
            compile=way.compile,
            chosen=way == chosen,
            blocks=len(seconds[way]),
            seconds_per_step=medians[way],
            speedup=ratio_interval(*paired(seconds[order[0]], seconds[way]), resampling),
        )
        for way in order
    ]


def seconds_by_way(blocks: Iterable[TuneBlock]) -> dict[Choices, dict[int, float]]:
    """Seconds of a step of each way, by round."""
    seconds: dict[Choices, dict[int, float]] = {}
    for block in sorted(blocks, key=lambda each: each.round):
        way = Choices(block.pairing, block.precision, block.compile)
        seconds.setdefault(way, {})[block.round] = block.seconds
    return seconds
