"""DDP on two replicas, a thread each on the CPU, against one replica with one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from benchmarks.outcome import ratio_of
from benchmarks.turns import in_turn
from benchmarks.workload import Workload
from parashot.parallel.context import Context, Placement
from parashot.parallel.launch import launch
from parashot.questions.statistics import Interval
from parashot.questions.timed import TimedStrategy

REPLICAS = 2


def efficiency(seconds: Mapping[str, Sequence[float]]) -> Interval:
    """T_1 / (p T_p)."""
    return ratio_of(seconds["serial"], seconds["ddp"]).scaled(1 / REPLICAS)


def measure_replicas(workload: Workload, blocks: int) -> Mapping[str, Sequence[float]]:
    """Time steps by serial and by DDP in turn, in fp32, in one process per replica with one thread.

    Returns seconds per step, item i of both of round i. Raises `DeviceError`.
    """
    placement = Placement("cpu", REPLICAS, threads_per_replica=1, cores=REPLICAS)
    seconds = launch(_measure_rank, placement, REPLICAS, workload, blocks)
    assert seconds is not None  # only other ranks that torchrun has started get nothing
    return seconds


def _measure_rank(context: Context, workload: Workload, blocks: int) -> dict[str, list[float]]:
    """Seconds on one rank; only the first one's count. The other sleeps while the first steps alone."""
    batch = workload.batch(context.rank, context.world_size)
    ddp = TimedStrategy(workload.strategy("ddp", context), batch, 1)
    one = TimedStrategy(workload.strategy("serial", context.alone()), workload.batch(), 1)

    def block(side: str) -> float:
        context.wait_for_all()
        if side == "serial":
            return one.seconds(1) if context.is_main else 0.0
        return ddp.seconds(1)

    seconds = in_turn({side: partial(block, side) for side in ("serial", "ddp")}, blocks)
    context.wait_for_all()
    ddp.strategy.close()
    return seconds
