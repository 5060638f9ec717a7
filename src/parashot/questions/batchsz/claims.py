"""The study's claims about the number of episodes per step under DDP."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parashot.questions.batchsz.rows import BatchszRow, episode_seconds
from parashot.questions.claim import Finding, Side, UntestableError, by_side, claim, needed
from parashot.questions.statistics import paired_ratio
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
    found = _judge(row, "below")
    agrees = {"holds": "stopped", "does not hold": "ok"}
    if agrees.get(found.verdict, row.status) == row.status:
        return found
    outcome = "was stopped" if row.status == "stopped" else "finished"
    return replace(found, verdict="undecided", reason=f"{found.reason}, but the whole run {outcome}")


@claim("large-batch", "batchsz 60 is faster than batchsz 30.", "73,824 s against 89,856 s: 1.22×")
def large(study: Study) -> Finding:
    """Holds if the large size takes less time per episode than the baseline."""
    sizes = [size for size in study.batchsz if size > study.params.batchsz_study.baseline]
    return _judge(_row(study, LARGE if LARGE in sizes else max(sizes, default=None)), "above")


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
        raise UntestableError("no two sizes were timed on two or more replicas")

    def rest(size: int) -> dict[int, float]:
        without, whole = (episode_seconds(blocks, size, synchronised=each) for each in (False, True))
        return {each: without[each] / whole[each] for each in without.keys() & whole.keys()}

    smallest, largest = min(shares), max(shares)
    ratio = paired_ratio(rest(largest), rest(smallest), study.resampling)
    said = listed(f"{size}: {percent(share)}" for size, share in shares.items())
    measured = f"share of a step that the exchange takes, by batchsz {said}"
    return by_side(measured, ratio, "above", f"the rest of a step, of batchsz {largest} over {smallest},")


def _row(study: Study, size: int | None) -> BatchszRow:
    """Row of a size that was compared with the baseline. Raises `UntestableError`."""
    needed(study, "batchsz", study.results.batchsz)
    if size is None:
        raise UntestableError("batchsz_study.sizes has no such size beside the baseline")
    row = study.batchsz[size]
    for each in (row, study.batchsz.get(row.baseline)):
        if each is not None and each.status == "skipped":
            raise UntestableError(f"batchsz {each.batchsz} was skipped: {each.reason}")
    return row


def _judge(row: BatchszRow, holds: Side) -> Finding:
    if row.speedup is None:
        raise UntestableError(f"batchsz {row.batchsz} and the baseline share fewer than 2 rounds")
    run = f"its run took {seconds(row.seconds or 0)}"
    if row.status == "stopped":
        projected = seconds(row.projected_seconds or 0)
        run = f"its run was stopped after {seconds(row.seconds or 0)}, projected {projected}"
    measured = f"batchsz {row.batchsz}: {times(row.speedup)} of batchsz {row.baseline} in blocks; {run}"
    return by_side(measured, row.speedup, holds, "its speedup")
