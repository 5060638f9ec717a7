"""The model of cost, checked: what it says of DDP on 1 and 2 replicas, a thread each, and what they took.

The model is fitted to steps of one replica and to all-reduces, timed in the same processes, and to how
much of DDP's messages is hidden; it never sees how long a step of DDP takes. A row is off where the
prediction is more than 15% from the median measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import distributed as dist

from benchmarks.outcome import RESAMPLING, Outcome, Table
from benchmarks.turns import BLOCKS
from benchmarks.workload import Workload
from parashot.parallel.context import Context, Placement, alone, control_group, wait_for_all
from parashot.parallel.launch import launch
from parashot.questions.results import StrategyResults
from parashot.questions.scaling.measure import CostBlocks, local_sizes, new_messages, time_round
from parashot.questions.scaling.rows import CheckedRow, Predictor, checked_rows
from parashot.questions.strategies.records import StrategyBlock, StrategyVariant
from parashot.questions.strategies.shares import all_shares, watch_shares
from parashot.questions.strategies.trace import anatomy, watch_step
from parashot.questions.timed import TimedStrategy
from parashot.train.assemble import new_strategy

REPLICAS = 2
MOST_ERROR = 0.15

_ALL = (Workload("conv4", 32, 5, 8), Workload("conv4", 84, 1, 4), Workload("bottleneck", 84, 1, 4))
"""The first is the default study's."""

_QUICK = (Workload("conv4", 32, 1, 4),)
_QUICK_BLOCKS = 3


@dataclass(frozen=True)
class Checked:
    """One workload: what was measured, as `strategy-bench` records it, and the model beside it."""

    workload: Workload
    bench: StrategyResults

    @property
    def rows(self) -> list[CheckedRow]:
        """One replica, then all of them."""
        return checked_rows(Predictor.of(self.bench, RESAMPLING), self.bench)


def run(quick: bool) -> Outcome:
    """Measure, predict and compare every workload; `quick`: a small one, in few blocks."""
    placement = Placement("cpu", REPLICAS, threads_per_replica=1, cores=REPLICAS)
    blocks = _QUICK_BLOCKS if quick else BLOCKS
    checked = []
    for workload in _QUICK if quick else _ALL:
        bench = launch(_measure_rank, placement, REPLICAS, workload, blocks)
        assert bench is not None  # only other ranks that torchrun has started get nothing
        checked.append(Checked(workload, bench))
    return Outcome(
        "predict",
        [_table(checked)],
        raw={each.workload.name: _raw(each.bench) for each in checked},
        settings={
            "quick": quick,
            "short": any(abs(row.error) > MOST_ERROR for each in checked for row in each.rows),
        },
    )


def _table(checked: list[Checked]) -> Table:
    columns = ("step", "replicas", "predicted (s)", "measured (s)", "error in %", "verdict")
    rows = [
        (
            each.workload.name,
            row.devices,
            row.predicted,
            row.measured,
            round(100 * row.error, 1),
            "off" if abs(row.error) > MOST_ERROR else "within 15%",
        )
        for each in checked
        for row in each.rows
    ]
    return Table("Seconds per step, fp32 on the CPU, a thread per replica", columns, rows)


def _raw(bench: StrategyResults) -> dict[str, list[float]]:
    """Seconds of one step or all-reduce by what was timed."""
    raw: dict[str, list[float]] = {}
    for block in bench.blocks:
        raw.setdefault(block.variant, []).append(block.seconds / block.steps)
    for step in bench.cost_steps:
        raw.setdefault(f"{step.episodes} episodes, {step.busy} busy", []).append(step.seconds / step.steps)
    for message in bench.cost_messages:
        raw.setdefault(f"all-reduce of {message.bytes} B", []).append(message.seconds / message.calls)
    return raw


def _measure_rank(context: Context, workload: Workload, blocks: int) -> StrategyResults:
    """One rank's part; only what the first brings back counts."""
    control = control_group(context)
    params, pinned = workload.params(), context.placement.threads_per_replica
    one = new_strategy("serial", params, alone(context))
    by_size = {
        size: TimedStrategy(one, [replace(workload, batchsz=size).batch()], pinned)
        for size in local_sizes(workload.batchsz)
    }
    strategy = new_strategy("ddp", params, context)
    ddp = TimedStrategy(strategy, [workload.batch(rank=context.rank, ranks=context.ranks)], pinned)
    costs, steps = _rounds(context, by_size, by_size[workload.batchsz], ddp, blocks, control)
    wait_for_all(control)
    seen = anatomy("ddp", watch_step(ddp), context, control, params)
    shares = all_shares("ddp", watch_shares(ddp), context, control)
    wait_for_all(control)
    strategy.close()
    variants = (("serial", 1), ("ddp", REPLICAS))
    return StrategyResults(
        tuple(
            StrategyVariant(name, name, "ok", "", count, pinned, workload.batchsz) for name, count in variants
        ),
        tuple(steps),
        (seen,),
        tuple(shares),
        cost_steps=tuple(costs.steps),
        cost_messages=tuple(costs.messages),
    )


def _rounds(
    context: Context,
    by_size: Mapping[int, TimedStrategy],
    serial: TimedStrategy,
    ddp: TimedStrategy,
    blocks: int,
    control: dist.ProcessGroup | None,
) -> tuple[CostBlocks, list[StrategyBlock]]:
    """What the model is fitted to and what it is held against, in the same rounds; the first warms up."""
    costs, steps = CostBlocks(), []
    messages = new_messages(context)
    for number in range(-1, blocks):
        found = time_round(context, by_size, messages, number, control)
        wait_for_all(control)
        times = {"serial": serial.seconds(1)} if context.is_first else {}
        wait_for_all(control)
        times["ddp"] = ddp.seconds(1)
        if number >= 0:
            costs.add(found)
            steps += [StrategyBlock(number, name, 1, each) for name, each in times.items()]
    return costs, steps
