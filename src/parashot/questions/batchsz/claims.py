"""The study's claims about the number of episodes per step under DDP, and advice on it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from parashot.questions.advice import Advice, Choice
from parashot.questions.batchsz.rows import BatchszRow, episode_seconds
from parashot.questions.claim import Finding, Side, UntestableError, by_side, claim, needed
from parashot.questions.statistics import Interval, paired_ratio, tied_with_best
from parashot.questions.text import listed, percent, points, ratio, seconds, times

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


# --- advice ---------------------------------------------------------------------------------------------


def advise_batchsz(study: Study) -> Advice:
    """Advise the size with the least time per episode among those not shown to be less accurate.

    Less accurate by more than the margin, after the same budget. Where none learned that much above chance,
    accuracy says nothing. A size that was stopped has seen fewer episodes, so its accuracy counts against the
    others, not for it.
    """
    blocks = needed(study, "batchsz", study.results.batchsz).blocks
    baseline, margin = study.params.batchsz_study.baseline, study.params.claims.accuracy_margin
    base = study.batchsz.get(baseline)
    if base is None or base.status == "skipped":
        reason = f"batchsz was skipped: {base.reason}" if base else "the baseline was not measured"
        raise UntestableError(reason)
    timed = [row for row in study.batchsz.values() if row.seconds_per_episode]
    if not timed:
        raise UntestableError("no batch size has timed blocks; run `dvc repro`")
    leader = max(timed, key=lambda row: row.val_accuracy or 0)
    chance = 1 / study.params.episode.n_way
    learned = (leader.val_accuracy or 0) - (leader.val_accuracy_ci95 or 0) > chance + margin
    behind = [row for row in timed if learned and _less_accurate(row, leader, margin)]
    sound = {row.batchsz: episode_seconds(blocks, row.batchsz) for row in timed if row not in behind}
    best, ratios = tied_with_best(sound, study.resampling)
    choice, row = Choice(best, best, ratios), study.batchsz[best]
    faster = row.speedup if best != baseline else None
    phrase = f", {ratio(faster.value)}× as fast as {baseline}" if faster else ": no other size was faster"
    sure = choice.how_sure("size of that accuracy" if behind else "size")
    if behind and row.val_accuracy is not None:
        most = max(behind, key=lambda each: each.val_accuracy or 0)
        phrase = f": {_learned(row, 'accurate ')} steps ({most.batchsz}: {_learned(most)})"
        against = (f"{points(_difference(row, each))} against batchsz {each.batchsz}" for each in behind)
        sure += f"; accuracy {listed(against)}"
        if row.status == "stopped":
            sure += f", though stopped after {row.episodes} of {row.episodes_budget} episodes"
    elif not learned:
        sure += "; none learned more than chance here"
    return Advice(
        topic="batch size",
        choice=str(best),
        setting=f"train.batchsz={best}",
        phrase=f"take {best} episodes per step{phrase}",
        buys=f"{times(faster)} as fast as {baseline}" if faster else "nothing was faster",
        sure=sure,
        decided=not choice.others,
    )


def _less_accurate(row: BatchszRow, leader: BatchszRow, margin: float) -> bool:
    """Tell if a size is shown to lie below the leader by more than the margin."""
    return row.val_accuracy is not None and _difference(row, leader).high < -margin


def _difference(row: BatchszRow, other: BatchszRow) -> Interval:
    """Difference of two accuracies; unpaired, since the episodes of these runs are not kept."""
    half = math.hypot(row.val_accuracy_ci95 or 0, other.val_accuracy_ci95 or 0)
    return Interval.around((row.val_accuracy or 0) - (other.val_accuracy or 0), half)


def _learned(row: BatchszRow, word: str = "") -> str:
    """Say accuracy and steps of a whole run; on the same episodes a small batch takes more steps."""
    return f"{percent(row.val_accuracy or 0, 0)} {word}after {math.ceil(row.episodes / row.batchsz)}"
