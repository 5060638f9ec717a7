"""The training loop: fetch, step, note. It knows no task or strategy by name, and no tracking."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import distributed as dist

from parashot.errors import NonfiniteError
from parashot.parallel.context import Context
from parashot.parallel.strategy import Strategy
from parashot.task import Batch, Plan

log = logging.getLogger(__name__)


@dataclass
class Trace:
    """Times of each step on this rank, its loss and its accuracy (the task's metric) over all ranks.

    step_seconds: wall time of a step, validations left out. data_seconds: of it, of waiting for the batch.
    nonfinite: steps, counted from 1, that met NaN or infinity and were left out.
    """

    step_seconds: list[float] = field(default_factory=list)
    data_seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    nonfinite: list[int] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """All steps together."""
        return sum(self.step_seconds)


def train_steps(
    strategy: Strategy,
    batches: Iterator[Batch],
    plan: Plan,
    *,
    name: str = "",
    pauses: Callable[[int], bool] = lambda done: False,
    on_pause: Callable[[int, Trace], bool] = lambda done, trace: True,
    trace: Trace | None = None,
) -> Trace:
    """Train over all of `batches`, which begin where `trace`, if there is one, leaves off.

    After so many steps as `pauses` holds for, and after the last, the clock stops and `on_pause(steps done,
    trace so far)` is called, which may validate, save and report; it returns False to end the training.
    Losses stay on the device until a pause: nothing waits for it within a step. name: begins messages.

    Raises `NonfiniteError`, on every rank and before `on_pause` is called, where a step since the last pause
    had a loss or a gradient with NaN or infinity, unless such steps are skipped.
    """
    trace, pending = trace or Trace(), []
    learning_rate = strategy.task.learning_rates(plan.steps)
    strategy.network.train()
    synchronise(strategy.context)
    before = time.perf_counter()
    for done, batch in enumerate(batches, start=len(trace.losses) + 1):
        arrived = time.perf_counter()
        if learning_rate is not None:
            strategy.set_learning_rate(learning_rate(done - 1))
        pending.append(strategy.step(batch))
        pausing = pauses(done) or done == plan.steps
        if pausing:
            synchronise(strategy.context)
        after = time.perf_counter()
        trace.data_seconds.append(arrived - before)
        trace.step_seconds.append(after - before)
        if pausing:
            broken = _collect(trace, pending, plan, strategy.context)
            pending = []
            if broken:
                _answer_nonfinite(broken, trace, plan, strategy, name)
            if not on_pause(done, trace):
                break
            synchronise(strategy.context)
            after = time.perf_counter()
        before = after
    return trace


def synchronise(context: Context) -> None:
    """Wait until the device has done all it was given."""
    if context.device.type == "cuda":
        torch.cuda.synchronize(context.device)


def _collect(trace: Trace, pending: list[torch.Tensor], plan: Plan, context: Context) -> list[int]:
    """Add up the sums of pending steps over all ranks and turn them into means.

    Returns the steps among them, counted from 1, that met NaN or infinity.
    """
    sums = torch.stack(pending).double()
    if context.world_size > 1:
        dist.all_reduce(sums, group=context.group)
    first = len(trace.losses)
    totals = torch.tensor([plan.total(first + offset) for offset in range(len(pending))], dtype=torch.float64)
    means = sums.cpu() / totals[:, None]
    trace.losses.extend(means[:, 0].tolist())
    trace.accuracies.extend(means[:, 1].tolist())
    broken = (means[:, 2] != 0) | ~torch.isfinite(means[:, 0])
    steps: list[int] = (first + 1 + broken.nonzero()[:, 0]).tolist()
    return steps


def _answer_nonfinite(steps: list[int], trace: Trace, plan: Plan, strategy: Strategy, name: str) -> None:
    """End a training that has met NaN or infinity, or count the steps that it has left out."""
    first = steps[0]
    begin = (first - 1) * plan.batchsz
    read = f"{strategy.task.unit}s {begin} to {begin + plan.total(first - 1) - 1}"
    met = f"{name}: " if name else ""
    met += f"NaN or infinity in step {first} of {plan.steps} ({read}), loss {trace.losses[first - 1]:g}"
    if not strategy.options.skip_nonfinite:
        raise NonfiniteError(f"{met}; {strategy.task.remedy}")
    trace.nonfinite.extend(steps)
    if strategy.context.is_main:
        log.warning("%s; skipped, as %d of %d steps so far", met, len(trace.nonfinite), len(trace.losses))
