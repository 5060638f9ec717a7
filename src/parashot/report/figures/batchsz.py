"""Figure of the batch sizes: what each reaches in the same time."""

from __future__ import annotations

from matplotlib.ticker import FixedLocator, NullLocator

from parashot.questions.batchsz.rows import reached
from parashot.questions.statistics import Interval
from parashot.questions.study import Study
from parashot.report.canvas import (
    Drawing,
    chance_line,
    dots,
    interval_mark,
    new_axes,
    outside_legend,
    styled,
)

BESIDE = 1.06
"""Distance of the dots from their mark, as a ratio."""


@styled
def draw_batchsz(study: Study) -> Drawing | None:
    """Draw the sizes that were trained over seeds; None where there is none."""
    rows = [row for row in study.sizes if row.val_accuracy]
    if not rows or not study.results.batchsz:
        return None
    figure, axes = new_axes()
    accuracies = reached(study.results.batchsz.trainings)
    for row in rows:
        if row.val_accuracy:
            mean = row.val_accuracy
            percent = Interval(100 * mean.value, 100 * mean.low, 100 * mean.high)
            interval_mark(axes, row.batchsz, percent, "blue")
        own = [100 * each for each in accuracies[row.batchsz].values()]
        dots(axes, [row.batchsz * BESIDE] * len(own), own, "blue")
    chance_line(axes, study.params.episode.n_way)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([row.batchsz for row in rows]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([str(row.batchsz) for row in rows])
    axes.margins(x=0.15, y=0.2)
    axes.set_xlabel("episodes per step")
    axes.set_ylabel("validation accuracy in %")
    outside_legend(figure)
    seconds = study.params.batchsz_study.seconds
    return Drawing(
        "batchsz",
        "Accuracy in the same time",
        f"Validation accuracy after {seconds:g} s of training by batch size; the table has the numbers.",
        "Dots are trainings, one for each seed; marks their mean with its interval over trainings. Where two "
        "intervals overlap, the paired differences in the table decide.",
        figure,
    )
