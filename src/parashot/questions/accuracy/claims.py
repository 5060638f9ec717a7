"""The claims of 2020 about accuracy and warm-up; does accuracy survive the strategy that is advised?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from parashot.questions.accuracy.records import WarmupRun
from parashot.questions.accuracy.rows import PRECISIONS, AccuracyComparison
from parashot.questions.advice import Advice
from parashot.questions.claim import Finding, UntestableError, Verdict, claim, needed
from parashot.questions.statistics import Interval, by_round, differences, repeated_interval
from parashot.questions.strategies.claims import choose_strategy
from parashot.questions.strategies.rows import BASE, StrategyRow
from parashot.questions.text import accuracy, listed, percent, points

if TYPE_CHECKING:
    from parashot.questions.study import Study


@claim(
    "accuracy-parity",
    "The accuracy is the same.",
    "DP 0.566, DDP 0.582: each the best of many validations, DDP after three times the episodes",
)
def parity(study: Study) -> Finding:
    """Holds if DP and DDP are one algorithm, by their gradients in float64, or else by several seeds.

    With several: equivalent within `claims.accuracy_margin` on the same validation episodes.
    """
    dp, ddp = (
        accuracy(each.val_accuracy or 0, each.val_accuracy_ci95)
        for each in (study.trained("dp"), study.trained("ddp"))
    )
    outcome = study.comparison("ddp", "dp")
    if outcome is None:
        raise UntestableError("the two trainings share no validation episodes; run `dvc repro`")
    measured = (
        f"DP {dp}, DDP {ddp}; DDP minus DP {points(outcome.difference)} "
        f"over {outcome.episodes} paired episodes, {outcome.trainings}"
    )
    if outcome.verdict == "one algorithm":
        return Finding(measured, "holds", "one algorithm: gradients in float64 differ by at most 1e-10")
    reason = f"the difference is {outcome.shown}"
    if outcome.seeds == 1:
        reason += "; set seeds_study.enabled=true"
    verdicts: dict[str, Verdict] = {"equivalent": "holds", "different": "does not hold"}
    return Finding(measured, verdicts.get(outcome.verdict, "undecided"), reason)


@claim("warmup-large-only", "Only very large batches need a warm-up of the learning rate.")
def warmup_large_only(study: Study) -> Finding:
    """Holds if warm-up brings accuracy at the largest size, and no more than the margin at the smallest."""
    runs = needed(study, "warmup", study.results.warmup)
    if not runs:
        raise UntestableError("warmup_study.enabled is false")
    sizes = {run.batchsz for run in runs}
    small, large = min(sizes), max(sizes)
    margin, confidence = study.params.claims.accuracy_margin, study.params.claims.confidence
    gains = {size: _gain(runs, size, confidence) for size in (small, large)}
    said = "; ".join(f"batchsz {size}: {points(gain)}" for size, gain in gains.items())
    measured = f"accuracy that warm-up brings, over {len({run.seed for run in runs})} seeds: {said}"
    if gains[large].high < margin:
        return Finding(measured, "does not hold", f"it brings less than {percent(margin)} at batchsz {large}")
    if gains[small].low > margin:
        return Finding(measured, "does not hold", f"it helps at batchsz {small}, too")
    is_open = [f"of batchsz {large} includes 0"] if gains[large].low <= 0 else []
    if gains[small].high >= margin:
        is_open.append(f"of batchsz {small} includes {percent(margin)}")
    if is_open:
        return Finding(measured, "undecided", f"the interval {listed(is_open)}; more seeds decide it")
    reason = f"it helps at batchsz {large}, and brings less than {percent(margin)} at {small}"
    return Finding(measured, "holds", reason)


def _gain(runs: Iterable[WarmupRun], size: int, confidence: float) -> Interval:
    """Accuracy with warm-up minus without, paired by seed."""
    own = [run for run in runs if run.batchsz == size]
    reached = by_round((run.warmup_steps > 0, run.seed, run.val_accuracy) for run in own)
    gains = differences(reached.get(True, {}), reached.get(False, {}))
    return repeated_interval(gains, confidence)


# --- advice ---------------------------------------------------------------------------------------------


def _same_algorithm(study: Study, row: StrategyRow) -> Advice:
    """Advice on a strategy whose gradients are those of one replica."""
    outcome = study.comparison(row.strategy, BASE)
    buys, phrase = "not both were trained", f"{BASE} and {row.strategy} compute the same gradients"
    sure = f"gradients in float64 differ by at most {row.gradient_difference:.0e}"
    if outcome is not None:
        buys = f"{row.strategy} minus {BASE}, {outcome.trainings}: {points(outcome.difference)}"
        sure += f"; the interval is over {outcome.over}"
        apart = f"{abs(100 * outcome.difference.value):.1f} points"
        phrase += f"; their accuracies are {apart} apart ({outcome.trainings})"
        if outcome.rounding is not None:
            buys += f"; a rerun of {BASE}, first weights off by 1e-7: {100 * outcome.rounding:+.1f} points"
            tune = study.results.tune
            if tune and tune.choices.precision == "bf16":
                sure += "; in bf16, the rerun understates what rounding does"
    return Advice("accuracy", "same algorithm", phrase, buys, sure, decided=True)


def advise_accuracy(study: Study) -> Advice:
    """Compare the advised strategy's accuracy with serial's, unless their gradients are equal.

    A training of each shows no difference: what sets two trainings apart is mostly luck. Where one process is
    advised, the fastest of the strategies whose gradients are equal shows what another would change.
    """
    row = study.strategies[choose_strategy(study).choice]
    if row.strategy == BASE:
        others = [each for each in study.strategies.values() if each.strategy != BASE]
        speedups = {
            each.variant: each.speedup.value for each in others if each.same_algorithm and each.speedup
        }
        if not speedups:
            phrase = "the accuracy is not affected: nothing is split over replicas"
            sure = "one replica's accuracy is what the others are compared with"
            return Advice("accuracy", "not affected", phrase, "nothing is split", sure, decided=True)
        row = study.strategies[max(speedups, key=speedups.__getitem__)]
    if row.same_algorithm:
        return _same_algorithm(study, row)
    outcome = study.comparison(row.strategy, BASE)
    if outcome is None:
        raise UntestableError(f"{row.strategy} and {BASE} were not both trained; run `dvc repro`")
    difference, trainings, choice = points(outcome.difference), outcome.trainings, _survival(outcome)
    shown = f"± {100 * outcome.margin:g} points" if choice == "survives" else difference
    phrase = f"the accuracy {choice} ({shown}, {trainings})"
    if choice == "open":
        phrase = f"{trainings} cannot tell whether the accuracy survives"
    return Advice(
        topic="accuracy",
        choice=choice,
        phrase=phrase,
        buys=f"{row.strategy} minus {BASE}: {difference}",
        sure=f"the difference is {outcome.shown}",
        decided=choice != "open",
        changes="" if outcome.seeds > 1 else "several trainings of each (seeds_study.enabled) decide it",
    )


def advise_precision(study: Study) -> Advice:
    """Say what bf16 does to accuracy, where steps are computed in it."""
    tune = needed(study, "tune", study.results.tune)
    topic, precision = "accuracy in bf16", tune.choices.precision
    if precision != "bf16":
        return Advice(topic, "not used", "", f"steps are computed in {precision}", "", decided=True)
    sizes = needed(study, "batchsz", study.results.batchsz)
    outcome = study.comparison(*PRECISIONS)
    if outcome is None:
        raise UntestableError("batch sizes, whose trainings it takes, were skipped")
    steps = max(each.steps for each in sizes.in_fp32)
    difference, pairs = points(outcome.difference), f"{outcome.seeds} pairs of trainings of {steps} steps"
    pretrained = ", after one pretraining in bf16" if study.params.pretrain.epochs else ""
    choice, phrase = _survival(outcome), f"{pairs} cannot tell whether bf16 changes the mean accuracy"
    if choice == "survives":
        phrase = f"in {pairs}, bf16 changes the mean accuracy by {difference}"
    elif choice != "open":
        phrase = f"with bf16 the accuracy {choice}: {difference}"
    return Advice(
        topic=topic,
        choice=choice,
        phrase=phrase,
        buys=f"bf16 minus fp32: {difference}",
        sure=f"the difference is {outcome.shown}; {pairs}{pretrained}, "
        f"validated on the same {study.params.train.val_episodes} episodes",
        decided=choice != "open",
        settings={"train.precision": "fp32"} if choice == "suffers" else {},
        changes="more seeds or seconds (batchsz_study) decide it" if choice == "open" else "",
    )


def _survival(outcome: AccuracyComparison) -> str:
    """Whether an accuracy survives, suffers or gains over seeds, or that is open."""
    if outcome.verdict == "different":
        return "suffers" if outcome.is_worse else "gains"
    return "survives" if outcome.verdict == "equivalent" else "open"
