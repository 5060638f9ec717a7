"""Strategies: interleaved blocks and whole trainings -> one row per variant, and the study's Table 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from parashot.errors import RecordError
from parashot.questions.results import StrategyResults, StudyResults, Training
from parashot.questions.statistics import Interval, Resampling, median_interval, paired, ratio_interval
from parashot.questions.strategies.costs import StepCost, step_cost
from parashot.questions.strategies.records import StrategyBlock, StrategyVariant
from parashot.train.records import TrainResult

BASE = "serial"
"""The variant behind every speedup: one replica with as many threads as any replica has."""


@dataclass(frozen=True)
class StrategyRow:
    """One variant: its step timed in interleaved blocks, and the whole training of its strategy beside it."""

    variant: str
    strategy: str
    status: str
    reason: str
    device: str  # of the training: cpu, cuda
    how: str  # what the training really ran, in words
    replicas: int
    threads_per_replica: int
    batchsz: int
    blocks: int
    seconds_per_step: Interval | None
    episodes_per_second: Interval | None
    speedup: Interval | None  # S_p against `base`
    efficiency: (
        Interval | None
    )  # S_p / p, where p counts the replicas, or the threads of one that has all cores
    base: str
    training_status: str  # of the whole training; empty where the variant has none of its own
    training_reason: str
    training_seconds: float | None
    training_episodes: int | None
    data_share: float | None
    val_accuracy: float | None
    val_accuracy_ci95: float | None
    val_episodes: int | None
    peak_memory_bytes: int | None
    peak_memory_per_process_bytes: int | None
    bytes_sent: int | None  # by one process in one step
    communication_exposed: float | None  # share of a step: messages are under way and nothing is computed
    communication_hidden: float | None  # share of a step: messages are under way behind computing
    idle: float | None  # share of a step: neither
    why_slow: str  # where a step's time goes, of a variant that is slower than `base`
    ranks_identical: bool | None


def strategy_rows(results: StudyResults, resampling: Resampling) -> list[StrategyRow]:
    """One row per variant timed, then one per training that has no variant of its own."""
    bench = results.strategies
    rows = (
        [_row(each, bench, results.training.get(each.variant), resampling) for each in bench.variants]
        if bench
        else []
    )
    timed = {row.variant for row in rows}
    rest = [training for name, training in results.training.items() if name not in timed]
    return rows + [_row(_untimed(training.result), None, training, resampling) for training in rest]


def step_seconds(blocks: Iterable[StrategyBlock]) -> dict[str, dict[int, float]]:
    """Seconds per step: by variant, then by round."""
    seconds: dict[str, dict[int, float]] = {}
    for block in blocks:
        seconds.setdefault(block.variant, {})[block.round] = block.seconds / block.steps
    return seconds


def _row(
    variant: StrategyVariant, bench: StrategyResults | None, training: Training | None, resampling: Resampling
) -> StrategyRow:
    times = step_seconds(bench.blocks) if bench else {}
    base = next((each for each in bench.variants if each.variant == BASE), None) if bench else None
    own = times.get(variant.variant) if variant.status == "ok" else None
    seconds = median_interval(_enough(variant.variant, own), resampling) if own else None
    speedup = ratio_interval(*paired(times[BASE], own), resampling) if own and BASE in times else None
    result = training.result if training else None
    trained = result if result and result.status == "ok" else None
    cost = step_cost(variant.variant, bench.anatomy, bench.shares) if bench else StepCost()
    memory = trained.peak_memory_bytes if trained else None
    return StrategyRow(
        variant=variant.variant,
        strategy=variant.strategy,
        status=variant.status,
        reason=variant.reason,
        device=trained.device if trained else "",
        how=trained.how if trained else "",
        replicas=variant.replicas,
        threads_per_replica=variant.threads_per_replica,
        batchsz=variant.batchsz,
        blocks=len(own or ()),
        seconds_per_step=seconds,
        episodes_per_second=seconds.reciprocal(variant.batchsz) if seconds else None,
        speedup=speedup,
        efficiency=speedup.scaled(1 / _resources(variant, base)) if speedup and base else None,
        base=BASE,
        training_status=result.status if result else "",
        training_reason=result.reason if result else "",
        training_seconds=trained.seconds if trained else None,
        training_episodes=trained.episodes if trained else None,
        data_share=trained.data_share if trained else None,
        val_accuracy=trained.val_accuracy if trained else None,
        val_accuracy_ci95=trained.val_accuracy_ci95 if trained else None,
        val_episodes=trained.val_episodes if trained else None,
        peak_memory_bytes=memory,
        peak_memory_per_process_bytes=round(memory / cost.processes) if memory and cost.processes else None,
        bytes_sent=cost.bytes_sent,
        communication_exposed=cost.communication_exposed,
        communication_hidden=cost.communication_hidden,
        idle=cost.idle,
        why_slow=cost.why_slow() if speedup and speedup.side_of(1) == "below" else "",
        ranks_identical=trained.ranks_identical if trained else None,
    )


def _resources(variant: StrategyVariant, base: StrategyVariant) -> float:
    """How many times the base case's threads (on GPUs, where threads are equal, devices) a variant has."""
    own, one = (max(each.threads_per_replica, 1) * each.replicas for each in (variant, base))
    return own / one


def _untimed(result: TrainResult) -> StrategyVariant:
    """A variant of which only the training is known."""
    reason = (
        result.reason
        if result.status == "skipped"
        else "its step was not timed: results/strategies has no such variant"
    )
    return StrategyVariant(
        result.strategy,
        result.strategy,
        "skipped",
        reason,
        result.replicas,
        result.threads_per_replica,
        result.batchsz,
    )


def _enough(variant: str, rounds: Mapping[int, float]) -> list[float]:
    if len(rounds) < 2:
        raise RecordError(
            f"results/strategies/blocks.csv: one block of {variant}, at least 2 are needed; "
            "run `dvc repro -f -s strategy-bench`"
        )
    return list(rounds.values())
