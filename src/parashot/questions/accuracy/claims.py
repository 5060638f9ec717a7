"""The study's claims about accuracy: DP's against DDP's, and a warm-up of the learning rate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from parashot.questions.accuracy.records import WarmupRun
from parashot.questions.claim import Finding, UntestableError, Verdict, claim, needed
from parashot.questions.statistics import Interval, paired, repeated_interval
from parashot.questions.text import accuracy, percent, points

if TYPE_CHECKING:
    from parashot.questions.study import Study


@claim(
    "accuracy-parity",
    "The accuracy is the same.",
    "DP 0.566, DDP 0.582: each the best of many validations",
)
def parity(study: Study) -> Finding:
    """Holds if DP and DDP are equivalent within `claims.accuracy_margin` on the same validation episodes."""
    said = []
    for name in ("dp", "ddp"):
        trained = study.trained(name)
        known = trained.val_accuracy is not None
        said.append(accuracy(trained.val_accuracy or 0, trained.val_accuracy_ci95) if known else "unknown")
    outcome = study.comparison("ddp", "dp")
    if outcome is None:
        raise UntestableError("the two trainings share no validation episodes; run `dvc repro`")
    measured = (
        f"DP {said[0]}, DDP {said[1]}; DDP minus DP {points(outcome.difference)} "
        f"over {outcome.episodes} paired episodes, {outcome.trainings}"
    )
    verdicts: dict[str, Verdict] = {"equivalent": "holds", "different": "does not hold"}
    reason = f"the difference is {outcome.shown}"
    if outcome.seeds == 1:
        reason += "; the luck of a seed is not in the interval (seeds_study.enabled is false)"
    return Finding(measured, verdicts.get(outcome.verdict, "undecided"), reason)


@claim("warmup-large-only", "Only very large batches need a warm-up of the learning rate.")
def warmup_large_only(study: Study) -> Finding:
    """Holds if warm-up brings accuracy at the largest size, and no more than the margin at the smallest."""
    runs = needed(study, "warmup", study.results.warmup)
    if not runs:
        raise UntestableError(
            "warmup_study.enabled is false; `dvc exp run -S warmup_study.enabled=true` trains what it takes"
        )
    sizes = sorted({run.batchsz for run in runs})
    small, large = sizes[0], sizes[-1]
    margin = study.params.claims.accuracy_margin
    gains = {size: _gain(runs, size, study.resampling.confidence) for size in (small, large)}
    said = "; ".join(f"batchsz {size}: {points(gain)}" for size, gain in gains.items())
    measured = f"accuracy that warm-up brings, over {len({run.seed for run in runs})} seeds: {said}"
    is_needed = {size: gain.low > 0 and gain.high >= margin for size, gain in gains.items()}
    is_open = [str(size) for size, gain in gains.items() if gain.low <= 0 and gain.high >= margin]
    if gains[large].high < margin:
        return Finding(measured, "does not hold", f"it brings less than {percent(margin)} at batchsz {large}")
    if is_needed[small]:
        return Finding(measured, "does not hold", f"it helps at batchsz {small}, too")
    if not is_open:
        reason = f"it helps at batchsz {large}, and brings less than {percent(margin)} at {small}"
        return Finding(measured, "holds", reason)
    where = " and ".join(is_open)
    reason = f"at batchsz {where} the interval includes both 0 and {percent(margin)}; more seeds decide it"
    return Finding(measured, "undecided", reason)


def _gain(runs: Iterable[WarmupRun], size: int, confidence: float) -> Interval:
    """Accuracy with warm-up minus without, paired by seed."""
    reached: dict[bool, dict[int, float]] = {True: {}, False: {}}
    for run in runs:
        if run.batchsz == size:
            reached[run.warmup_steps > 0][run.seed] = run.val_accuracy
    warmed, plain = paired(reached[True], reached[False])
    if len(warmed) < 3:
        raise UntestableError(f"batchsz {size} was trained with fewer than 3 seeds")
    return repeated_interval(warmed - plain, confidence)
