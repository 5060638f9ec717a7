"""Training curves, loss over episodes and accuracy over seconds, and the accuracies of single episodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from parashot.questions.accuracy.time_to_accuracy import before_training
from parashot.questions.results import Pretraining, StudyResults, Training
from parashot.questions.text import listed, number, percent
from parashot.report.canvas import Drawing, new_axes, outside_legend, styled
from parashot.report.palette import LIGHT, looks

HEIGHT = 3.3


def training_drawings(summary: Mapping[str, Any], results: StudyResults) -> list[Drawing]:
    """Draw the curves of the finished trainings."""
    finished = {name: training for name, training in results.training.items() if training.history}
    if not finished:
        return []
    drawings = [_loss(finished), _episodes(finished, results)]
    validated = any(
        row.val_accuracy is not None for training in finished.values() for row in training.history
    )
    if not validated:
        return drawings
    return [*drawings, _accuracy(finished, results.pretraining, summary["method"]["n_way"])]


@styled
def _loss(trainings: Mapping[str, Training]) -> Drawing:
    figure, axes = new_axes(HEIGHT)
    for (name, training), look in zip(trainings.items(), looks(len(trainings)), strict=True):
        x = [row.episodes for row in training.history]
        loss = np.array([row.loss for row in training.history])
        axes.plot(x, loss, color=LIGHT[look.colour], linewidth=0.7, alpha=0.3)
        axes.plot(
            x, _smoothed(loss), color=LIGHT[look.colour], linewidth=1.8, linestyle=look.line, label=name
        )
    axes.set_xlabel("episodes seen")
    axes.set_ylabel("training loss")
    outside_legend(figure)
    said = (f"{name} {number(training.history[-1].loss)}" for name, training in trainings.items())
    return Drawing(
        "curves_loss",
        "Loss",
        f"Training loss over episodes; at the last step {listed(said)}.",
        "Thin: each step. Thick: the mean around it. All strategies see the same episodes in the same order.",
        figure,
    )


@styled
def _accuracy(trainings: Mapping[str, Training], pretraining: Pretraining | None, n_way: int) -> Drawing:
    figure, axes = new_axes(HEIGHT)
    begun = before_training(pretraining)
    if pretraining and begun:
        tried = [row for row in pretraining.history if row.val_accuracy is not None]
        axes.errorbar(
            [row.seconds for row in tried],
            [100 * (row.val_accuracy or 0) for row in tried],
            [100 * (row.val_accuracy_ci95 or 0) for row in tried],
            color=LIGHT["muted"],
            marker="x",
            markersize=5,
            capsize=3,
            linewidth=1.4,
            label="pretraining",
        )
    for (name, training), look in zip(trainings.items(), looks(len(trainings)), strict=True):
        rows = [row for row in training.history if row.val_accuracy is not None]
        half = [100 * (row.val_accuracy_ci95 or 0) for row in rows]
        axes.errorbar(
            [begun + row.seconds for row in rows],
            [100 * (row.val_accuracy or 0) for row in rows],
            half,
            color=LIGHT[look.colour],
            marker=look.marker,
            markersize=5,
            capsize=3,
            linewidth=1.4,
            label=name,
        )
    axes.axhline(100 / n_way, color=LIGHT["muted"], linestyle="--", linewidth=1, label="chance")
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("validation accuracy in %")
    outside_legend(figure)
    last = {
        name: [row for row in each.history if row.val_accuracy is not None]
        for name, each in trainings.items()
    }
    said = (f"{name} {percent(rows[-1].val_accuracy or 0)}" for name, rows in last.items() if rows)
    return Drawing(
        "curves_accuracy",
        "Accuracy over time",
        f"Validation accuracy over seconds of training; at the end {listed(said)}.",
        "Validations during training with their 95% intervals; the time of validating is not counted."
        + (" Pretraining: the cosine of the embedding." if begun else ""),
        figure,
    )


@styled
def _episodes(trainings: Mapping[str, Training], results: StudyResults) -> Drawing:
    figure, axes = new_axes(HEIGHT)
    measured = {
        name: [each.accuracy for each in training.val_episodes] for name, training in trainings.items()
    }
    if results.evaluate:
        measured["test"] = [each.accuracy for each in results.evaluate.test_episodes]
    for (name, accuracies), look in zip(measured.items(), looks(len(measured)), strict=True):
        axes.ecdf(
            [100 * each for each in accuracies], color=LIGHT[look.colour], linestyle=look.line, label=name
        )
    axes.set_xlabel("accuracy of an episode in %")
    axes.set_ylabel("share of episodes at or below")
    axes.set_ylim(0, 1)
    outside_legend(figure)
    said = (f"{name} {percent(float(np.median(accuracies)))}" for name, accuracies in measured.items())
    return Drawing(
        "accuracy_episodes",
        "How much episodes differ",
        f"Share of episodes at or below an accuracy; the median episode reaches {listed(said)}.",
        "Every episode behind the means: with few examples per class, luck of the draw is large. Validation "
        "episodes are the same for every strategy.",
        figure,
    )


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Mean over a tenth of the curve around each point, shorter at its ends."""
    reach = max(len(values) // 20, 1)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    low, high = np.maximum(places - reach, 0), np.minimum(places + reach + 1, len(values))
    smoothed: np.ndarray = (sums[high] - sums[low]) / (high - low)
    return smoothed
