"""The bounds that parashot holds itself to: measured, wanted, and whether each holds here.

A row holds where its whole interval reaches the bound. *The study* is that of 2020.

A kernel that soon drops what it has read of files reads the large set from the disk again: then the row of
640,000 images says nothing of the loader.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from benchmarks import loader, step
from benchmarks.outcome import Outcome, Table, median_of, ratio_of, verdict
from benchmarks.pipeline import help_seconds
from benchmarks.replicas import efficiency, measure_replicas
from benchmarks.turns import rounds
from benchmarks.workload import Workload, device
from parashot.errors import DeviceError
from parashot.parallel.abilities import precisions
from parashot.questions.statistics import Interval

MB = 10**6

Raw = dict[str, Mapping[str, Sequence[float]]]
"""Seconds of every block by run and side: what the rows are made from."""

LARGE_SET = 640_000
BATCHSZ = 4
"""Of the steps: that of the recipe miniimagenet."""


@dataclass(frozen=True)
class Row:
    """One bound: `measured` is to be at least `wanted`, or at most.

    `measured` is None where nothing could be measured; `excuse` is the reason, or why the bound is not asked.
    """

    what: str
    measured: Interval | None
    wanted: float
    least: bool = True
    excuse: str = ""

    @property
    def verdict(self) -> str:
        """Verdict as the table shows it."""
        if self.measured is None:
            return f"not measured: {self.excuse}"
        found = verdict(self.measured, self.wanted, least=self.least)
        return f"{found}; not asked here: {self.excuse}" if self.excuse and found != "holds" else found

    @property
    def short(self) -> bool:
        """True where the bound is asked for here and not shown to hold."""
        return self.measured is None or self.verdict in ("falls short", "undecided")


@dataclass(frozen=True)
class StepBound:
    """How many times as fast as the study's way a step is to be, in bf16 (`half`) and fp32 (`full`)."""

    workload: Workload
    half: float
    full: float
    memory: bool = False


STEPS = (
    StepBound(Workload("bottleneck", 224, 1, BATCHSZ), half=3, full=1.3),
    StepBound(Workload("bottleneck", 84, 15, BATCHSZ), half=7, full=3, memory=True),
    StepBound(Workload("conv4", 84, 15, BATCHSZ), half=3, full=1.6),
)
MEMORY, MEMORY_RECOMPUTED = 0.5, 0.25
DDP_REFERENCE = Workload("bottleneck", 84, 15, 8)
"""The study gave each replica 7 to 15 episodes of a step; 4 are what a block has time for."""


def run(quick: bool) -> Outcome:
    """Measure all rows, one part after the other; `quick`: small shapes, to see that it runs."""
    raw: Raw = {}
    rows: list[Row] = []
    for part in _PARTS:
        for row in part(quick, raw):
            rows.append(row)  # the whole takes many minutes, so each is printed at once
            value = "–" if row.measured is None else f"{row.measured.value:.3g}"
            print(f"  {row.what}: {value}, {row.verdict}", file=sys.stderr)
    cells = [
        (row.what, row.measured, f"{'at least' if row.least else 'at most'} {row.wanted:g}", row.verdict)
        for row in rows
    ]
    table = Table("Bounds", ("bound", "measured", "wanted", "verdict"), cells)
    settings = {"quick": quick, "batchsz": BATCHSZ, "short": [row.what for row in rows if row.short]}
    return Outcome("check", [table], raw, settings)


def _loader_rows(quick: bool, raw: Raw) -> Iterator[Row]:
    raw["loader"] = loader.measure_compared(quick)
    found = loader.ratios(raw["loader"])
    yield Row("packed loader, uint8, against the study's method at its best workers", found["study"], 50)
    yield Row("the same to a normalised float batch on the device", found["study_floats"], 10)
    yield Row("packed loader against a plain copy of the same bytes", found["copy"], 0.5)


def _scale_rows(quick: bool, raw: Raw) -> Iterator[Row]:
    images = 1_280 if quick else LARGE_SET
    what = f"packed loader at {images:,} images, warm"
    try:
        raw[what], added_bytes = loader.measure_growth(images, quick)
    except DeviceError as error:
        yield Row(f"{what}, against 38,400", None, 0.7, excuse=str(error))
        return
    yield Row(f"{what}, against 38,400", ratio_of(*raw[what].values()), 0.7)
    added = Interval.around(added_bytes / MB, 0)
    yield Row(f"{what}: more private memory (MB)", added, 200, least=False)


def _step_rows(quick: bool, raw: Raw) -> Iterator[Row]:
    kind = device().type
    able = precisions(kind)
    best, recomputed = able[-1], f"{able[-1]}, recompute"
    # Intel's AMX multiplies tiles of bf16; AVX-512 alone multiplies rows
    units = kind == "cuda" or torch.cpu._is_amx_tile_supported()
    excuse = "" if units else "this CPU has no bf16 matrix units"
    for bound in STEPS:
        workload = step.SMALL if quick else bound.workload
        sides = [step.STUDY, *able, *([recomputed] if bound.memory else [])]
        compared = step.compare(workload, sides, memory=bound.memory)
        what = f"step, {workload.name}"
        raw[what] = compared.seconds
        if "bf16" in able:
            yield Row(f"{what}: bf16", compared.times_faster("bf16"), bound.half, excuse=excuse)
        yield Row(f"{what}: fp32", compared.times_faster("fp32"), bound.full)
        if bound.memory:
            for side, wanted in ((best, MEMORY), (recomputed, MEMORY_RECOMPUTED)):
                share = Interval.around(compared.peaks[side] / compared.peaks[step.STUDY], 0)
                yield Row(f"{what}: peak memory, {side}, of the study's", share, wanted, least=False)


def _ddp_rows(quick: bool, raw: Raw) -> Iterator[Row]:
    workload = step.SMALL if quick else DDP_REFERENCE
    raw["DDP"] = measure_replicas(workload, rounds(quick))
    what = f"DDP, 2 replicas against serial with 1 thread, {workload.name}: efficiency"
    yield Row(what, efficiency(raw["DDP"]), 0.9)


def _pipeline_rows(quick: bool, raw: Raw) -> Iterator[Row]:
    seconds = help_seconds()
    raw["parashot --help"] = {"seconds": seconds}
    yield Row("parashot --help (s)", median_of(seconds), 0.5, least=False)


_PARTS: Sequence[Callable[[bool, Raw], Iterator[Row]]]
_PARTS = (_loader_rows, _scale_rows, _step_rows, _ddp_rows, _pipeline_rows)
