"""Whole training steps: the study's way against ours, one switch at a time, and against the roofline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache

from benchmarks import ddp_efficiency, step_roofline
from benchmarks.outcome import RESAMPLING, Cell, Outcome, Table
from benchmarks.step_sides import (
    LEAST_SECONDS,
    STUDY,
    UNSURE,
    device,
    make_block,
    make_peak_on_card,
)
from benchmarks.turns import BLOCKS, Block, Side, Turns
from benchmarks.workload import Embedding, Workload
from parashot.errors import DeviceError, one_line
from parashot.hardware import usable_cores
from parashot.questions.statistics import Interval, median_interval, ratio_interval

_LADDER = (*STUDY, "fp32", "bf16", "bf16, recompute")
_COMPILED = (*_LADDER, "bf16, compile")  # compiling takes a minute or more on two cores
_MILESTONES = ("study", "fp32", "bf16", "bf16, recompute")

_ALL: Mapping[Workload, Sequence[str]] = {
    Workload("conv4", 84, 1, 4): _LADDER,
    Workload("conv4", 84, 15, 2): _COMPILED,
    Workload("bottleneck", 224, 1, 1): _LADDER,
    Workload("bottleneck", 84, 1, 4): _LADDER,
    Workload("bottleneck", 84, 15, 1): _COMPILED,
    Workload("resnet12", 84, 1, 2): _MILESTONES,
    Workload("resnet12", 84, 15, 1): _MILESTONES,
}
"""batchsz is what two cores do in a second or a few: with 15 queries an episode is 80 images."""

_SMALL = Workload("conv4", 32, 1, 1)
_QUICK: Mapping[Workload, Sequence[str]] = {_SMALL: _LADDER}
_QUICK_BLOCKS = 2

_COLUMNS = (
    "way",
    "seconds per step",
    "episodes/s",
    "images/s",
    "times faster than the study",
    "peak memory (MiB)",
    "of the study's",
)
_REASON_LENGTH = 100


@dataclass(frozen=True)
class Comparison:
    """Steps of one workload by side, item i of all from the same round.

    `seconds` per step; `peaks` in bytes: above the idle process on a CPU, of tensors on a card; `failures`
    say in a line why a side is not among them.
    """

    workload: Workload
    seconds: Mapping[str, Sequence[float]]
    peaks: Mapping[str, int]
    failures: Mapping[str, str]

    def times_faster(self, side: str, than: str = "study") -> Interval:
        """Seconds of `than` over those of `side`. Raises `DeviceError` where one of them could not run."""
        for name in (side, than):
            if name in self.failures:
                raise DeviceError(f"benchmark side {name!r} cannot run here: {self.failures[name]}")
        return ratio_interval(self.seconds[than], self.seconds[side], RESAMPLING)


def run(quick: bool) -> Outcome:
    """All workloads with their sides and rooflines, and DDP; `quick`: small shapes, two blocks."""
    blocks = _QUICK_BLOCKS if quick else BLOCKS
    workloads = _QUICK if quick else _ALL
    compared = [_compare(workload, sides, blocks, memory=True) for workload, sides in workloads.items()]
    achieved = {each.workload: each.seconds for each in compared}
    efficiencies = ddp_efficiency.measure_all(quick)
    return Outcome(
        "step",
        [*map(_table, compared), *step_roofline.tables(achieved), ddp_efficiency.table(efficiencies)],
        raw={
            "steps": [asdict(each) for each in compared],
            "ddp": [asdict(each) for each in efficiencies],
        },
        settings={
            "blocks": blocks,
            "least_seconds_per_block": LEAST_SECONDS,
            "threads": usable_cores(),
            "device": device().type,
        },
    )


def compare(
    embedding: Embedding,
    size: int,
    k_query: int,
    batchsz: int,
    sides: Sequence[str],
    blocks: int = BLOCKS,
    memory: bool = False,
) -> Comparison:
    """Time `sides`, of `step_sides.STUDY` and `OURS`, in turn; with `memory`, find their peaks too.

    A side that this machine cannot run is among the failures. Raises `DeviceError` in one line where one
    fails that runs everywhere.
    """
    return _compare(Workload(embedding, size, k_query, batchsz), sides, blocks, memory)


def _compare(workload: Workload, sides: Sequence[str], blocks: int, memory: bool) -> Comparison:
    failures = {name: reason for name in sides if (reason := _obstacle(name))}
    able = [name for name in sides if name not in failures]
    peaks: Mapping[str, int] = {}
    with Turns(_sides(able, workload)) as turns:
        seconds = turns.seconds(blocks)
        if memory and device().type == "cpu":
            peaks = turns.peak_memory()
    if memory and device().type == "cuda":
        peaks = _peaks_on_card(able, workload)
    return Comparison(workload, seconds, peaks, failures)


@cache
def _obstacle(name: str) -> str:
    """Why a side cannot run here, or an empty text. It is tried alone, so that no other ends with it."""
    if name not in UNSURE:
        return ""
    try:
        with Turns(_sides([name], _SMALL)) as turns:
            turns.seconds(1, warmups=0)
    except DeviceError as error:
        return one_line(error)[:_REASON_LENGTH]
    return ""


def _peaks_on_card(names: Sequence[str], workload: Workload) -> dict[str, int]:
    with Turns(_sides(names, workload, make_peak_on_card)) as turns:
        return {name: int(peaks[0]) for name, peaks in turns.seconds(1).items()}


def _sides(names: Sequence[str], workload: Workload, make: Callable[..., Block] = make_block) -> list[Side]:
    return [Side(name, make, {"name": name, "workload": workload}) for name in names]


def _table(comparison: Comparison) -> Table:
    rows = [_row(comparison, name) for name in comparison.seconds]
    rows += [_failed_row(name, reason) for name, reason in comparison.failures.items()]
    return Table(f"Training step: {comparison.workload.name}", _COLUMNS, rows)


def _row(comparison: Comparison, name: str) -> list[Cell]:
    workload, peaks = comparison.workload, comparison.peaks
    seconds = median_interval(comparison.seconds[name], RESAMPLING)
    return [
        name,
        seconds,
        workload.batchsz / seconds.value,
        workload.images / seconds.value,
        comparison.times_faster(name),
        peaks[name] / 2**20,
        peaks[name] / peaks["study"],
    ]


def _failed_row(name: str, reason: str) -> list[Cell]:
    return [name, reason, *[None] * (len(_COLUMNS) - 2)]
