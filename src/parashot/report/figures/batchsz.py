"""Figure of the batch sizes: accuracy for the time that the same episodes take."""

from __future__ import annotations

from parashot.questions.statistics import Interval
from parashot.questions.study import Study
from parashot.report.canvas import Drawing, chance_line, interval_mark, new_axes, outside_legend, styled
from parashot.report.palette import LIGHT, looks


@styled
def draw_batchsz(study: Study) -> Drawing | None:
    """Draw the sizes that were trained and validated; None where there is none."""
    rows = [row for row in study.batchsz.values() if row.seconds and row.val_accuracy is not None]
    if not rows:
        return None
    figure, axes = new_axes()
    for row, look in zip(rows, looks(len(rows)), strict=True):
        value, half = 100 * (row.val_accuracy or 0.0), 100 * (row.val_accuracy_ci95 or 0.0)
        accuracy = Interval(value, value - half, value + half)
        label, fill = f"batchsz {row.batchsz}", {}
        if row.status == "stopped":
            label += ", stopped"
            fill = {"markerfacecolor": LIGHT["paper"]}
        interval_mark(axes, row.seconds or 0.0, accuracy, look.colour, look.marker, label=label, **fill)
    chance_line(axes, study.params.episode.n_way)
    axes.set_xlim(0, 1.15 * max(row.seconds or 0.0 for row in rows))
    axes.margins(y=0.2)
    axes.set_xlabel(f"seconds of training on {rows[0].episodes_budget:,} episodes")
    axes.set_ylabel("validation accuracy in %")
    outside_legend(figure, columns=2)
    return Drawing(
        "batchsz",
        "Time and accuracy on the same episodes",
        "Validation accuracy against seconds of training by batch size; the table below has the numbers.",
        "Whole runs, one each, with the 95% interval over validation episodes; hollow is a run that was "
        "stopped at the baseline's time. Upper left is better: more accurate, sooner.",
        figure,
    )
