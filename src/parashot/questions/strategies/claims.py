"""The claims of 2020 about DataParallel, DDP and splits of the network, and advice on which to train with."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from statistics import fmean, median
from typing import TYPE_CHECKING

from parashot.questions.advice import MORE_BLOCKS, Advice, Choice
from parashot.questions.claim import (
    Finding,
    Side,
    StudyClaim,
    UntestableError,
    by_side,
    claim,
    holds_if,
    needed,
)
from parashot.questions.statistics import Rounds, paired_ratio
from parashot.questions.strategies.rows import (
    ALL_CORES,
    BASE,
    PER_PARAMETER,
    SMALL_BUCKETS,
    StrategyRow,
    hidden_share,
    step_seconds,
)
from parashot.questions.text import counted, listed, percent, seconds, size, times

if TYPE_CHECKING:
    from parashot.parsing import Value
    from parashot.questions.study import Study

SAMPLED_MEMORY = 0.05
"""Peaks of a CPU's memory are sampled, once per training: closer than this, they decide nothing."""

WORTH_HIDING = 0.1
"""Of the time of messages: where less is hidden than this, communication is not hidden."""

DATA_PARALLEL = ("ddp", "allreduce", "dp")
"""Strategies that splits are held against: the first of these that was timed."""


@claim(
    "ddp-beats-dp",
    "DistributedDataParallel is faster than DataParallel.",
    "whole runs: 137,172 s (DP) against 89,856 s (DDP), 1.53×, though its DDP saw three times the episodes",
)
def ddp_beats_dp(study: Study) -> Finding:
    """Holds if a DDP step takes less time than a DP step, in interleaved blocks of the same episodes."""
    found = _by_steps(study, _timed(study, "dp"), _timed(study, "ddp"), "above")
    if _on_cpu(study):
        return replace(found, reason=f"{found.reason}; dp stands in for DataParallel, which needs GPUs")
    return found


@claim("dp-imbalance", "Under DP the first device carries more memory and work.")
def dp_imbalance(study: Study) -> Finding:
    """Holds if DP's first GPU allocates more than any other; the allocator counts bytes, without noise."""
    memory = study.trained("dp").memory_by_device
    if len(memory) < 2:
        raise UntestableError("DP did not run on two or more GPUs")
    first, *others = memory
    measured = f"first GPU {size(first)}, others {listed(size(each) for each in others)}"
    if first <= max(others):
        return Finding(measured, "does not hold", "the first allocated no more than another")
    reason = f"the first allocated {percent(first / max(others) - 1)} more than the next"
    return Finding(measured, "holds", reason)


@claim("ddp-memory", "DDP needs more memory per device than DP.")
def ddp_memory(study: Study) -> Finding:
    """Holds if DDP takes more memory than DP: per GPU, by the allocator, or per replica on a CPU, sampled."""
    dp, ddp = study.trained("dp"), study.trained("ddp")
    if len(dp.memory_by_device) > 1 and len(ddp.memory_by_device) > 1:
        theirs, ours = fmean(dp.memory_by_device), fmean(ddp.memory_by_device)
        largest = f"{size(max(dp.memory_by_device))}, {size(max(ddp.memory_by_device))}"
        measured = f"mean per GPU: DP {size(theirs)}, DDP {size(ours)}; largest: {largest}"
        return Finding(measured, holds_if(ours > theirs), "bytes counted by the allocator of each GPU")
    if not (_on_cpu(study) and dp.peak_memory_bytes and ddp.peak_memory_bytes):
        raise UntestableError("the memory of two or more devices was not recorded for both strategies")
    theirs, ours = dp.peak_memory_bytes / dp.replicas, ddp.peak_memory_bytes / ddp.replicas
    measured = f"per replica on the CPU: DP {size(theirs)}, DDP {size(ours)}"
    how = "host memory of all processes over the replicas, one sampled peak each"
    if abs(ours / theirs - 1) < SAMPLED_MEMORY:
        return Finding(measured, "undecided", f"less than {percent(SAMPLED_MEMORY)} apart: {how}")
    return Finding(measured, holds_if(ours > theirs), how)


@claim("threads-gil", "Python threads cannot use several cores for this.")
def threads_gil(study: Study) -> Finding:
    """Does not hold if DP's replica threads, one core each, are faster than one replica."""
    if not _on_cpu(study):
        raise UntestableError("on GPUs the threads only launch kernels; parallel.device=cpu tests it")
    return _by_steps(study, _timed(study, BASE, replicas=1), _timed(study, "dp"), "below")


