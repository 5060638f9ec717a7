"""Seconds of training until validation stays at or above some accuracies, pretraining counted in.

A level is reached at the first validation from which on none falls below it: the best of many noisy
validations is passed by luck, and says little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from parashot.questions.accuracy.results import Training
from parashot.questions.study2020 import BEST_VALIDATION

LEVELS = (0.50, 0.55, BEST_VALIDATION, 0.62)
Timed = tuple[float, float]
"""Seconds of training so far, and the validation accuracy there."""


@dataclass(frozen=True)
class TimeToAccuracy:
    """One training; None where a level was not reached, or where the time was not one window."""

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
    trainings: Mapping[str, Training], pretraining: Training | None, images_per_episode: int
) -> list[TimeToAccuracy]:
    """Return a row for each training that ran to its end."""
    return [
        _row(training, pretraining, images_per_episode)
        for training in trainings.values()
        if training.result.val_accuracy is not None
    ]


def before_training(pretraining: Training | None) -> float:
    """Seconds that pretraining took before the first episode; 0 without one."""
    return pretraining.history[-1].seconds if pretraining and pretraining.history else 0.0


def validations(training: Training, pretraining: Training | None) -> list[Timed]:
    """Every validation of a training, its time counted from the first step of pretraining."""
    begun = before_training(pretraining)
    return [
        (begun + row.seconds, row.val_accuracy) for row in training.history if row.val_accuracy is not None
    ]


def seconds_to(level: float, points: Iterable[Timed]) -> float | None:
    """Seconds until accuracy has come to `level` and stays there; None where it has not."""
    reached = None
    for seconds, accuracy in points:
        if accuracy < level:
            reached = None
        elif reached is None:
            reached = seconds
    return reached


def _row(training: Training, pretraining: Training | None, images_per_episode: int) -> TimeToAccuracy:
    result = training.result
    before = pretraining.result if pretraining else None
    in_one_window = result.seconds is not None and not (before and before.seconds is None)
    points = validations(training, pretraining) if in_one_window else []
    return TimeToAccuracy(
        result.strategy,
        before.seconds if before else 0.0,
        result.seconds,
        (before.items if before else 0) + result.items * images_per_episode,
        result.val_accuracy or 0.0,
        result.val_accuracy_ci95 or 0.0,
        *(seconds_to(level, points) for level in LEVELS),
    )
