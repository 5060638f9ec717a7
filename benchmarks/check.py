"""The bounds that parashot holds itself to: measured, wanted, and whether each holds here.

A row holds when its median reaches the bound; its interval is printed beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks import ddp_efficiency, loader, scale, step
from benchmarks.outcome import RESAMPLING, Cell, Outcome, Table
from benchmarks.pipeline import help_seconds
from benchmarks.workload import Embedding, Workload
from parashot.errors import DeviceError
from parashot.parallel.abilities import precisions
from parashot.questions.statistics import Interval, median_interval

MB = 10**6

Raw = dict[str, Mapping[str, Sequence[float]]]
"""Seconds of every block by run and side: what the rows were made from."""

LARGE_SET = 640_000
BATCHSZ = 4
"""Of the steps: that of the recipe miniimagenet."""


@dataclass(frozen=True)
class Row:
    """One bound. `measured` is None where nothing could be measured; `excuse` says why, or why not asked."""

    what: str
    measured: Interval | None
    wanted: float
    least: bool = True  # at least `wanted`; else at most
    excuse: str = ""

    @property
    def reached(self) -> bool:
        """Whether the median reaches the bound."""
        if self.measured is None:
            return False
        value = self.measured.value
        return value >= self.wanted if self.least else value <= self.wanted

    @property
    def short(self) -> bool:
        """Whether the bound is asked for here and not reached."""
        return not self.reached and (self.measured is None or not self.excuse)

    @property
    def verdict(self) -> str:
        """As the table says it."""
        if self.reached:
            return "holds"
        if self.measured is None:
            return f"not measured: {self.excuse}"
        return f"not asked here: {self.excuse}" if self.excuse else "falls short"


@dataclass(frozen=True)
class StepBound:
    """How many times as fast as the study's way a step is to be."""

    embedding: Embedding
    size: int
    k_query: int
    half: float
    full: float
    memory: bool = False


STEPS = (
    StepBound("bottleneck", 224, 1, half=3, full=1.3),
    StepBound("bottleneck", 84, 15, half=7, full=3, memory=True),
    StepBound("conv4", 84, 15, half=3, full=1.6),
)
MEMORY, MEMORY_RECOMPUTED = 0.5, 0.25


def run(quick: bool) -> Outcome:
    """Measure all rows, one part after the other; `quick`: small shapes, to see that it runs."""
    raw: Raw = {}
    rows = [row for part in _PARTS for row in _part(part, quick, raw)]
    table = Table("Bounds", ("bound", "measured", "wanted", "verdict"), [_cells(row) for row in rows])
    short = [row.what for row in rows if row.short]
    return Outcome("check", [table], raw, {"quick": quick, "batchsz": BATCHSZ, "short": short})


def _cells(row: Row) -> list[Cell]:
    wanted = f"{'at least' if row.least else 'at most'} {row.wanted:g}"
    return [row.what, row.measured, wanted, row.verdict]


def _part(part: Callable[[bool, Raw], Iterator[Row]], quick: bool, raw: Raw) -> list[Row]:
    rows = list(part(quick, raw))
    for row in rows:  # the whole takes many minutes
        value = "–" if row.measured is None else f"{row.measured.value:.3g}"
        print(f"  {row.what}: {value}, {row.verdict}", file=sys.stderr)
    return rows


# --- parts --------------------------------------------------------------------------------------------


def _loader_rows(quick: bool, raw: Raw) -> Iterator[Row]:
    measured = loader.measure_compared(quick)
    raw["loader"] = measured.seconds
    found = measured.ratios()
    yield Row("packed loader, uint8, against the study's method at its best workers", found["study"], 50)
    yield Row("the same to a normalised float batch on the device", found["study_floats"], 10)
    yield Row("packed loader against a plain copy of the same bytes", found["copy"], 0.5)


def _scale_rows(quick: bool, raw: Raw) -> Iterator[Row]:
    images = 1_280 if quick else LARGE_SET
    what = f"packed loader at {images:,} images, warm"
    try:
        growth = scale.scale_ratio(images, quick)
    except DeviceError as error:
        yield Row(f"{what}, against 38,400", None, 0.7, excuse=str(error))
        return
    raw[what] = {"38,400": growth.base_seconds, f"{images:,}": growth.large_seconds}
    yield Row(f"{what}, against 38,400", growth.ratio, 0.7)
    added = growth.added_private_bytes / MB
    yield Row(f"{what}: more private memory (MB)", Interval(added, added, added), 200, least=False)


def _step_rows(quick: bool, raw: Raw) -> Iterator[Row]:
    able = precisions("cpu")
    best = able[-1]
    excuse = "" if has_matrix_units() else "this CPU has no bf16 matrix units"
    for bound in STEPS:
        work = Workload("conv4", 32, 1, 1) if quick else _workload(bound)
        sides = ["study", *able, *([f"{best}, recompute"] if bound.memory else [])]
        compared = step.compare(
            work.embedding, work.image_size, work.k_query, work.batchsz, sides, memory=bound.memory
        )
        what = f"step, {work.name}"
        raw[what] = compared.seconds
        if "bf16" in able:
            yield Row(f"{what}: bf16", compared.times_faster("bf16"), bound.half, excuse=excuse)
        yield Row(f"{what}: fp32", compared.times_faster("fp32"), bound.full)
        if bound.memory:
            for side, wanted in ((best, MEMORY), (f"{best}, recompute", MEMORY_RECOMPUTED)):
                share = compared.peaks[side] / compared.peaks["study"]
                peak = f"{what}: peak memory, {side}, of the study's"
                yield Row(peak, Interval(share, share, share), wanted, least=False)


def _ddp_rows(quick: bool, raw: Raw) -> Iterator[Row]:
    measured = ddp_efficiency.measure_reference(quick)
    raw["DDP"] = {"serial": measured.serial, "ddp": measured.ddp, "without exchange": measured.apart}
    what = f"DDP, 2 replicas against serial with 1 thread, {measured.workload.name}: efficiency"
    yield Row(what, measured.efficiency, 0.9)


def _pipeline_rows(quick: bool, raw: Raw) -> Iterator[Row]:
    seconds = help_seconds()
    raw["parashot --help"] = {"seconds": seconds}
    yield Row("parashot --help (s)", median_interval(seconds, RESAMPLING), 0.5, least=False)


_PARTS = (_loader_rows, _scale_rows, _step_rows, _ddp_rows, _pipeline_rows)


def _workload(bound: StepBound) -> Workload:
    return Workload(bound.embedding, bound.size, bound.k_query, BATCHSZ)


def has_matrix_units() -> bool:
    """Whether the CPU multiplies tiles of bf16 (Intel's AMX); AVX-512 alone multiplies rows."""
    import torch

    return bool(torch.cpu._is_amx_tile_supported())
