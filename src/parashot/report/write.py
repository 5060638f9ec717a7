"""Write the report: the page, its figures and its tables, all of them at once or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parashot.files import replacing_folder
from parashot.questions.results import StudyResults
from parashot.report.canvas import png
from parashot.report.figures import draw_figures
from parashot.report.figures_overview import overview
from parashot.report.page import Material, render_page
from parashot.report.tables import all_tables, as_csv


def write_report(summary: Mapping[str, Any], results: StudyResults, params_text: str, out: Path) -> None:
    """Write `out`/index.html, `out`/figures/NAME.png and `out`/tables/NAME.csv.

    `summary` is what `findings.summary.summarize` makes of `results`; `params_text` is the text of
    params.yaml, shown as it is. What was not measured is left out, and the page says so. `out` is replaced as
    a whole.
    """
    drawings = draw_figures(summary, results)
    picture = overview(summary, results, wide=True)
    material = Material(
        summary, overview(summary, results, wide=False), drawings, all_tables(summary), params_text
    )
    with replacing_folder(out) as folder:
        (folder / "figures").mkdir()
        (folder / "tables").mkdir()
        for drawing in [*drawings.values(), *([picture] if picture else [])]:
            (folder / "figures" / f"{drawing.name}.png").write_bytes(png(drawing))
        for table in material.tables.values():
            (folder / "tables" / f"{table.name}.csv").write_text(as_csv(table), encoding="utf-8")
        (folder / "index.html").write_text(render_page(material), encoding="utf-8")
