"""Whole training steps: the study's way against ours, one switch at a time, and against the roofline.

Both descend on squared error over the same pixels with the same first weights, inputs ready in memory, with
all cores or the whole card. A block is a step to warm up, then as many as fill half a second, clocked; then
memory is handed back, so that a side that waits holds little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import torch

from benchmarks import roofline
from benchmarks.outcome import Cell, Outcome, Table, median_of, ratio_of
from benchmarks.peers.study_step import StudyStep, Switches
from benchmarks.replicas import REPLICAS, Replicas, measure_replicas
from benchmarks.turns import BLOCKS, Block, Side, Turns, fitting, release_memory, rounds, seconds_of
from benchmarks.workload import Settings, Workload, device, serial_strategy
from parashot.hardware import usable_cores
from parashot.questions.statistics import Interval

STUDY: Mapping[str, Switches] = {
    "study": Switches(),
    "one pass": Switches(True),
    "split": Switches(True, "split"),
    "channels last": Switches(True, "split", True),
    "kept memory": Switches(True, "split", True, True),
    "fused Adam": Switches(True, "split", True, True, True),
}
"""The study's way, then one more switch turned in each."""

_MORE: Mapping[str, Settings] = {
    "": {},
    ", recompute": {"train.recompute": True},
    ", ghost norm": {"model.norm_episodes": 1},
}
OURS: Mapping[str, Settings] = {
    f"{precision}{name}": {"train.precision": precision, **settings}
    for precision in ("fp32", "bf16")
    for name, settings in _MORE.items()
}
"""Keys of params.yaml; images arrive as uint8 and are normalised within the step."""

_MILESTONES = ("study", "fp32", "bf16", "bf16, recompute")
_LADDER = (*STUDY, *_MILESTONES[1:])

_ALL: Mapping[Workload, Sequence[str]] = {
    Workload("conv4", 84, 1, 4): _LADDER,
    Workload("conv4", 84, 15, 2): _LADDER,
    Workload("bottleneck", 224, 1, 1): _LADDER,
    Workload("bottleneck", 84, 1, 4): _LADDER,
    Workload("bottleneck", 84, 15, 1): _LADDER,
    Workload("resnet12", 84, 1, 2): _MILESTONES,
    Workload("resnet12", 84, 15, 1): _MILESTONES,
}
"""batchsz is what two cores do in a second or a few: with 15 queries an episode is 80 images."""

SMALL = Workload("conv4", 32, 1, 2)
"""Of quick runs."""

DDP_REFERENCE = Workload("bottleneck", 84, 15, 8)
"""The study gave each replica 7 to 15 episodes of a step; 4 are what a block has time for."""

_DDP: Mapping[Workload, int] = {
    Workload("conv4", 32, 5, 8): 10,
    Workload("conv4", 84, 1, 4): 4,
    Workload("bottleneck", 84, 1, 4): 1,
    Workload("bottleneck", 84, 15, 4): 1,
    DDP_REFERENCE: 1,
    Workload("bottleneck", 224, 1, 2): 1,
    Workload("resnet12", 84, 1, 4): 1,
}
"""Steps per block, so that a block takes half a second or more."""

LEAST_SECONDS = 0.5
"""Length of a block's clocked steps."""


@dataclass(frozen=True)
class Comparison:
    """Seconds per step of one workload by side, item i of all of round i.

    `peaks` in bytes: above the idle process on a CPU, of tensors on a card.
    """

    workload: Workload
    seconds: Mapping[str, Sequence[float]]
    peaks: Mapping[str, float]

    def times_faster(self, name: str) -> Interval:
        """Seconds of the study over those of side `name`."""
        return ratio_of(self.seconds["study"], self.seconds[name])


def run(quick: bool) -> Outcome:
    """Measure all workloads with their sides and rooflines, and DDP; `quick`: small shapes, two blocks."""
    blocks = rounds(quick)
    workloads = {SMALL: _MILESTONES} if quick else _ALL
    compared = [compare(workload, sides, blocks, memory=True) for workload, sides in workloads.items()]
    achieved = {each.workload: each.seconds for each in compared}
    replicas = [measure_replicas(*each, blocks) for each in ({SMALL: 1} if quick else _DDP).items()]
    return Outcome(
        "step",
        [*map(table, compared), roofline.shares(achieved, make_step, quick), _ddp_table(replicas)],
        raw={"steps": [*map(asdict, compared)], "ddp": [*map(asdict, replicas)]},
        settings={
            "blocks": blocks,
            "least_seconds_per_block": LEAST_SECONDS,
            "threads": usable_cores(),
            "device": device().type,
        },
    )


def compare(
    workload: Workload, sides: Sequence[str], blocks: int = BLOCKS, memory: bool = False
) -> Comparison:
    """Time `sides`, of `STUDY` and `OURS`, in turn; with `memory`, measure their peaks too.

    Raises `DeviceError` in one line where one fails.
    """
    with Turns([Side(name, make_block, {"name": name, "workload": workload}) for name in sides]) as turns:
        seconds = turns.seconds(blocks)
        return Comparison(workload, seconds, turns.peak_memory() if memory else {})


# --- sides ----------------------------------------------------------------------------------------------


def make_block(name: str, workload: Workload) -> Block:
    """Blocks of steps of side `name`: seconds per step."""
    torch.set_num_threads(usable_cores())
    return ClockedSteps(make_step(name, workload))


def make_step(name: str, workload: Workload) -> Callable[[], object]:
    """A training step of side `name` over one batch."""
    if name in STUDY:
        return StudyStep(workload.params(), workload.batch(), device(), STUDY[name])
    strategy, batch = serial_strategy(workload, OURS[name]), workload.batch()
    return lambda: strategy.step(batch)


class ClockedSteps:
    """A block of steps: each call clocks as many as fill half a second and returns seconds per step."""

    def __init__(self, step: Callable[[], object]) -> None:
        self.step = step
        self.steps = 0

    def __call__(self) -> float:
        self.step()
        self.steps = self.steps or fitting(self._seconds, LEAST_SECONDS)
        seconds = self._seconds(self.steps) / self.steps
        release_memory()
        torch.cuda.empty_cache()
        return seconds

    def _seconds(self, steps: int) -> float:
        wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
        return seconds_of(self.step, steps, wait)


# --- tables ---------------------------------------------------------------------------------------------


def table(comparison: Comparison) -> Table:
    """A row for each side of a workload."""
    workload, peaks = comparison.workload, comparison.peaks
    rows: list[list[Cell]] = []
    for name, series in comparison.seconds.items():
        seconds = median_of(series)
        rates = (workload.batchsz / seconds.value, workload.images / seconds.value)
        memory = (peaks[name] / 2**20, peaks[name] / peaks["study"])
        rows.append([name, seconds, *rates, comparison.times_faster(name), *memory])
    columns = ["way", "seconds per step", "episodes/s", "images/s", "times faster than the study"]
    columns += ["peak memory (MiB)", "of the study's"]
    return Table(f"Training step: {workload.name}", columns, rows)


def _ddp_table(measured: Sequence[Replicas]) -> Table:
    ddp = f"DDP, {REPLICAS} × 1 thread (s)"
    columns = ("step", "serial, 1 thread (s)", ddp, "efficiency", "without exchange")
    rows = [
        (each.workload.name, median_of(each.serial), median_of(each.ddp), each.efficiency, each.ceiling)
        for each in measured
    ]
    return Table("DDP against serial, fp32 on the CPU", columns, rows)
