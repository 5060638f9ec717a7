"""The study's claims about the number of episodes per step under DDP."""

from __future__ import annotations

from parashot.questions.batchsz.rows import BatchszRow, episode_seconds
from parashot.questions.evidence import Evidence, Finding, UntestableError, judged
from parashot.questions.statistics import Interval, paired, ratio_interval
from parashot.questions.text import listed, percent, seconds, times

SMALL, LARGE = 2, 60


def small_batch(evidence: Evidence) -> Finding:
    """Holds if the small size takes more time per episode than the baseline, and was stopped at its time."""
    sizes = [size for size in evidence.batchsz if size < evidence.params.batchsz_study.baseline]
    row, speedup = _measured(evidence, SMALL if SMALL in sizes else min(sizes, default=None))
    measured = (
        f"batchsz {row.batchsz}: {times(speedup)} of batchsz {row.baseline} in blocks; {_whole_run(row)}"
    )
    finding = judged(measured, speedup, "below", "its speedup", evidence.resampling.confidence)
    agrees = {"holds": "stopped", "does not hold": "ok"}
    if agrees.get(finding.verdict, row.status) != row.status:
        outcome = "was stopped" if row.status == "stopped" else "finished"
        return Finding(measured, "undecided", f"{finding.reason}, but the whole run {outcome}")
    return finding


def large_batch(evidence: Evidence) -> Finding:
    """Holds if the large size takes less time per episode than the baseline."""
    sizes = [size for size in evidence.batchsz if size > evidence.params.batchsz_study.baseline]
    row, speedup = _measured(evidence, LARGE if LARGE in sizes else max(sizes, default=None))
    measured = (
        f"batchsz {row.batchsz}: {times(speedup)} of batchsz {row.baseline} in blocks; {_whole_run(row)}"
    )
    return judged(measured, speedup, "above", "its speedup", evidence.resampling.confidence)


def comm_share(evidence: Evidence) -> Finding:
    """Holds if the part of a step without the exchange grows from the smallest size to the largest."""
    if evidence.results.batchsz is None:
        raise UntestableError(evidence.why_missing("batchsz"))
    rows = [row for row in evidence.batchsz.values() if row.communication_share and row.replicas > 1]
    if len(rows) < 2:
        raise UntestableError("two sizes on two or more replicas are needed, with and without the exchange")
    small, large = min(rows, key=lambda row: row.batchsz), max(rows, key=lambda row: row.batchsz)
    parts = [_computing_part(evidence, row.batchsz) for row in (large, small)]
    ratio = ratio_interval(*paired(*parts), evidence.resampling)
    shares = [row.communication_share for row in rows if row.communication_share]
    said = [f"{row.batchsz}: {percent(share.value)}" for row, share in zip(rows, shares, strict=True)]
    measured = f"share of a step that the exchange takes, by batchsz {listed(said)}"
    what = f"the rest of a step, of batchsz {large.batchsz} over {small.batchsz},"
    return judged(measured, ratio, "above", what, evidence.resampling.confidence)


def _computing_part(evidence: Evidence, size: int) -> dict[int, float]:
    """By round: time without the exchange over time with it."""
    assert evidence.results.batchsz is not None
    blocks = evidence.results.batchsz.blocks
    whole = episode_seconds(blocks, size)
    return {
        number: seconds / whole[number]
        for number, seconds in episode_seconds(blocks, size, synchronised=False).items()
        if number in whole
    }


def _measured(evidence: Evidence, size: int | None) -> tuple[BatchszRow, Interval]:
    """The row of a size, with its speedup over the baseline."""
    if evidence.results.batchsz is None:
        raise UntestableError(evidence.why_missing("batchsz"))
    if size is None:
        raise UntestableError("batchsz_study.sizes has no such size beside the baseline")
    row, baseline = evidence.batchsz[size], evidence.batchsz.get(evidence.params.batchsz_study.baseline)
    for each in (row, baseline):
        if each is not None and each.status == "skipped":
            raise UntestableError(f"batchsz {each.batchsz} was skipped: {each.reason}")
    if row.speedup is None:
        raise UntestableError(f"batchsz {size} and the baseline share fewer than 2 rounds of blocks")
    return row, row.speedup


def _whole_run(row: BatchszRow) -> str:
    if row.seconds is None or row.projected_seconds is None:
        return "no whole run"
    if row.status == "stopped":
        return f"its run was stopped after {seconds(row.seconds)}, projected {seconds(row.projected_seconds)}"
    return f"its run took {seconds(row.seconds)}"
