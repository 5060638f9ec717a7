"""Whole training steps, the study's way and ours, timed in turn.

Both descend on squared error over the same pixels with the same first weights, inputs ready in memory, with
all cores or the whole card. A block is a step to warm up, then as many as fill half a second, clocked; then
memory is handed back, so that a side that waits holds little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.outcome import ratio_of
from benchmarks.peers.study_step import StudyStep
from benchmarks.turns import BLOCKS, Block, Turns, fitting, release_memory, seconds_of
from benchmarks.workload import Settings, Workload, device, serial_strategy
from parashot.hardware import usable_cores
from parashot.questions.statistics import Interval

STUDY = "study"

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

SMALL = Workload("conv4", 32, 1, 2)
"""Of quick runs."""

LEAST_SECONDS = 0.5
"""Length of a block's clocked steps."""


@dataclass(frozen=True)
class Comparison:
    """Seconds per step by side, item i of all of round i.

    `peaks` in bytes: above the idle process on a CPU, of tensors on a card.
    """

    seconds: Mapping[str, Sequence[float]]
    peaks: Mapping[str, float]

    def times_faster(self, name: str) -> Interval:
        """Seconds of the study over those of side `name`."""
        return ratio_of(self.seconds[STUDY], self.seconds[name])


def compare(
    workload: Workload, sides: Sequence[str], blocks: int = BLOCKS, memory: bool = False
) -> Comparison:
    """Time `sides`, of `OURS` and the study's, in turn; with `memory`, measure their peaks too.

    Raises `DeviceError` in one line where one fails.
    """
    with Turns({name: partial(make_block, name, workload) for name in sides}) as turns:
        seconds = turns.seconds(blocks)
        return Comparison(seconds, turns.peak_memory() if memory else {})


# --- sides ----------------------------------------------------------------------------------------------


def make_block(name: str, workload: Workload) -> Block:
    """Blocks of steps of side `name`: seconds per step."""
    torch.set_num_threads(usable_cores())
    return ClockedSteps(make_step(name, workload))


def make_step(name: str, workload: Workload) -> Callable[[], object]:
    """A training step of side `name` over one batch."""
    if name == STUDY:
        return StudyStep(workload.params(), workload.batch(), device())
    strategy, batch = serial_strategy(workload, OURS[name]), workload.batch()
    return lambda: strategy.step(batch)


class ClockedSteps:
    """A block of steps: each call clocks as many as fill half a second and returns seconds per step."""

    def __init__(self, step: Callable[[], object]) -> None:
        self.step = step
        self.steps = 0

    def __call__(self) -> float:
        clock = partial(seconds_of, self.step)
        self.step()
        self.steps = self.steps or fitting(clock, LEAST_SECONDS)
        seconds = clock(self.steps) / self.steps
        release_memory()
        torch.cuda.empty_cache()
        return seconds
