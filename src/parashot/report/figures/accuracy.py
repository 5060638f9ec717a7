"""Figures of the trainings: accuracy over seconds, and loss over episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from matplotlib.axes import Axes

from parashot.questions.accuracy.rows import before_training
from parashot.questions.study import Study
from parashot.questions.text import listed, number, percent
from parashot.report.canvas import Drawing, chance_line, new_axes, outside_legend, styled
from parashot.report.palette import LIGHT, Look, looks
from parashot.train.records import HistoryRow

R = TypeVar("R", HistoryRow, HistoryRow)
Histories = Mapping[str, Sequence[HistoryRow]]
"""By strategy."""


def accuracy_drawings(study: Study) -> Iterator[Drawing]:
    """Draw the curves of the trainings that ran."""
    histories = {name: each.history for name, each in study.results.training.items() if each.history}
    if validated := {name: rows for name, each in histories.items() if (rows := _validated(each))}:
        yield _accuracy(study, validated)
    if histories:
        yield _loss(histories)


@styled
def _accuracy(study: Study, validated: Histories) -> Drawing:
    figure, axes = new_axes()
    pretraining = study.results.pretraining
    begun = before_training(pretraining)
    if pretraining and begun:
        _curve(axes, "pretraining", _validated(pretraining.history), Look("muted", "x", "-"))
    for (name, rows), look in zip(validated.items(), looks(len(validated)), strict=True):
        _curve(axes, name, rows, look, begun)
    chance_line(axes, study.params.episode.n_way)
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds of training")
    axes.set_ylabel("validation accuracy in %")
    outside_legend(figure)
    said = (f"{name} {percent(rows[-1].val_accuracy or 0)}" for name, rows in validated.items())
    return Drawing(
        "curves_accuracy",
        "Accuracy over time",
        f"Validation accuracy over seconds of training; at the end {listed(said)}.",
        "Validations during training with their 95% intervals; the time of validating is not counted."
        + (" Training: the cosine of the embedding." if begun else ""),
        figure,
    )


def _validated(history: Sequence[R]) -> list[R]:
    return [row for row in history if row.val_accuracy is not None]


def _curve(axes: Axes, name: str, rows: Sequence[HistoryRow], look: Look, begun: float = 0.0) -> None:
    """Draw validations from `begun` seconds on."""
    axes.errorbar(
        [begun + row.seconds for row in rows],
        [100 * (row.val_accuracy or 0) for row in rows],
        [100 * (row.val_accuracy_ci95 or 0) for row in rows],
        color=LIGHT[look.colour],
        marker=look.marker,
        markersize=5,
        capsize=3,
        linewidth=1.4,
        label=name,
    )


@styled
def _loss(histories: Histories) -> Drawing:
    figure, axes = new_axes()
    for (name, history), look in zip(histories.items(), looks(len(histories)), strict=True):
        reach = max(len(history) // 10, 1)
        episodes = [row.items for row in history]
        loss = np.array([row.loss for row in history])
        smooth = np.convolve(loss, np.full(reach, 1 / reach), mode="valid")
        middle = episodes[reach // 2 :][: len(smooth)]
        colour = LIGHT[look.colour]
        axes.plot(episodes, loss, color=colour, linewidth=0.7, alpha=0.3)
        axes.plot(middle, smooth, color=colour, linewidth=1.8, linestyle=look.line, label=name)
    axes.set_xlabel("episodes seen")
    axes.set_ylabel("training loss")
    outside_legend(figure)
    said = (f"{name} {number(history[-1].loss)}" for name, history in histories.items())
    return Drawing(
        "curves_loss",
        "Loss",
        f"Training loss over episodes; at the last step {listed(said)}.",
        "Thin: each step. Thick: the mean over a tenth of the curve. All strategies see the same episodes in "
        "the same order.",
        figure,
    )
