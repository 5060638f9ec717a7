"""How many episodes to take per step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from parashot.questions.advised import Advice, how_sure, is_decided
from parashot.questions.batchsz.rows import BatchszRow, episode_seconds
from parashot.questions.evidence import Evidence, UntestableError
from parashot.questions.statistics import Interval, tied_with_best
from parashot.questions.text import percent, points, ratio, times


def advise_batchsz(evidence: Evidence) -> Advice:
    """The size with the least time per episode among those not shown to be less accurate on the same budget.

    What counts is more than the margin. Where none learned that much above chance, accuracy says nothing. A
    size that was stopped has seen fewer episodes, so its accuracy counts against the others, not for it.
    """
    if evidence.results.batchsz is None:
        raise UntestableError(evidence.why_missing("batchsz"))
    baseline = evidence.params.batchsz_study.baseline
    base = evidence.batchsz.get(baseline)
    if base is None or base.status == "skipped":
        raise UntestableError(
            f"batchsz was skipped: {base.reason}" if base else "the baseline was not measured"
        )
    timed = {row.batchsz: row for row in evidence.batchsz.values() if row.seconds_per_episode}
    if not timed:
        raise UntestableError("no batch size has timed blocks; run `dvc repro`")
    leader = max(timed.values(), key=lambda row: row.val_accuracy or 0)
    margin = evidence.params.claims.accuracy_margin
    learned = _above(leader, 1 / evidence.params.episode.n_way + margin)
    sound = [row.batchsz for row in timed.values() if not (learned and _less_accurate(row, leader, margin))]
    blocks = evidence.results.batchsz.blocks
    best, ratios = tied_with_best(
        {size: episode_seconds(blocks, size) for size in sound}, evidence.resampling
    )
    row = timed[best]
    speed = row.speedup if best != baseline else None
    pace = f"{times(speed)} as fast as {baseline}" if speed else "nothing was faster"
    return Advice(
        topic="batch size",
        choice=str(best),
        setting=f"train.batchsz={best}",
        phrase=f"take {best} episodes per step{_why_this_size(row, timed, sound, baseline)}",
        buys=pace,
        sure=how_sure(ratios, "size of that accuracy" if len(sound) < len(timed) else "size")
        + (_batchsz_accuracy(row, timed, sound) if learned else "; none learned more than chance here"),
        decided=is_decided(ratios),
    )


def _why_this_size(
    row: BatchszRow, timed: Mapping[int, BatchszRow], sound: Iterable[int], baseline: int
) -> str:
    """What the size buys: speed, or accuracy where faster ones fell behind."""
    behind = [each for size, each in timed.items() if size not in sound]
    if behind and row.val_accuracy is not None:
        best = max(behind, key=lambda each: each.val_accuracy or 0)
        other = f"{best.batchsz}: {_percent(best)} after {_steps(best)}"
        return f": {_percent(row)} accurate after {_steps(row)} steps ({other})"
    if row.batchsz == baseline:
        return ": no other size was faster"
    return f", {ratio(row.speedup.value)}× as fast as {baseline}" if row.speedup else ""


def _percent(row: BatchszRow) -> str:
    return percent(row.val_accuracy or 0, 0)


def _steps(row: BatchszRow) -> int:
    """On the same episodes a small batch takes more of them."""
    return math.ceil(row.episodes / row.batchsz)


def _less_accurate(row: BatchszRow, leader: BatchszRow, margin: float) -> bool:
    """Whether it is shown to lie below the leader by more than the margin.

    Unpaired: the episodes of these runs are not kept.
    """
    difference = _accuracy_difference(row, leader)
    return difference is not None and difference.high < -margin


def _above(row: BatchszRow, accuracy: float) -> bool:
    """Whether its accuracy is shown to lie above that."""
    return (row.val_accuracy or 0) - (row.val_accuracy_ci95 or 0) > accuracy


def _accuracy_difference(row: BatchszRow, other: BatchszRow) -> Interval | None:
    if row.val_accuracy is None or other.val_accuracy is None or row.batchsz == other.batchsz:
        return None
    half = math.hypot(row.val_accuracy_ci95 or 0, other.val_accuracy_ci95 or 0)
    difference = row.val_accuracy - other.val_accuracy
    return Interval(difference, difference - half, difference + half)


def _batchsz_accuracy(row: BatchszRow, timed: Mapping[int, BatchszRow], sound: Iterable[int]) -> str:
    """How its accuracy stands to that of the sizes that fell behind; of a stopped one, after how much."""
    behind = [
        f"{points(difference)} against batchsz {size}"
        for size, each in timed.items()
        if size not in sound and (difference := _accuracy_difference(row, each))
    ]
    stopped = f", though stopped after {row.episodes} of {row.episodes_budget} episodes"
    return f"; accuracy {', '.join(behind)}{stopped if row.status == 'stopped' else ''}" if behind else ""
