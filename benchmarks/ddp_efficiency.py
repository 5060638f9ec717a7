"""What two replicas make of two cores: DDP with a thread each against serial with one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from benchmarks.outcome import RESAMPLING, Table
from benchmarks.turns import BLOCKS
from benchmarks.workload import Workload
from parashot.parallel.context import Context, Placement, alone, control_group, wait_for_all
from parashot.parallel.launch import launch
from parashot.questions.statistics import Interval, median_interval, ratio_interval
from parashot.questions.timed import TimedStrategy, in_turn
from parashot.train.assemble import new_strategy

REPLICAS = 2

_REFERENCE = Workload("bottleneck", 84, 15, 8)
"""The study gave each replica 7 to 15 episodes of a step; 4 are what a block has time for."""

_ALL: Mapping[Workload, int] = {
    Workload("conv4", 32, 5, 8): 10,
    Workload("conv4", 84, 1, 4): 4,
    Workload("bottleneck", 84, 1, 4): 1,
    Workload("bottleneck", 84, 15, 4): 1,
    _REFERENCE: 1,
    Workload("bottleneck", 224, 1, 2): 1,
    Workload("resnet12", 84, 1, 4): 1,
}
"""Steps per block, so that a block takes half a second or more; the first is the default study's."""

_QUICK: Mapping[Workload, int] = {Workload("conv4", 32, 1, 2): 1}
_QUICK_BLOCKS = 2


@dataclass(frozen=True)
class Measured:
    """Seconds per step of one workload, item i of both from the same round."""

    workload: Workload
    serial: Sequence[float]
    ddp: Sequence[float]
    apart: Sequence[float]  # DDP without its exchange

    @property
    def efficiency(self) -> Interval:
        """T_1 / (p T_p)."""
        return ratio_interval(self.serial, self.ddp, RESAMPLING).scaled(1 / REPLICAS)

    @property
    def ceiling(self) -> Interval:
        """The same without any exchange: what sharing the machine leaves of it."""
        return ratio_interval(self.serial, self.apart, RESAMPLING).scaled(1 / REPLICAS)


def measure_reference(quick: bool) -> Measured:
    """The reference workload; `quick`: a small one, in two blocks."""
    return measure_all(True)[0] if quick else measure(_REFERENCE, _ALL[_REFERENCE])


def measure_all(quick: bool) -> list[Measured]:
    """Every workload; `quick`: a small one, in two blocks."""
    if quick:
        return [measure(workload, steps, _QUICK_BLOCKS) for workload, steps in _QUICK.items()]
    return [measure(workload, steps) for workload, steps in _ALL.items()]


def measure(workload: Workload, steps: int, blocks: int = BLOCKS) -> Measured:
    """Time blocks of `steps` steps, serial and DDP in turn, in fp32 on the CPU. Raises `DeviceError`."""
    placement = Placement("cpu", REPLICAS, threads_per_replica=1, cores=REPLICAS)
    measured = launch(_measure_rank, placement, REPLICAS, workload, steps, blocks)
    assert measured is not None  # only other ranks that torchrun has started get nothing
    return measured


def table(measured: Sequence[Measured]) -> Table:
    """A row for each workload."""
    columns = (
        "step",
        "serial, 1 thread (s)",
        f"DDP, {REPLICAS} × 1 thread (s)",
        "efficiency",
        "without exchange",
    )
    rows = [
        (
            each.workload.name,
            median_interval(each.serial, RESAMPLING),
            median_interval(each.ddp, RESAMPLING),
            each.efficiency,
            each.ceiling,
        )
        for each in measured
    ]
    return Table("DDP against serial, fp32 on the CPU", columns, rows)


def _measure_rank(context: Context, workload: Workload, steps: int, blocks: int) -> Measured:
    """One rank's part; the other sleeps while the first steps alone."""
    control = control_group(context)
    ddp = _timed("ddp", context, workload)
    serial = _timed("serial", alone(context), workload) if context.is_first else None

    def block(timed: TimedStrategy | None, exchanging: bool = True) -> float:
        wait_for_all(control)
        with nullcontext() if exchanging else ddp.strategy.without_exchange():
            return timed.seconds(steps) / steps if timed is not None else 0.0

    sides = {
        "serial": partial(block, serial),
        "ddp": partial(block, ddp),
        "apart": partial(block, ddp, exchanging=False),
    }
    seconds = in_turn(sides, blocks)
    wait_for_all(control)
    ddp.strategy.close()
    return Measured(workload, **seconds)


def _timed(name: str, context: Context, workload: Workload) -> TimedStrategy:
    strategy = new_strategy(name, workload.params(), context)
    batch = workload.batch(rank=context.rank, ranks=context.ranks)
    return TimedStrategy(strategy, [batch], context.placement.threads_per_replica)
