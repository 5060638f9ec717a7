"""The study's claims about DataParallel, DistributedDataParallel and the network that they train."""

from __future__ import annotations

from statistics import fmean

from parashot.questions.accuracy.compare import compare
from parashot.questions.evidence import Evidence, Finding, UntestableError, Verdict, judged
from parashot.questions.results import Training
from parashot.questions.statistics import Interval, paired, ratio_interval
from parashot.questions.strategies.rows import StrategyRow, step_seconds
from parashot.questions.text import accuracy, counted, listed, percent, points, seconds, size, times

SAME_FUNCTION = 1e-8
"""Largest difference in float64 at which two ways to compute the scores are the same function."""
SAMPLED_MEMORY = 0.05
"""Peaks of a CPU's memory are sampled, once per training: closer than this, they decide nothing."""


def ddp_beats_dp(evidence: Evidence) -> Finding:
    """Holds if a DDP step takes less time than a DP step, in interleaved blocks of the same episodes."""
    dp, ddp = timed(evidence, "dp"), timed(evidence, "ddp")
    assert evidence.results.strategies is not None
    blocks = step_seconds(evidence.results.strategies.blocks)
    ratio = ratio_interval(*paired(blocks["dp"], blocks["ddp"]), evidence.resampling)
    measured = f"{step(dp)} per step (DP) against {step(ddp)} (DDP): {times(ratio)}"
    if dp.training_seconds and ddp.training_seconds:
        measured += (
            f"; whole trainings: {seconds(dp.training_seconds)} against {seconds(ddp.training_seconds)}"
        )
    return judged(measured, ratio, "above", "DP's time over DDP's", evidence.resampling.confidence)


def accuracy_parity(evidence: Evidence) -> Finding:
    """Holds if DP and DDP are equivalent within `claims.accuracy_margin` on the same validation episodes."""
    dp, ddp = _trained(evidence, "dp"), _trained(evidence, "ddp")
    claims = evidence.params.claims
    outcome = compare(evidence.results, "ddp", "dp", claims)
    if outcome is None:
        raise UntestableError("the two trainings share no validation episodes; run `dvc repro`")
    each_seed = f" of each of {outcome.seeds} seeds" if outcome.seeds > 1 else ""
    which = " (the first seed)" if outcome.seeds > 1 else ""
    measured = (
        f"DP {_accuracy(dp)}, DDP {_accuracy(ddp)}{which}; DDP minus DP {points(outcome.difference)} "
        f"over {outcome.episodes} paired episodes{each_seed}"
    )
    margin = f"± {100 * outcome.margin:g} points"
    verdicts: dict[str, tuple[Verdict, str]] = {
        "equivalent": ("holds", f"the two one-sided tests put the difference within {margin}"),
        "different": ("does not hold", f"the interval of the difference lies outside of {margin}"),
        "undecided": (
            "undecided",
            f"the difference is neither shown to lie within {margin} nor outside of it",
        ),
    }
    verdict, reason = verdicts[outcome.verdict]
    luck = "one training each, so the luck of a seed is not in the interval (seeds_study.enabled is false)"
    if outcome.seeds > 1:
        luck = f"over {outcome.seeds} seeds"
    return Finding(measured, verdict, f"{reason}; {luck}")


def dp_imbalance(evidence: Evidence) -> Finding:
    """Holds if DP's first GPU allocates more than any other; the allocator counts bytes, without noise."""
    memory = _trained(evidence, "dp").result.memory_by_device
    if len(memory) < 2:
        raise UntestableError(
            "it is about GPUs that each have memory of their own; DP did not run on two or more here"
        )
    first, others = memory[0], memory[1:]
    measured = f"first GPU {size(first)}, others {listed(size(each) for each in others)}"
    if first > max(others):
        return Finding(
            measured, "holds", f"the first allocated {percent(first / max(others) - 1)} more than the next"
        )
    return Finding(measured, "does not hold", "the first allocated no more than another")


def ddp_memory(evidence: Evidence) -> Finding:
    """Holds if DDP takes more memory than DP: per GPU, by the allocator, or per replica on a CPU, sampled."""
    dp, ddp = _trained(evidence, "dp").result, _trained(evidence, "ddp").result
    if len(dp.memory_by_device) > 1 and len(ddp.memory_by_device) > 1:
        theirs, ours = fmean(dp.memory_by_device), fmean(ddp.memory_by_device)
        measured = (
            f"mean per GPU: DP {size(theirs)}, DDP {size(ours)}; "
            f"largest: {size(max(dp.memory_by_device))}, {size(max(ddp.memory_by_device))}"
        )
        more = ours > theirs
        return Finding(
            measured, "holds" if more else "does not hold", "bytes counted by the allocator of each GPU"
        )
    if not _on_cpu(evidence) or not dp.peak_memory_bytes or not ddp.peak_memory_bytes:
        raise UntestableError("the memory of two or more devices was not recorded for both strategies")
    theirs, ours = dp.peak_memory_bytes / dp.replicas, ddp.peak_memory_bytes / ddp.replicas
    measured = f"per replica on the CPU: DP {size(theirs)}, DDP {size(ours)}"
    how = "host memory of all processes over the replicas, one sampled peak each; GPUs would count per device"
    if abs(ours / theirs - 1) < SAMPLED_MEMORY:
        return Finding(measured, "undecided", f"less than {percent(SAMPLED_MEMORY)} apart: {how}")
    return Finding(measured, "holds" if ours > theirs else "does not hold", how)


