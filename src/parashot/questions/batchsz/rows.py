"""Batch sizes: time to the same episodes under DDP, what the exchange takes, accuracy in the same time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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
    Rounds,
    by_round,
    differences,
    median_interval,
    paired_ratio,
    repeated_interval,
)


@dataclass(frozen=True, kw_only=True)
class BatchszRow(BatchszRun):
    """One batch size: its whole run with the study's limit, and interleaved blocks of it.

    `communication_share` is 1 - (seconds per episode without the exchange) / (seconds per episode with it);
    below 0 where the exchange is too short to be seen.
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
    val_accuracy: Interval  # mean over trainings
    difference: Interval | None  # to the baseline, paired by seed; None for the baseline
    baseline: int
    seconds_to_target: float | None  # median over seeds; None without a target, or where most lack it


def size_rows(
    trainings: Sequence[BatchszTraining], baseline: int, target: float | None, confidence: float
) -> list[SizeRow]:
    """Return one row per size, in the order of the sizes."""
    accuracies, times = reached(trainings), times_to_target(target, trainings)
    rows = []
    for size, by_seed in sorted(accuracies.items()):
        own = [each for each in in_equal_time(trainings) if each.batchsz == size]
        lead = differences(by_seed, accuracies[baseline])
        row = SizeRow(
            batchsz=size,
            seeds=len(own),
            steps=round(median(each.steps for each in own)),
            episodes=round(median(each.episodes for each in own)),
            learning_rate=own[0].learning_rate,
            val_accuracy=repeated_interval([*by_seed.values()], confidence),
            difference=repeated_interval(lead, confidence) if size != baseline else None,
            baseline=baseline,
            seconds_to_target=times.get(size),
        )
        rows.append(row)
    return rows


def in_equal_time(trainings: Sequence[BatchszTraining]) -> list[BatchszTraining]:
    """Trainings in the time that all sizes have, without those that went on towards the target."""
    least = min((each.seconds for each in trainings), default=0)
    return [each for each in trainings if each.seconds == least]


def reached(trainings: Sequence[BatchszTraining]) -> dict[int, dict[int, float]]:
    """Accuracy of each training in equal time: by size, then by seed."""
    return by_round((each.batchsz, each.seed, each.val_accuracy) for each in in_equal_time(trainings))


def times_to_target(target: float | None, trainings: Iterable[BatchszTraining]) -> dict[int, float]:
    """Seconds of the training that reaches the target, the last of its seed: by size, the median over seeds.

    A size of which half of the seeds lack it has none.
    """

    def seconds(last: BatchszTraining) -> float:
        return last.seconds if target is not None and last.val_accuracy >= target else math.inf

    times = by_round((each.batchsz, each.seed, seconds(each)) for each in trainings)
    medians = {size: median(by_seed.values()) for size, by_seed in times.items()}
    return {size: found for size, found in medians.items() if math.isfinite(found)}


def noise_scale(samples: Sequence[GradientSample], confidence: float) -> Interval | None:
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
    half = float(stdtrit(count - 1, (1 + confidence) / 2)) * error
    return Interval(1, math.exp(-half), math.exp(half)).scaled(float(whole))


def _noise(small: Floats, large: Floats, count: int) -> Floats:
    """Noise scale from the mean squared norm of single gradients and that of the mean of `count`."""
    covariance = (small - large) / (1 - 1 / count)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(covariance / (large - covariance / count))


def batchsz_rows(results: BatchszResults, baseline: int, confidence: float) -> list[BatchszRow]:
    """Return one row per size, in the order of the sizes; speedups are against the size `baseline`."""
    blocks, rows = results.blocks, []
    whole = next((each.seconds for each in results.runs if each.batchsz == baseline), None)

    def ratio(above: Rounds, below: Rounds) -> Interval | None:
        """Ratio over the rounds that measured both, or None where fewer than 2 did."""
        return paired_ratio(above, below, confidence) if len(above.keys() & below.keys()) > 1 else None

    for run in sorted(results.runs, key=lambda run: run.batchsz):
        own = episode_seconds(blocks, run.batchsz)
        rest = ratio(episode_seconds(blocks, run.batchsz, synchronised=False), own)
        row = BatchszRow(
            **asdict(run),
            run_speedup=whole / run.projected_seconds if whole and run.projected_seconds else None,
            seconds_per_episode=median_interval([*own.values()], confidence) if len(own) > 1 else None,
            speedup=ratio(episode_seconds(blocks, baseline), own),
            baseline=baseline,
            communication_share=Interval(1 - rest.value, 1 - rest.high, 1 - rest.low) if rest else None,
        )
        rows.append(row)
    return rows


def episode_seconds(
    blocks: Iterable[BatchszBlock], batchsz: int, *, synchronised: bool = True
) -> dict[int, float]:
    """Seconds per episode of one size, by round."""
    return {
        block.round: block.seconds / block.episodes
        for block in blocks
        if block.batchsz == batchsz and block.synchronised == synchronised
    }
