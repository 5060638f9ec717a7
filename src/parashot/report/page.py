"""The report: one self-contained HTML page, its figures and its tables, all of them at once or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parashot.files import replacing_folder
from parashot.knobs import arguments
from parashot.questions import text
from parashot.questions.statistics import RESAMPLES
from parashot.questions.study import Study
from parashot.questions.ways.records import PLAIN_LOADER
from parashot.report.canvas import Drawing, png, svg
from parashot.report.figures import draw_figures, overview
from parashot.report.tables import Table, all_tables
from parashot.templates import render


def write_report(study: Study, params_text: str, out: Path) -> None:
    """Write `out`/index.html, `out`/figures/NAME.png and `out`/tables/NAME.csv.

    `params_text` is the text of params.yaml, shown as it is. `study` is of all results of a study: what was
    skipped has its reason there. `out` is replaced as a whole.
    """
    drawings, tables = draw_figures(study), all_tables(study)
    files = dict(drawings)
    if wide := overview(study, wide=True):
        files["overview"] = wide
    with replacing_folder(out) as folder:
        for name in ("figures", "tables"):
            (folder / name).mkdir()
        for name, drawing in files.items():
            (folder / f"figures/{name}.png").write_bytes(png(drawing))
        for name, table in tables.items():
            (folder / f"tables/{name}.csv").write_text(table.csv(), encoding="utf-8")
        page = render_page(study, drawings, tables, params_text)
        (folder / "index.html").write_text(page, encoding="utf-8")


def render_page(
    study: Study, drawings: Mapping[str, Drawing], tables: Mapping[str, Table[Any]], params_text: str
) -> str:
    """Render the page; nothing in it is fetched from anywhere."""
    return render(
        "report/template.html.j2",
        study=study,
        params=study.params,
        resamples=RESAMPLES,
        plain_loader=PLAIN_LOADER,
        drawings=drawings,
        tables=tables,
        params_text=params_text,
        svg=svg,
        arguments=arguments,
        text=text,
    )
