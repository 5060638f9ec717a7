"""Figures of the report: one of each question, and the overview."""

from __future__ import annotations

from parashot.questions.study import Study
from parashot.report.canvas import Drawing
from parashot.report.figures.accuracy import draw_accuracy
from parashot.report.figures.batchsz import draw_batchsz
from parashot.report.figures.loader import draw_loader
from parashot.report.figures.overview import overview
from parashot.report.figures.strategies import draw_strategies


def draw_figures(study: Study) -> dict[str, Drawing]:
    """Draw what was measured, as wide as the page needs it, by name."""
    drawings = (
        overview(study, wide=False),
        draw_loader(study),
        draw_strategies(study),
        draw_batchsz(study),
        draw_accuracy(study),
    )
    return {drawing.name: drawing for drawing in drawings if drawing}
