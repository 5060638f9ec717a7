"""The study's claims about the number of episodes per step under DDP."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parashot.questions.batchsz.rows import BatchszRow, episode_seconds
from parashot.questions.claim import Finding, Side, UntestableError, by_ratio, claim, needed
from parashot.questions.statistics import paired, ratio_interval
from parashot.questions.text import listed, percent, seconds, times

if TYPE_CHECKING:
    from parashot.questions.study import Study

SMALL, LARGE = 2, 60


@claim(
    "small-batch",
    "batchsz 2 is slower than batchsz 30 under DDP, so slow that it was stopped.",
    "stopped after 89,856 s",
)
def small(study: Study) -> Finding:
    """Holds if the small size takes more time per episode than the baseline, and was stopped at its time."""
    sizes = [size for size in study.batchsz if size < study.params.batchsz_study.baseline]
    row = _row(study, SMALL if SMALL in sizes else min(sizes, default=None))
    found = _judge(study, row, "below")
    agrees = {"holds": "stopped", "does not hold": "ok"}
    if agrees.get(found.verdict, row.status) != row.status:
        outcome = "was stopped" if row.status == "stopped" else "finished"
        return replace(found, verdict="undecided", reason=f"{found.reason}, but the whole run {outcome}")
    return found


@claim("large-batch", "batchsz 60 is faster than batchsz 30.", "73,824 s against 89,856 s: 1.22×")
def large(study: Study) -> Finding:
    """Holds if the large size takes less time per episode than the baseline."""
    sizes = [size for size in study.batchsz if size > study.params.batchsz_study.baseline]
    return _judge(study, _row(study, LARGE if LARGE in sizes else max(sizes, default=None)), "above")


@claim("comm-share", "The share of time in communication falls as batchsz grows.")
def comm_share(study: Study) -> Finding:
    """Holds if the part of a step without the exchange grows from the smallest size to the largest."""
    blocks = needed(study, "batchsz", study.results.batchsz).blocks
    shares = {
        size: row.communication_share.value
        for size, row in sorted(study.batchsz.items())
        if row.communication_share and row.replicas > 1
    }
    if len(shares) < 2:
        raise UntestableError("two sizes on two or more replicas are needed, with and without the exchange")
    smallest, *_, largest = shares
    parts = []
    for size in (largest, smallest):
        without, whole = (episode_seconds(blocks, size, synchronised=each) for each in (False, True))
        parts.append({each: without[each] / whole[each] for each in without.keys() & whole.keys()})
    said = listed(f"{size}: {percent(share)}" for size, share in shares.items())
    measured = f"share of a step that the exchange takes, by batchsz {said}"
    ratio = ratio_interval(*paired(*parts), study.resampling)
    name = f"the rest of a step, of batchsz {largest} over {smallest},"
    return by_ratio(study, measured, ratio, "above", name)


def _row(study: Study, size: int | None) -> BatchszRow:
    """Row of a size that was compared with the baseline. Raises `UntestableError`."""
    needed(study, "batchsz", study.results.batchsz)
    if size is None:
        raise UntestableError("batchsz_study.sizes has no such size beside the baseline")
    for each in (study.batchsz[size], study.batchsz.get(study.params.batchsz_study.baseline)):
        if each is not None and each.status == "skipped":
            raise UntestableError(f"batchsz {each.batchsz} was skipped: {each.reason}")
    return study.batchsz[size]


def _judge(study: Study, row: BatchszRow, holds: Side) -> Finding:
    if row.speedup is None:
        raise UntestableError(f"batchsz {row.batchsz} and the baseline share fewer than 2 rounds of blocks")
    measured = (
        f"batchsz {row.batchsz}: {times(row.speedup)} of batchsz {row.baseline} in blocks; {_whole_run(row)}"
    )
    return by_ratio(study, measured, row.speedup, holds, "its speedup")


def _whole_run(row: BatchszRow) -> str:
    if row.seconds is None or row.projected_seconds is None:
        return "no whole run"
    if row.status == "stopped":
        return f"its run was stopped after {seconds(row.seconds)}, projected {seconds(row.projected_seconds)}"
    return f"its run took {seconds(row.seconds)}"