@claim("ddp-sync", "After a DDP step all replicas hold the same parameters.")
def ddp_sync(study: Study) -> Finding:
    """Holds if all ranks hold the same parameters after training, bit for bit."""
    ddp = study.trained("ddp")
    if ddp.ranks_identical is None or ddp.replicas < 2:
        raise UntestableError("the parameters of two or more ranks were not compared after training")
    same = "identical, bit for bit" if ddp.ranks_identical else "not identical"
    measured = f"{counted(ddp.replicas, 'rank')} after {counted(ddp.steps, 'step')}: {same}"
    return Finding(measured, holds_if(ddp.ranks_identical), "an exact comparison, no statistics needed")


@claim("overlap", "Communication can be hidden behind the backward pass.")
def overlap(study: Study) -> Finding:
    """Holds if DDP's processes compute in a tenth or more of the time that their messages are under way.

    By DDP with small buckets, if it was timed: a single message waits for the last gradient.
    """
    name = SMALL_BUCKETS if SMALL_BUCKETS in study.strategies else "ddp"
    ddp, bench = _timed(study, name), needed(study, "strategies", study.results.strategies)
    hidden = hidden_share(name, bench.shares, study.confidence)
    if hidden is None or ddp.communication_exposed is None or ddp.communication_hidden is None:
        raise UntestableError("the profiler saw no messages in DDP's steps")
    calls = next((each.all_reduces for each in bench.anatomy if each.variant == name), 0)
    calls -= study.params.model.norm_episodes > 0  # one is of running statistics
    measured = (
        f"{name}: {percent(hidden.value)} of the time of {counted(calls, 'all-reduce')} per step hidden "
        f"({percent(hidden.low)} to {percent(hidden.high)}); messages take "
        f"{percent(ddp.communication_exposed + ddp.communication_hidden)} of a step"
    )
    found = by_side(measured, hidden, "above", "that share", WORTH_HIDING, percent(WORTH_HIDING))
    if found.verdict == "does not hold" and calls < 2:
        return replace(found, reason=f"{found.reason}; one message waits for the last gradient")
    return found


def _slower_than_data_parallel(strategy: str, splitting: str) -> StudyClaim:
    """Claim that holds if a step of a split over devices takes longer than a data-parallel one."""

    def finding(study: Study) -> Finding:
        split = _timed(study, strategy)
        timed = [row for row in map(study.strategies.get, DATA_PARALLEL) if row and row.seconds_per_step]
        if not timed:
            raise UntestableError("no data-parallel strategy was timed")
        found = _by_steps(study, split, timed[0], "above")
        return replace(found, reason="; ".join(filter(None, (found.reason, split.why_slow))))

    sentence = f"{splitting} is not worth its synchronisation: it is slower than data parallelism."
    return StudyClaim(f"{strategy.replace('_', '-')}-sync", sentence, "no figure", finding)


layer_split_sync = _slower_than_data_parallel("layer_split", "Splitting over layers")
channel_split_sync = _slower_than_data_parallel("channel_split", "Splitting inside layers")


def _steps(study: Study) -> Mapping[str, Rounds]:
    """Seconds per step, by variant. Raises `UntestableError`."""
    return step_seconds(needed(study, "strategies", study.results.strategies).blocks)


def _timed(study: Study, name: str, replicas: int = 2) -> StrategyRow:
    """Row of a variant that was timed on at least so many replicas. Raises `UntestableError`."""
    needed(study, "strategies", study.results.strategies)
    row = study.strategies.get(name)
    if row is None:
        raise UntestableError(f"{name} was not among the strategies")
    if row.seconds_per_step is None:
        raise UntestableError(f"{name} was skipped: {row.reason or 'it has no blocks'}")
    if row.replicas < replicas:
        raise UntestableError(f"{name} ran on one replica only")
    return row


def _by_steps(study: Study, above: StrategyRow, below: StrategyRow, holds: Side) -> Finding:
    """Judge by the time of one variant's step over that of another's."""
    steps = _steps(study)
    ratio = paired_ratio(steps[above.variant], steps[below.variant], study.confidence)
    said = [f"{seconds(median(steps[row.variant].values()))} ({row.variant})" for row in (above, below)]
    measured = f"a step takes {said[0]} against {said[1]}: {times(ratio)}"
    return by_side(measured, ratio, holds, f"{above.variant}'s time over {below.variant}'s")


