"""Batch sizes: time to the same episodes under DDP, what the exchange takes, accuracy in the same time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np
from scipy.special import stdtrit

from parashot.questions.batchsz.records import (
    BatchszBlock,
    BatchszResults,
    BatchszRun,
    BatchszTraining,
    GradientSample,
)
from parashot.questions.statistics import (
    Floats,
    Interval,
    Resampling,
    Rounds,
    median_interval,
    paired,
    paired_ratio,
    repeated_interval,
)


@dataclass(frozen=True, kw_only=True)
class BatchszRow(BatchszRun):
    """One batch size: its whole run with the study's limit, and interleaved blocks of it.

    `communication_share` is 1 - (seconds per episode without the exchange) / (seconds per episode with it).
    It can come out below 0 where the exchange is too short to be seen; it is kept as measured.
    """

    run_speedup: float | None  # of whole runs, once each: seconds of the baseline over its projected ones
    seconds_per_episode: Interval | None
    speedup: Interval | None  # blocks: seconds per episode of the baseline over its own
    baseline: int
    communication_share: Interval | None


@dataclass(frozen=True)
class SizeRow:
    """One batch size over its trainings, all of the same seconds."""

    batchsz: int
    seeds: int
    steps: int  # median
    episodes: int  # median
    learning_rate: float
    val_accuracy: Interval | None  # mean over trainings
    difference: Interval | None  # to the baseline, paired by seed; None for the baseline
    baseline: int
    seconds_to_target: float | None  # median over seeds; None without a target, or where most lack it


def size_rows(
    trainings: Sequence[BatchszTraining], baseline: int, target: float | None, resampling: Resampling
) -> list[SizeRow]:
    """Return one row per size, in the order of the sizes."""
    by_size: dict[int, list[BatchszTraining]] = {}
    for each in in_equal_time(trainings):
        by_size.setdefault(each.batchsz, []).append(each)
    accuracies, times = reached(trainings), times_to_target(target, trainings)
    return [
        _size_row(own, accuracies, baseline, times.get(size), resampling.confidence)
        for size, own in sorted(by_size.items())
    ]


def in_equal_time(trainings: Iterable[BatchszTraining]) -> list[BatchszTraining]:
    """Trainings in the time that all sizes have, without those that went on towards the target."""
    trainings = list(trainings)
    least = min((each.seconds for each in trainings), default=0)
    return [each for each in trainings if each.seconds == least]


def reached(trainings: Iterable[BatchszTraining]) -> dict[int, dict[int, float]]:
    """Accuracy of each training in equal time: by size, then by seed."""
    found: dict[int, dict[int, float]] = {}
    for each in in_equal_time(trainings):
        found.setdefault(each.batchsz, {})[each.seed] = each.val_accuracy
    return found


def times_to_target(target: float | None, trainings: Iterable[BatchszTraining]) -> dict[int, float]:
    """Seconds of the shortest training that reaches the target: by size, the median over seeds.

    A size of which half of the seeds lack it has none.
    """
    times: dict[int, dict[int, float]] = {}
    for each in trainings:
        enough = target is not None and each.val_accuracy >= target
        of_seeds = times.setdefault(each.batchsz, {})
        of_seeds[each.seed] = min(of_seeds.get(each.seed, math.inf), each.seconds if enough else math.inf)
    medians = {size: median(of_seeds.values()) for size, of_seeds in times.items()}
    return {size: found for size, found in medians.items() if math.isfinite(found)}


def _size_row(
    own: list[BatchszTraining],
    accuracies: Mapping[int, Rounds],
    baseline: int,
    seconds_to_target: float | None,
    confidence: float,
) -> SizeRow:
    first, by_seed = own[0], accuracies[own[0].batchsz]
    mine, others = paired(by_seed, accuracies.get(baseline, {}))
    compared = len(mine) > 2 and first.batchsz != baseline
    return SizeRow(
        batchsz=first.batchsz,
        seeds=len(own),
        steps=round(median(each.steps for each in own)),
        episodes=round(median(each.episodes for each in own)),
        learning_rate=first.learning_rate,
        val_accuracy=repeated_interval([*by_seed.values()], confidence) if len(own) > 2 else None,
        difference=repeated_interval(mine - others, confidence) if compared else None,
        baseline=baseline,
        seconds_to_target=seconds_to_target,
    )


def noise_scale(samples: Sequence[GradientSample], resampling: Resampling) -> Interval | None:
    """Gradient noise scale in episodes, by the jackknife over episodes; None where it cannot be told from 0.

    McCandlish et al., An Empirical Model of Large-Batch Training (2018), appendix A.1: the trace of the
    gradients' covariance over the squared norm of the mean gradient, both without bias. Batches far below it
    learn about as much per episode as a single one; far above it, about as much per step.
    """
    count = len(samples)
    if count < 3:
        return None
    norms = np.array([each.squared_norm for each in samples])
    dots = np.array([each.dot_with_mean for each in samples])
    small, large = norms.mean(), dots.mean()
    # of all but one: of their squared norms, and of their mean
    smalls = (norms.sum() - norms) / (count - 1)
    larges = (count**2 * large - 2 * count * dots + norms) / (count - 1) ** 2
    whole, without = _noise(small, large, count), _noise(smalls, larges, count - 1)
    found = np.append(without, whole)
    if not (np.isfinite(found) & (found > 0)).all():
        return None
    logs = np.log(without)
    error = math.sqrt((count - 1) / count * np.square(logs - logs.mean()).sum())
    half = float(stdtrit(count - 1, (1 + resampling.confidence) / 2)) * error
    return Interval(float(whole), float(whole) * math.exp(-half), float(whole) * math.exp(half))


def _noise(small: Floats, large: Floats, count: int) -> Floats:
    """Noise scale from the mean squared norm of single gradients and that of the mean of `count`."""
    covariance = (small - large) / (1 - 1 / count)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(covariance / (large - covariance / count))


def batchsz_rows(results: BatchszResults, baseline: int, resampling: Resampling) -> list[BatchszRow]:
    """Return one row per size, in the order of the sizes; speedups are against the size `baseline`."""
    runs = sorted(results.runs, key=lambda run: run.batchsz)
    return [_row(run, results, baseline, resampling) for run in runs]


def episode_seconds(
    blocks: Iterable[BatchszBlock], batchsz: int, *, synchronised: bool = True
) -> dict[int, float]:
    """Seconds per episode of one size, by round."""
    return {
        block.round: block.seconds / block.episodes
        for block in blocks
        if block.batchsz == batchsz and block.synchronised == synchronised
    }


def _row(run: BatchszRun, results: BatchszResults, baseline: int, resampling: Resampling) -> BatchszRow:
    own = episode_seconds(results.blocks, run.batchsz)
    rest = _ratio(episode_seconds(results.blocks, run.batchsz, synchronised=False), own, resampling)
    base = [each.seconds for each in results.runs if each.batchsz == baseline and each.status == "ok"]
    whole = base[0] if base and run.status != "skipped" else None
    return BatchszRow(
        **asdict(run),
        run_speedup=whole / run.projected_seconds if whole and run.projected_seconds else None,
        seconds_per_episode=median_interval(list(own.values()), resampling) if len(own) > 1 else None,
        speedup=_ratio(episode_seconds(results.blocks, baseline), own, resampling),
        baseline=baseline,
        communication_share=Interval(1 - rest.value, 1 - rest.high, 1 - rest.low) if rest else None,
    )


def _ratio(above: Rounds, below: Rounds, resampling: Resampling) -> Interval | None:
    """Ratio over the rounds that measured both, or None where fewer than 2 did."""
    return paired_ratio(above, below, resampling) if len(above.keys() & below.keys()) > 1 else None
