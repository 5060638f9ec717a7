"""The training loop: fetch, step, note. It knows no strategy by name and no tracking."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import distributed as dist

from parashot.data.batches import Batch, Plan
from parashot.parallel.context import Context
from parashot.parallel.strategy import Strategy


@dataclass
class StepTimes:
    """Wall time of each step and, within it, of waiting for the batch; validations are in neither."""

    step_seconds: list[float] = field(default_factory=list)
    data_seconds: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """All steps together."""
        return sum(self.step_seconds)


@dataclass
class Trace:
    """What a training leaves behind: times, and loss and accuracy of each step over all ranks."""

    times: StepTimes = field(default_factory=StepTimes)
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)


def train_steps(
    strategy: Strategy,
    batches: Iterator[Batch],
    plan: Plan,
    *,
    learning_rate: Callable[[int], float],
    pauses: Callable[[int], bool],
    on_pause: Callable[[int, Trace], bool],
    trace: Trace | None = None,
) -> Trace:
    """Train over all of `batches`, which begin where `trace`, if there is one, leaves off.

    After so many steps as `pauses` holds for, and after the last, the clock stops and `on_pause` is called.
    `on_pause(steps done, trace so far)` may validate, save and report; it returns False to end the training.
    Losses stay on the device, without their graphs, until a pause: nothing waits for it within a step.
    """
    trace, pending = trace or Trace(), []
    strategy.network.train()
    synchronise(strategy.context)
    before = time.perf_counter()
    for done, batch in enumerate(batches, start=len(trace.losses) + 1):
        arrived = time.perf_counter()
        strategy.set_learning_rate(learning_rate(done - 1))
        pending.append(strategy.step(batch))
        pausing = pauses(done) or done == plan.steps
        if pausing:
            synchronise(strategy.context)
        after = time.perf_counter()
        trace.times.data_seconds.append(arrived - before)
        trace.times.step_seconds.append(after - before)
        if pausing:
            _settle(trace, pending, plan, strategy.context)
            pending = []
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


def _settle(trace: Trace, pending: list[torch.Tensor], plan: Plan, context: Context) -> None:
    """Add up the sums of pending steps over all ranks and turn them into means."""
    sums = torch.stack(pending).double()
    if context.ranks > 1:
        dist.all_reduce(sums, group=context.group)
    first = len(trace.losses)
    totals = torch.tensor([plan.total(first + offset) for offset in range(len(pending))], dtype=torch.float64)
    means = sums.cpu() / totals[:, None]
    trace.losses.extend(means[:, 0].tolist())
    trace.accuracies.extend(means[:, 1].tolist())
