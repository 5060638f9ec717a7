"""Figure of the trainings: accuracy over seconds."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from parashot.questions.accuracy.rows import before_training
from parashot.questions.study import Study
from parashot.questions.text import listed, percent
from parashot.report.canvas import Drawing, chance_line, new_axes, outside_legend, styled
from parashot.report.palette import LIGHT, Look, looks
from parashot.train.records import HistoryRow


@styled
def draw_accuracy(study: Study) -> Drawing | None:
    """Draw the trainings that were validated; None where there is none."""
    trainings = study.results.training.items()
    validated = {name: rows for name, each in trainings if (rows := _validated(each.history))}
    if not validated:
        return None
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


def _validated(history: Sequence[HistoryRow]) -> list[HistoryRow]:
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