def ddp_workers_zero(evidence: Evidence) -> Finding:
    """Does not hold if DDP ranks read the same bytes with worker processes of their own as without."""
    if evidence.results.strategies is None:
        raise UntestableError(evidence.why_missing("strategies"))
    read = evidence.results.strategies.metrics.get("ddp_workers_ok")
    if read is None:
        raise UntestableError("reading under DDP with workers was not tried: it takes two or more ranks")
    if float(read) == 1:
        measured = "every rank read the same bytes with workers of its own as without"
        return Finding(measured, "does not hold", "what can be pickled reaches a rank's workers as well")
    return Finding("not every rank read with workers what it read without", "holds", "seen here as well")


def concat_serial(evidence: Evidence) -> Finding:
    """Does not hold if the joined scores come out of parts that are computed once per image."""
    if evidence.results.strategies is None:
        raise UntestableError(evidence.why_missing("strategies"))
    metrics = evidence.results.strategies.metrics
    names = ("max_difference", "ratio", "ratio_low", "ratio_high")
    found = [metrics.get(f"concat_split_{name}") for name in names]
    if None in found:
        raise UntestableError(
            "the two ways to pair were not compared: results/strategies/metrics.json has no concat_split_*"
        )
    difference, *ratio = (float(each) for each in found if each is not None)
    speed = times(Interval(ratio[0], ratio[1], ratio[2]))
    measured = (
        f"computed per image and summed: largest difference {difference:.1e} in float64; {speed} as fast"
    )
    if difference < SAME_FUNCTION:
        return Finding(
            measured, "does not hold", "the same scores come without joining, from parts that split freely"
        )
    return Finding(
        measured, "holds", f"the scores differ by more than {SAME_FUNCTION:g}: joining was not avoided"
    )


def copy_overlap(evidence: Evidence) -> Finding:
    """Holds if a step and the copy of a batch to the GPU take less at once than one after the other."""
    if evidence.results.strategies is None:
        raise UntestableError(evidence.why_missing("strategies"))
    metrics = evidence.results.strategies.metrics
    found = [metrics.get(f"copy_overlap_{name}") for name in ("ratio", "ratio_low", "ratio_high")]
    if None in found:
        raise UntestableError("images are copied to a device only where that is a GPU, and none was used")
    value, low, high = (float(each) for each in found if each is not None)
    gain = Interval(value, low, high)
    measured = f"one after the other over both at once: {times(gain)}"
    return judged(measured, gain, "above", "the gain of copying meanwhile", evidence.resampling.confidence)


def threads_gil(evidence: Evidence) -> Finding:
    """Does not hold if DP's replica threads, one core each, are faster than one replica."""
    if not _on_cpu(evidence):
        raise UntestableError(
            "on GPUs the threads only launch kernels; set parallel.device to cpu to test it"
        )
    dp = timed(evidence, "dp")
    if dp.speedup is None:
        raise UntestableError("the base case serial was not timed; set parallel.serial.enabled to true")
    measured = f"{counted(dp.replicas, 'thread')} with a replica each: {times(dp.speedup)} over one"
    return judged(measured, dp.speedup, "below", "DP's speedup", evidence.resampling.confidence)


def ddp_sync(evidence: Evidence) -> Finding:
    """Holds if all ranks hold the same parameters after training, bit for bit."""
    result = _trained(evidence, "ddp").result
    if result.ranks_identical is None or result.replicas < 2:
        raise UntestableError("the parameters of two or more ranks were not compared after training")
    measured = f"{counted(result.replicas, 'rank')} after {counted(result.steps, 'step')}: "
    if result.ranks_identical:
        return Finding(
            measured + "identical, bit for bit", "holds", "an exact comparison, no statistics needed"
        )
    return Finding(measured + "not identical", "does not hold", "an exact comparison, no statistics needed")


def timed(evidence: Evidence, name: str) -> StrategyRow:
    """The row of a variant that was timed on two or more replicas."""
    if evidence.results.strategies is None:
        raise UntestableError(evidence.why_missing("strategies"))
    row = evidence.strategies.get(name)
    if row is None:
        raise UntestableError(f"{name} was not among the strategies")
    if row.seconds_per_step is None:
        raise UntestableError(
            f"{name} was skipped: {row.reason}" if row.reason else f"{name} has no timed blocks"
        )
    if row.replicas < 2:
        raise UntestableError(f"{name} ran on one replica only")
    return row


def _trained(evidence: Evidence, name: str) -> Training:
    """The finished training of a strategy."""
    training = evidence.results.training.get(name)
    if training is None:
        raise UntestableError(evidence.why_missing(f"train/{name}"))
    if training.result.status != "ok":
        raise UntestableError(f"{name} was {training.result.status}: {training.result.reason}")
    return training


def _on_cpu(evidence: Evidence) -> bool:
    """Whether the strategies ran on the CPU: as trainings say, or else `parallel.device` and the machine."""
    devices = [
        training.result.device for training in evidence.results.training.values() if training.result.device
    ]
    if devices:
        return all(device.startswith("cpu") for device in devices)
    hardware, chosen = evidence.results.hardware, evidence.params.parallel.device
    return chosen == "cpu" or (chosen == "auto" and hardware is not None and not hardware.gpus)


def step(row: StrategyRow) -> str:
    """Say the time of a timed variant's step."""
    assert row.seconds_per_step is not None
    return seconds(row.seconds_per_step.value)


def _accuracy(training: Training) -> str:
    result = training.result
    return (
        "unknown" if result.val_accuracy is None else accuracy(result.val_accuracy, result.val_accuracy_ci95)
    )
