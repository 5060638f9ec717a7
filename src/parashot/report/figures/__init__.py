"""Figures of the report, a module for each question."""

from __future__ import annotations

from parashot.questions.study import Study
from parashot.report.canvas import Drawing
from parashot.report.figures.accuracy import accuracy_drawings
from parashot.report.figures.batchsz import batchsz_drawings
from parashot.report.figures.episodes import episode_drawings
from parashot.report.figures.loader import loader_drawings
from parashot.report.figures.overview import overview
from parashot.report.figures.scaling import scaling_drawings
from parashot.report.figures.strategies import strategy_drawings

QUESTIONS = (
    loader_drawings,
    strategy_drawings,
    scaling_drawings,
    batchsz_drawings,
    accuracy_drawings,
    episode_drawings,
)


def draw_figures(study: Study) -> dict[str, Drawing]:
    """Draw what was measured, as wide as the page needs it, by name."""
    first = overview(study, wide=False)
    rest = [drawing for question in QUESTIONS for drawing in question(study)]
    return {drawing.name: drawing for drawing in [*filter(None, [first]), *rest]}
