"""Loading alone: from timed blocks to the rows of the study's Table 2."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from parashot.questions.loader.records import LoaderBlock
from parashot.questions.statistics import Interval, Rounds, by_round, median_interval, paired_ratio


@dataclass(frozen=True)
class LoaderRow:
    """One loader setting. `speedup` S_p and `efficiency` E_p are against no workers with the same backend."""

    backend: str
    workers: int
    blocks: int
    seconds_per_batch: Interval
    episodes_per_second: Interval
    speedup: Interval | None  # None where no workers was not measured
    efficiency: Interval | None  # S_p / p of p workers; S_p itself where p is 0
    first_batch_seconds: float  # median, from making the loader to its first batch
    memory_bytes: int  # the largest seen


def loader_rows(blocks: Sequence[LoaderBlock], confidence: float) -> list[LoaderRow]:
    """Return one row per backend and number of workers, in that order."""
    rows = []
    for backend in sorted({each.backend for each in blocks}):
        by_workers = batch_seconds(blocks, backend)
        for workers, own in by_workers.items():
            mine = [each for each in blocks if (each.backend, each.workers) == (backend, workers)]
            seconds = median_interval([*own.values()], confidence)
            speedup = paired_ratio(by_workers[0], own, confidence) if 0 in by_workers else None
            row = LoaderRow(
                backend=backend,
                workers=workers,
                blocks=len(mine),
                seconds_per_batch=seconds,
                episodes_per_second=seconds.reciprocal(mine[0].batchsz),
                speedup=speedup,
                efficiency=speedup.scaled(1 / max(workers, 1)) if speedup else None,
                first_batch_seconds=median(each.first_batch_seconds for each in mine),
                memory_bytes=max(each.memory_bytes for each in mine),
            )
            rows.append(row)
    return rows


def batch_seconds(blocks: Iterable[LoaderBlock], backend: str) -> dict[int, Rounds]:
    """Seconds per batch of one backend: by workers, in their order, then by round."""
    own = [each for each in blocks if each.backend == backend]
    rounds = by_round((each.workers, each.round, each.seconds / each.batches) for each in own)
    return dict(sorted(rounds.items()))
