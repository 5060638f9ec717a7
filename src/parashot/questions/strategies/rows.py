"""Strategies: from timed blocks, traced steps and whole trainings to one row per variant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from parashot.questions.statistics import Interval, by_round, median_interval, median_of_rounds, paired_ratio
from parashot.questions.strategies.records import (
    StepShares,
    StepTrace,
    StrategyBlock,
    StrategyResults,
    StrategyVariant,
)
from parashot.questions.text import listed, percent, size
from parashot.train.records import TrainResult

if TYPE_CHECKING:
    from parashot.questions.accuracy.records import Training

BASE = "serial"
"""The variant behind every speedup: one replica with as many threads as any replica has."""

ALL_CORES = "serial-all-cores"
"""One replica with all cores of a CPU, as PyTorch runs a process by default."""

PER_PARAMETER = "allreduce-per-parameter"
"""`allreduce` with a message for each parameter, which shows what joining them is worth."""

SMALL_BUCKETS = "ddp-small-buckets"
"""DDP with buckets of a hundredth of the size: what can be hidden of messages that need not wait."""

SAME_GRADIENT = 1e-10
"""Largest relative difference in float64 of gradients that are the same."""

WORTH_NAMING = 0.05
"""Share of a step below which nothing is said of it."""


@dataclass(frozen=True, kw_only=True)
class StrategyRow(StrategyVariant):
    """One variant: its step timed in interleaved blocks, and the whole training of its strategy beside it.

    Shares of a step are means over processes and profiled steps; None where none was profiled.
    """

    device: str  # of the training: cpu, cuda
    how: str  # what the training really ran, in words
    blocks: int
    seconds_per_step: Interval | None
    episodes_per_second: Interval | None
    speedup: Interval | None  # S_p against `BASE`
    efficiency: Interval | None  # S_p / p; p counts replicas, or the threads of one that has all cores
    training_status: str  # of the whole training; empty where the variant has none of its own
    training_reason: str
    trained_batchsz: int | None
    training_seconds: float | None
    val_accuracy: float | None
    val_accuracy_ci95: float | None
    peak_memory_bytes: int | None
    peak_memory_per_process_bytes: int | None
    bytes_sent: int | None  # by one process in one step
    communication_exposed: float | None  # share of a step: messages are under way and nothing is computed
    communication_hidden: float | None  # share of a step: messages are under way behind computing
    idle: float | None  # share of a step: neither
    why_slow: str  # where a step's time goes, of a variant that is slower than `BASE`
    gradient_difference: float | None  # to that of one replica, in float64: the largest, relative

    @property
    def same_algorithm(self) -> bool:
        """Whether its gradient is shown to be that of one replica, and it trains on the same batches.

        With `train.batch_per: rank` every rank has batches of its own.
        """
        same_batches = self.trained_batchsz in {None, self.batchsz}
        difference = self.gradient_difference
        return same_batches and difference is not None and difference <= SAME_GRADIENT


def strategy_rows(
    bench: StrategyResults | None, trainings: Mapping[str, Training], confidence: float
) -> list[StrategyRow]:
    """Return one row per variant timed, then one per training that has no variant of its own."""
    bench = bench or StrategyResults(())
    results = {name: training.result for name, training in trainings.items()}
    timed = {each.variant for each in bench.variants}
    untimed = "its step was not timed: results/strategies has no such variant"
    added = [
        StrategyVariant(
            variant=result.strategy,
            strategy=result.strategy,
            status="skipped",
            reason=result.reason if result.status == "skipped" else untimed,
            replicas=result.replicas,
            threads_per_replica=result.threads_per_replica,
            batchsz=result.batchsz,
        )
        for name, result in results.items()
        if name not in timed
    ]
    variants = (*bench.variants, *added)
    return [_row(variant, bench, results.get(variant.variant), confidence) for variant in variants]


def step_seconds(blocks: Iterable[StrategyBlock]) -> dict[str, dict[Any, float]]:
    """Seconds per step: by variant, then by launch and round."""
    return by_round((each.variant, (each.launch, each.round), each.seconds / each.steps) for each in blocks)


def hidden_share(variant: str, shares: Iterable[StepShares], confidence: float) -> Interval | None:
    """Share of the time that messages of a variant were under way in which its processes computed.

    One value per profiled step, the mean over processes; None where no messages were seen.
    """
    hidden, under_way = defaultdict[int, float](float), defaultdict[int, float](float)  # by step
    for each in shares:
        if each.variant == variant:
            hidden[each.step] += each.hidden
            under_way[each.step] += each.hidden + each.exposed
    values = [hidden[step] / all_of_it for step, all_of_it in under_way.items() if all_of_it > 0]
    return median_interval(values, confidence) if len(values) > 1 else None


def _row(
    variant: StrategyVariant, bench: StrategyResults, result: TrainResult | None, confidence: float
) -> StrategyRow:
    name, times = variant.variant, step_seconds(bench.blocks)
    own, base = times.get(name), {each.variant: each for each in bench.variants}.get(BASE)
    seconds = median_of_rounds(own, confidence) if own else None
    speedup = paired_ratio(times[BASE], own, confidence) if own and BASE in times else None
    trained = result if result and result.status == "ok" else None
    memory = trained.peak_memory_bytes if trained else None
    whole = (sum(trained.memory_by_device) or memory) if trained else None  # on GPUs `memory` is the largest
    seen = {each.variant: each for each in bench.anatomy}.get(name)
    shares = [each for each in bench.shares if each.variant == name]
    differences = {each.variant: each.gradient_difference for each in bench.equality}
    exposed, hidden, idle = (
        fmean(getattr(each, part) for each in shares) if shares else None
        for part in ("exposed", "hidden", "idle")
    )
    return StrategyRow(
        **asdict(variant),
        device=trained.device if trained else "",
        how=trained.how if trained else "",
        blocks=len(own or ()),
        seconds_per_step=seconds,
        episodes_per_second=seconds.reciprocal(variant.batchsz) if seconds else None,
        speedup=speedup,
        efficiency=speedup.scaled(_threads(base) / _threads(variant)) if speedup and base else None,
        training_status=result.status if result else "",
        training_reason=result.reason if result else "",
        trained_batchsz=trained.batchsz if trained else None,
        training_seconds=trained.seconds if trained else None,
        val_accuracy=trained.val_accuracy if trained else None,
        val_accuracy_ci95=trained.val_accuracy_ci95 if trained else None,
        peak_memory_bytes=memory,
        peak_memory_per_process_bytes=round(whole / seen.processes) if whole and seen else None,
        bytes_sent=seen.bytes_sent if seen else None,
        communication_exposed=exposed,
        communication_hidden=hidden,
        idle=idle,
        why_slow=_why_slow(exposed, idle, seen) if speedup and speedup.side_of(1) == "below" else "",
        gradient_difference=differences.get(name),
    )


def _threads(variant: StrategyVariant) -> int:
    """Threads over all replicas; on GPUs, where threads are equal, it stands for devices."""
    return variant.threads_per_replica * variant.replicas


def _why_slow(exposed: float | None, idle: float | None, seen: StepTrace | None) -> str:
    """Say where the time of a step goes that computes nothing; empty where that is not known."""
    if exposed is None or idle is None:
        return ""
    parts = ((exposed, "in messages not hidden"), (idle, "idle"))
    named = [f"{percent(share)} {what}" for share, what in parts if share > WORTH_NAMING]
    sent = f", {size(seen.bytes_sent)} sent per process" if seen and seen.bytes_sent else ""
    if not named:
        return f"the processes compute nearly all of the time{sent}: what they compute takes longer"
    return f"of a step, {listed(named)}{sent}"
