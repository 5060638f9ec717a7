"""The sides of a training step, each as it runs in its own process: the study's, ours, and those between.

Both descend on squared error over the same pixels with the same first weights, inputs ready in memory, with
all cores or the whole card.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks.peers.study_step import StudyStep, Switches
from benchmarks.turns import Block, release_memory
from benchmarks.workload import Workload
from parashot.hardware import usable_cores
from parashot.parallel.allocator import keep_freed_memory
from parashot.parallel.context import Context, Placement
from parashot.parallel.strategy import Strategy
from parashot.train.assemble import new_strategy

STUDY: dict[str, Switches] = {
    "study": Switches(),
    "one pass": Switches(True),
    "split": Switches(True, "split"),
    "channels last": Switches(True, "split", True),
    "kept memory": Switches(True, "split", True, True),
    "fused Adam": Switches(True, "split", True, True, True),
}
"""The study's way, then one more switch turned in each."""

OURS: dict[str, Mapping[str, Any]] = {
    "fp32": {"precision": "fp32"},
    "fp32, recompute": {"precision": "fp32", "recompute": True},
    "bf16": {"precision": "bf16"},
    "bf16, compile": {"precision": "bf16", "compile": "default"},
    "bf16, recompute": {"precision": "bf16", "recompute": True},
}
"""What `train` says; images arrive as uint8 and are normalised within the step."""

UNSURE = frozenset({"bf16, compile"})
"""Sides that not every machine can run: compiling asks for a compiler."""

LEAST_SECONDS = 0.5
"""What a block's clocked steps fill."""


def make_block(name: str, workload: Workload) -> Block:
    """Blocks of steps of side `name`: seconds per step."""
    torch.set_num_threads(usable_cores())
    return ClockedSteps(make_step(name, workload))


def make_peak_on_card(name: str, workload: Workload) -> Block:
    """Steps of side `name`: not seconds, but the most bytes that tensors held on the card."""
    step = make_step(name, workload)

    def peak() -> float:
        torch.cuda.reset_peak_memory_stats()
        step()
        return float(torch.cuda.max_memory_allocated())

    return peak


def make_step(name: str, workload: Workload) -> Callable[[], object]:
    """A training step of side `name` over one batch."""
    batch = workload.batch()
    if name in STUDY:
        return StudyStep(workload.params(), batch, device(), STUDY[name])
    strategy = our_strategy(workload, **OURS[name])
    return lambda: strategy.step(batch)


def our_strategy(workload: Workload, **train: Any) -> Strategy:
    """Parashot's own strategy of one replica, in a process that keeps freed memory as trainings do."""
    keep_freed_memory()
    placement = Placement(device().type, 1, usable_cores(), usable_cores())
    return new_strategy("serial", workload.params(**train), Context(0, 1, 0, 1, placement))


class ClockedSteps:
    """A block: a step to warm up, then as many as fill half a second, clocked; then memory is handed back.

    So a side that waits holds little, and clocked steps find memory as those in the middle of a training do.
    """

    def __init__(self, step: Callable[[], object]) -> None:
        self.step = step
        self.steps = 0

    def __call__(self) -> float:
        """Seconds per step."""
        self.step()
        if not self.steps:
            self.steps = max(1, math.ceil(LEAST_SECONDS / self._seconds(1)))
        seconds = self._seconds(self.steps) / self.steps
        release_memory()
        torch.cuda.empty_cache()
        return seconds

    def _seconds(self, steps: int) -> float:
        _synchronise()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        _synchronise()
        return time.perf_counter() - begin


def device() -> torch.device:
    """Where the sides run."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
