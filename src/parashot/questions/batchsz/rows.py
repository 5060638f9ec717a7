"""Batch sizes under DDP: time to the same episodes, and the share of it spent in exchanging gradients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from parashot.questions.batchsz.records import BatchszBlock, BatchszResults, BatchszRun
from parashot.questions.statistics import Interval, Resampling, Rounds, median_interval, paired_ratio


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
