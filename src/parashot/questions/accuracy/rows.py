"""Rows of the tables on accuracy: comparisons of trainings, tasks, and time to accuracy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace

from parashot.params import ClaimsParams
from parashot.questions.accuracy.records import Training
from parashot.questions.statistics import (
    Interval,
    Values,
    by_round,
    differences,
    equivalence,
    mean_interval,
    repeated_interval,
)
from parashot.questions.study2020 import BEST_VALIDATION
from parashot.train.records import EpisodeAccuracy, TaskAccuracy

# --- do two trainings reach the same accuracy? ------------------------------------------------------------

PRECISIONS = ("bf16", "fp32")


@dataclass(frozen=True)
class AccuracyComparison:
    """One training against another on the same validation episodes; `difference` is first minus second.

    The episodes of a split are the same for every strategy, so trainings are compared episode by episode.
    Where several seeds were trained (`seeds_study`) the interval is over trainings, on these episodes. With
    one training each it is over episodes: it tells these two networks apart, and decides nothing about the
    strategies, unless their gradients in float64 are equal: then they are one algorithm. The interval is the
    one that `verdict` rests on: at 90% where two one-sided tests at 95% have shown them to be equivalent.
    """

    first: str
    second: str
    episodes: int
    difference: Interval
    margin: float
    verdict: str  # equivalent | different | undecided | one algorithm
    seeds: int = 1
    rounding: float | None = None  # difference of the twin of `second`, which rounding alone sets apart
    confidence: float = 0.95  # of the interval

    @property
    def shown(self) -> str:
        """Outcome of the test of the difference, in words."""
        if self.seeds == 1:
            return "of one training each, whose luck is not in its interval"
        words = {
            "equivalent": "shown to lie within",
            "different": "shown to lie outside of",
            "undecided": "neither shown to lie within nor outside of",
        }
        interval = f", by a {self.confidence:.0%} interval" if self.verdict == "equivalent" else ""
        return f"{words[self.verdict]} ± {100 * self.margin:g} points{interval}"

    @property
    def trainings(self) -> str:
        """Number of trainings of each, in words."""
        return f"{self.seeds} seeds" if self.seeds > 1 else "one training each"

    @property
    def over(self) -> str:
        """What the interval is over, in words."""
        return f"trainings, {self.seeds} of each" if self.seeds > 1 else "episodes, of these two networks"


def comparisons(
    trainings: Mapping[str, Training], base: str, claims: ClaimsParams, same_algorithm: Collection[str]
) -> list[AccuracyComparison]:
    """Compare every training with `base`, and DDP's with DP's, where both share 2 episodes or more.

    same_algorithm: strategies whose gradients are those of `base`.
    """
    pairs = [(name, base) for name in trainings if name != base] + [("ddp", "dp")]
    compared = (
        compare(trainings[first], trainings[second], claims.accuracy_margin, claims.confidence)
        for first, second in pairs
        if first in trainings and second in trainings
    )
    alike = {base, *same_algorithm}
    return [
        replace(each, verdict="one algorithm") if {each.first, each.second} <= alike else each
        for each in compared
        if each
    ]


def compare(first: Training, second: Training, margin: float, confidence: float) -> AccuracyComparison | None:
    """Compare two trainings over all seeds of both, or one training each where fewer than 3 are shared.

    Returns None where they share fewer than 2 episodes.
    """
    ours, theirs = _by_seed(first), _by_seed(second)
    by_seed = [differences(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]
    shared = [each for each in by_seed if len(each)]
    names = (first.result.strategy, second.result.strategy)
    if len(shared) > 2:
        means = [float(each.mean()) for each in shared]
        found = compare_trainings(*names, means, len(shared[-1]), margin, confidence)
    else:
        lead = differences(_by_episode(first.val_episodes), _by_episode(second.val_episodes))
        if len(lead) < 2:
            return None
        over_episodes = mean_interval(lead, confidence)
        found = AccuracyComparison(
            *names, len(lead), over_episodes, margin, "undecided", confidence=confidence
        )
    rounding = differences(_by_episode(second.twin), _by_episode(second.val_episodes))
    return replace(found, rounding=float(rounding.mean()) if len(rounding) else None)


def compare_trainings(
    first: str, second: str, paired: Values, episodes: int, margin: float, confidence: float
) -> AccuracyComparison:
    """Compare two ways of training by the differences of at least 3 pairs, each over so many `episodes`."""
    verdict = equivalence(paired, margin, confidence)
    level = 2 * confidence - 1 if verdict == "equivalent" else confidence
    difference, seeds = repeated_interval(paired, level), len(paired)
    return AccuracyComparison(first, second, episodes, difference, margin, verdict, seeds, confidence=level)


def compare_precisions(
    half: Mapping[int, float], full: Mapping[int, float], episodes: int, claims: ClaimsParams
) -> AccuracyComparison | None:
    """Compare accuracies in bf16 and in fp32, both by seed; None where they share fewer than 3 seeds."""
    paired = differences(half, full)
    if len(paired) < 3:
        return None
    return compare_trainings(*PRECISIONS, paired, episodes, claims.accuracy_margin, claims.confidence)


def _by_seed(training: Training) -> dict[int, dict[int, float]]:
    return by_round((row.seed, row.episode, row.accuracy) for row in training.seeds)


def _by_episode(rows: Iterable[EpisodeAccuracy]) -> dict[int, float]:
    return {row.episode: row.accuracy for row in rows}


# --- on the test split ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskRow(TaskAccuracy):
    """Episodes of one shape, with a verdict on the paired margin over the cosine of the same embedding.

    A head that begins as a residual on the cosine has margin 0 without having learned: only an interval
    above 0 is a `gain`; one below is a `loss`, any other `no gain`.
    """

    verdict: str


def task_rows(tasks: Iterable[TaskAccuracy]) -> list[TaskRow]:
    """Judge every task."""
    words = {"above": "gain", "around": "no gain", "below": "loss"}
    return [
        TaskRow(**asdict(task), verdict=words[Interval.around(task.margin, task.margin_ci95).side_of(0)])
        for task in tasks
    ]


# --- time to accuracy -------------------------------------------------------------------------------------

LEVELS = (0.50, 0.55, BEST_VALIDATION, 0.62)


@dataclass(frozen=True)
class TimeToAccuracy:
    """Seconds of one training until validation stays at or above some accuracies, pretraining counted in.

    None where a level was not reached, or where the time was not one window.
    """

    strategy: str
    pretraining_seconds: float | None
    training_seconds: float | None
    images: int  # seen, over pretraining and training
    val_accuracy: float
    val_accuracy_ci95: float
    seconds_to_50: float | None
    seconds_to_55: float | None
    seconds_to_58_2: float | None
    seconds_to_62: float | None


def time_to_accuracy(
    trainings: Iterable[Training], pretraining: Training | None, images_per_episode: int
) -> list[TimeToAccuracy]:
    """Return a row for each training that ran to its end."""
    before = pretraining.result if pretraining else None
    rows = []
    for training in trainings:
        result = training.result
        if result.val_accuracy is None:
            continue
        in_one_window = result.seconds is not None and not (before and before.seconds is None)
        validated = validations(training, pretraining) if in_one_window else []
        rows.append(
            TimeToAccuracy(
                result.strategy,
                before.seconds if before else 0.0,
                result.seconds,
                (before.items if before else 0) + result.items * images_per_episode,
                result.val_accuracy,
                result.val_accuracy_ci95 or 0.0,
                *(seconds_to(level, validated) for level in LEVELS),
            )
        )
    return rows


def before_training(pretraining: Training | None) -> float:
    """Seconds that pretraining took before the first episode; 0 without one."""
    return pretraining.history[-1].seconds if pretraining and pretraining.history else 0.0


def validations(training: Training, pretraining: Training | None) -> list[tuple[float, float]]:
    """Seconds and accuracy of every validation, counted from the first step of pretraining."""
    begun = before_training(pretraining)
    return [
        (begun + row.seconds, row.val_accuracy) for row in training.history if row.val_accuracy is not None
    ]


def seconds_to(level: float, validations: Iterable[tuple[float, float]]) -> float | None:
    """Seconds until accuracy has come to `level` and stays there; None where it has not.

    validations: seconds and accuracy. The best of many noisy validations is passed by luck, and says little.
    """
    reached = None
    for seconds, accuracy in validations:
        if accuracy < level:
            reached = None
        elif reached is None:
            reached = seconds
    return reached
