"""Advice on the number of episodes per step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from parashot.questions.advice import Advice, Choice
from parashot.questions.batchsz.rows import BatchszRow, episode_seconds
from parashot.questions.claim import UntestableError, needed
from parashot.questions.statistics import Interval, tied_with_best
from parashot.questions.text import listed, percent, points, ratio, times

if TYPE_CHECKING:
    from parashot.questions.study import Study


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
