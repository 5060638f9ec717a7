"""Loading alone: from timed blocks to the rows of the study's Table 2."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from parashot.errors import RecordError
from parashot.questions.loader.records import LoaderBlock
from parashot.questions.statistics import (
    Interval,
    Resampling,
    Rounds,
    by_round,
    median_interval,
    paired_ratio,
)


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


def loader_rows(blocks: Iterable[LoaderBlock], resampling: Resampling) -> list[LoaderRow]:
    """Return one row per backend and number of workers, in that order.

    Raises `RecordError` for a lone block.
    """
    settings: dict[tuple[str, int], list[LoaderBlock]] = {}
    for block in blocks:
        settings.setdefault((block.backend, block.workers), []).append(block)
    return [_row(settings[key], settings.get((key[0], 0), []), resampling) for key in sorted(settings)]


def batch_seconds(blocks: Iterable[LoaderBlock], backend: str) -> dict[int, Rounds]:
    """Seconds per batch of one backend: by workers, then by round."""
    own = (block for block in blocks if block.backend == backend)
    return dict(sorted(by_round(own, lambda each: each.workers, _seconds).items()))


def _row(blocks: list[LoaderBlock], base: list[LoaderBlock], resampling: Resampling) -> LoaderRow:
    first = blocks[0]
    if len(blocks) < 2:
        raise RecordError(
            f"results/loader/blocks.csv: one block of {first.backend} with {first.workers} workers, at least "
            "2 are needed; run `dvc repro -f -s loader-bench`"
        )
    rounds = by_round([*base, *blocks], lambda each: each.workers, _seconds)
    seconds = median_interval(list(rounds[first.workers].values()), resampling)
    speedup = paired_ratio(rounds[0], rounds[first.workers], resampling) if base else None
    return LoaderRow(
        backend=first.backend,
        workers=first.workers,
        blocks=len(blocks),
        seconds_per_batch=seconds,
        episodes_per_second=seconds.reciprocal(first.batchsz),
        speedup=speedup,
        efficiency=speedup.scaled(1 / max(first.workers, 1)) if speedup else None,
        first_batch_seconds=median(block.first_batch_seconds for block in blocks),
        memory_bytes=max(block.memory_bytes for block in blocks),
    )


def _seconds(block: LoaderBlock) -> float:
    return block.seconds / block.batches
