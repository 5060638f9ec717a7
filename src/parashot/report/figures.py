"""All figures of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parashot.questions.results import StudyResults
from parashot.report.canvas import Drawing
from parashot.report.figures_batchsz import batchsz_drawings
from parashot.report.figures_evaluation import evaluation_drawings
from parashot.report.figures_loader import loader_drawings
from parashot.report.figures_scaling import scaling_drawings
from parashot.report.figures_shares import share_drawings
from parashot.report.figures_strategies import strategy_drawings
from parashot.report.figures_training import training_drawings


def draw_figures(summary: Mapping[str, Any], results: StudyResults) -> dict[str, Drawing]:
    """Draw what was measured, by name; what was not has no figure. The overview is drawn on its own."""
    drawings = (
        *loader_drawings(summary, results),
        *strategy_drawings(summary, results),
        *share_drawings(summary, results),
        *scaling_drawings(summary),
        *batchsz_drawings(summary, results),
        *training_drawings(summary, results),
        *evaluation_drawings(results),
    )
    return {drawing.name: drawing for drawing in drawings}
