"""The claims of 2020 about the number of episodes per step under DDP, and advice on it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from parashot.questions.advice import Advice, Choice
from parashot.questions.batchsz.rows import BatchszRow, episode_seconds, reached
from parashot.questions.claim import Finding, Side, UntestableError, by_side, claim, needed
from parashot.questions.statistics import Ranking, paired_ratio
from parashot.questions.text import listed, percent, points, seconds, times, within

if TYPE_CHECKING:
    from parashot.parsing import Value
    from parashot.questions.study import Study

SMALL, BASELINE, LARGE = 2, 30, 60


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
    most = max((row.replicas for row in study.batchsz.values()), default=0)
    shares = {
        size: row.communication_share.value
        for size, row in sorted(study.batchsz.items())
        if row.communication_share and row.replicas == most > 1
    }
    if len(shares) < 2:
        raise UntestableError("no two sizes were timed on the same two or more replicas")

    def rest(size: int) -> dict[int, float]:
        whole, without = episode_seconds(blocks, size), episode_seconds(blocks, size, synchronised=False)
        return {each: without[each] / whole[each] for each in without.keys() & whole.keys()}

    smallest, largest = min(shares), max(shares)
    ratio = paired_ratio(rest(largest), rest(smallest), study.confidence)
    said = listed(f"{size}: {percent(share)}" for size, share in shares.items())
    measured = f"share of a step that the exchange takes, by batchsz {said}"
    return by_side(measured, ratio, "above", f"the rest of a step, of batchsz {largest} over {smallest},")


def _row(study: Study, size: int | None) -> BatchszRow:
    """Row of a size that was compared with the baseline. Raises `UntestableError`."""
    needed(study, "batchsz", study.results.batchsz)
    if size is None:
        raise UntestableError("batchsz_study.sizes has no such size beside the baseline")
    row = study.batchsz[size]
    if row.status == "skipped":
        raise UntestableError(f"batchsz {size} was skipped: {row.reason}")
    return row


def _judge(row: BatchszRow, holds: Side) -> Finding:
    if row.speedup is None:
        raise UntestableError(f"batchsz {row.batchsz} and the baseline share fewer than 2 rounds")
    took, projected = seconds(row.seconds or 0), seconds(row.projected_seconds or 0)
    run = f"its run took {took}"
    if row.status == "stopped":
        run = f"its run was stopped after {took}, projected {projected}"
    measured = f"batchsz {row.batchsz}: {times(row.speedup)} of batchsz {row.baseline} in blocks; {run}"
    found = by_side(measured, row.speedup, holds, "its speedup")
    if row.baseline == BASELINE and row.batchsz in (SMALL, LARGE):
        return found
    other = SMALL if row.batchsz < row.baseline else LARGE
    stand_in = f"{row.batchsz} and {row.baseline} stand in for {other} and {BASELINE}"
    return replace(found, reason=f"{found.reason}; {stand_in}")


# --- advice ---------------------------------------------------------------------------------------------


def advise_batchsz(study: Study) -> Advice:
    """Advise the size that reaches the highest accuracy in the same time, over several seeds.

    The size of the trainings, or the baseline, where it may be as good within `claims.accuracy_margin`, and
    also where nothing is decided.
    """
    knobs, claims = study.params.batchsz_study, study.params.claims
    trainings = needed(study, "batchsz", study.results.batchsz).trainings
    found = reached(trainings)
    if not found:
        reasons = {row.reason for row in study.batchsz.values() if row.status == "skipped"}
        raise UntestableError(f"batch sizes were skipped: {listed(reasons)}")
    usual = [each for each in (study.params.train.batchsz, knobs.baseline) if each in found]
    ranking = Ranking.by_accuracy(found, study.confidence, claims.accuracy_margin)
    choice = Choice.of(ranking, (*usual, ranking.best)[0], usual, better=())
    best, rows = choice.choice, {row.batchsz: row for row in study.sizes}
    trained: dict[str, Value] = {"train.lr_scaling": knobs.lr_scaling, "train.schedule": "cosine"}
    if study.params.train.accumulate > best:  # as `TrainParams.of_size` trained it
        trained["train.accumulate"] = best
    in_time = f"in the steps that DDP takes in {seconds(knobs.seconds)}"
    said = f"{percent(rows[best].val_accuracy.value)} {in_time}, the mean of {rows[best].seeds} seeds"
    sure = f"shown to be within {100 * claims.accuracy_margin:g} points of the best of {listed(found)}"
    if not choice.decided:
        sure = choice.doubt
        if best != ranking.best:
            sure += f"; accuracy with {ranking.best} minus with {best}: {points(ranking.behind[best])}"
    elif not choice.others and len(found) > 1:
        name, behind = choice.next_best
        sure = f"more accurate than every other size: {name} lacks {points(behind)}"
    sure += f"; validated on the same {study.params.train.val_episodes} episodes"
    if study.noise_scale:
        scale = within(study.noise_scale, "episodes")
        sure += f"; sizes far above the gradient noise scale, {scale}, gain little"
    return Advice(
        topic="batch size",
        choice=str(best),
        phrase=f"{'keep' if best == study.params.train.batchsz else 'take'} {best} episodes per step",
        buys=said,
        sure=sure,
        decided=choice.decided,
        settings={"train.batchsz": best, **trained} if choice.decided else {},
        changes=choice.open_until("more seeds or seconds (batchsz_study)"),
    )