def _on_cpu(study: Study) -> bool:
    """Tell if the strategies ran on the CPU: by trainings, else by `parallel.device` and the machine."""
    devices = [each.result.device for each in study.results.training.values() if each.result.device]
    if devices:
        return all(device.startswith("cpu") for device in devices)
    chosen, hardware = study.params.parallel.device, study.results.hardware
    return chosen == "cpu" or (chosen == "auto" and hardware is not None and not hardware.gpus)


# --- advice ---------------------------------------------------------------------------------------------

ALONE = {BASE: "one process", ALL_CORES: "one process on all cores"}
"""Names in a sentence of the variants of a single replica."""

SIMPLEST = (BASE, ALL_CORES, "ddp")
"""Order in which those that are as good as the fastest are taken.

One process asks least of a training script; of several, DDP is what PyTorch's own page on DataParallel
recommends (https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html).
"""


def choose_strategy(study: Study) -> Choice[str]:
    """The fastest variant whose accuracy several seeds do not show to be worse than serial's.

    Of those that are as good, the simplest; usual is one process. With one replica there is nothing to share
    out: then only that is left. One process has all cores, if it was timed with them: with those of one
    replica it is what speedups are over.
    """
    steps = _steps(study)
    shown_only = {PER_PARAMETER, SMALL_BUCKETS, *([BASE] if ALL_CORES in steps else [])}
    sound = {
        name: steps[name]
        for name, row in study.strategies.items()
        if row.seconds_per_step and name not in shown_only and not study.is_worse(row.strategy, BASE)
    }
    alone = {name: steps[name] for name in sound if name in ALONE}
    if alone and not _shared_out(study):
        sound = alone
    if not sound:
        raise UntestableError("no strategy was timed; run `dvc repro`")
    return Choice.of(study.rank(sound), _one_process(steps), SIMPLEST)


def advise_strategy(study: Study) -> Advice:
    """Advise on the strategy; it gains over one process, with all cores or on one GPU, as PyTorch runs it."""
    choice = choose_strategy(study)
    row = study.strategies[choice.choice]
    steps = _steps(study)
    one = _one_process(steps)
    alone = ALONE.get(row.variant, row.variant)
    on = f"{row.variant} on {row.replicas} replicas" if row.replicas > 1 else alone
    buys = choice.gains_nothing
    if one not in steps:
        buys = f"nothing to compare it with: {one} was not timed"
    elif row.variant != one:
        buys = f"{times(choice.gain(one, steps, study.confidence))} as fast as {ALONE[one]}"
    if one == ALL_CORES:  # which is never timed without `BASE`
        gain = choice.gain(BASE, steps, study.confidence)
        buys += f"; {times(gain)} as fast as with the threads of one replica ({BASE})"
    sure = "no strategy was timed on two or more replicas"
    if _shared_out(study) or not choice.decided:
        sure = choice.how_sure("strategy")
    timed = [each for each in study.strategies.values() if each.variant in steps]
    if worse := [each.variant for each in timed if study.is_worse(each.strategy, BASE)]:
        sure += f"; left out for its accuracy, over seeds: {listed(worse)}"
    return Advice(
        topic="strategy",
        choice=row.variant,
        phrase=f"train with {on}",
        buys=buys,
        sure=sure,
        decided=choice.decided,
        settings=_settings(study, row),
        changes=choice.open_until(MORE_BLOCKS),
    )


def _one_process(timed: Container[str]) -> str:
    """What people do by default: one process with all cores, or on one GPU."""
    return ALL_CORES if ALL_CORES in timed else BASE


def _settings(study: Study, row: StrategyRow) -> dict[str, Value]:
    """Train with this strategy, beside the base case, and no other; one process has the whole machine."""
    timed = {each.strategy for each in study.strategies.values() if each.seconds_per_step}
    others = sorted(timed - {row.strategy, BASE})
    off: dict[str, Value] = {f"parallel.{each}.enabled": False for each in others}
    if row.strategy == BASE:
        return {"parallel.replicas": 1, **off}
    return {f"parallel.{row.strategy}.enabled": True, **off}


def _shared_out(study: Study) -> bool:
    """Tell if a strategy was timed on two or more replicas."""
    return any(row.seconds_per_step and row.replicas > 1 for row in study.strategies.values())
