"""The study as one Markdown page, for a terminal, a README or a wiki: the tables of the report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parashot.questions.claim import Claim
from parashot.questions.strategies.rows import StrategyRow
from parashot.questions.study import Study
from parashot.report.tables import Table, all_tables

HEADINGS = {
    "advice": "The advice",
    "gain": "All of the advice",
    "step": "How a step is computed",
    "loading": "The loader inside the step",
    "loader": "Loading alone",
    "strategies": "Strategies",
    "costs": "What a step costs",
    "scaling": "More devices",
    "scaling_checked": "The model of cost, checked here",
    "sizes": "Batch sizes, in the same time",
    "batchsz": "Batch sizes, the experiment of 2020",
    "accuracy": "Does the accuracy survive?",
    "tasks": "Few-shot accuracy on unseen classes",
    "claims": "Claims of 2020",
}

MAIN: dict[str, Sequence[str]] = {
    "advice": (),
    "loading": ("backend", "workers", "seconds per step", "speedup", "waiting for data", "memory"),
    "strategies": (
        "strategy",
        "seconds per step",
        "speedup",
        "efficiency",
        "validation accuracy",
        "peak memory",
    ),
    "sizes": ("batchsz", "validation accuracy", "minus the baseline's, points", "episodes"),
    "claims": ("claim", "here", "verdict"),
}
"""Tables that answer the questions, with their columns there, () for all; the report has the others."""

BESIDE = "The [report](report.html) has all tables, more figures, and how it was measured."


def markdown(study: Study, title: str) -> str:
    """Render the whole study."""
    tables = all_tables(study)
    parts = _head(study, title)
    for name in HEADINGS:
        if name in tables:
            parts += _section(tables[name])
        if name == "accuracy" and study.results.evaluate:
            test = study.results.evaluate.result
            half = 100 * test.test_accuracy_ci95
            parts.append(
                f"On test, once: **{100 * test.test_accuracy:.2f} ± {half:.2f}%** ({test.n_way}-way "
                f"{test.k_shot}-shot, {test.k_query} queries per class, {test.episodes} episodes; the model "
                f"of {test.strategy}, chosen by {test.chosen_by})."
            )
    return _page(parts)


def markdown_beside_report(study: Study, title: str, pictures: Sequence[str]) -> str:
    """Render the main tables of `study`, with `pictures` (paths, as the page will link them) below them.

    Rows that measured nothing are only named, below their table.
    """
    tables = all_tables(study)
    parts = [*_head(study, title), BESIDE]
    for table in (tables[name].only(columns) for name, columns in MAIN.items() if name in tables):
        parts += _section(table.of([row for row in table.rows if not _unmeasured(row)]))
        if unmeasured := [f"`{each}`" for each in map(_unmeasured, table.rows) if each]:
            parts.append(f"Not measured here, for reasons that the report has: {', '.join(unmeasured)}.")
    figures = [f"![{Path(each).stem.replace('_', ' ')}]({each})" for each in pictures]
    return _page([*parts, *(["## Figures"] if figures else []), *figures])


def _head(study: Study, title: str) -> list[str]:
    missing = study.results.missing.items()
    told = [f"*Missing: {name}. {escaped(reason)}*" for name, reason in missing]
    answer = filter(None, study.answer_in_two)
    return [f"# {title}", *answer, _circumstances(study), *told]


def _section(table: Table[Any]) -> list[str]:
    return [f"## {HEADINGS[table.name]}", f"{table.caption}.", as_markdown(table)]


def _unmeasured(row: object) -> str:
    """Name of a row without a measurement; empty for others."""
    if isinstance(row, StrategyRow) and row.status == "skipped":
        return row.variant
    return row.id if isinstance(row, Claim) and not row.measured_here else ""


def _page(parts: Sequence[str]) -> str:
    return "\n\n".join(parts) + "\n"


def as_markdown(table: Table[Any]) -> str:
    """Render one table; small print follows in brackets."""
    header = [column.header for column in table.columns]
    ruler = ["---:" if column.number else "---" for column in table.columns]
    rows = [[escaped(cell.words) for _, cell in row] for row in table.cells()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, ruler, *rows])


def escaped(words: str) -> str:
    """Return `words` as they are: no link, picture, HTML or end of a cell comes of them."""
    return re.sub(r"([\\|\[]|<(?=[a-zA-Z/!?]))", r"\\\1", words)


def _circumstances(study: Study) -> str:
    """Say in one paragraph what was measured on what."""
    source = study.params.data.source
    facts = ["synthetic images, drawn by a program" if study.synthetic else f"{source} images"]
    if study.short_run:
        facts.append("a short run: its accuracies are not comparable with published ones")
    if machine := study.results.hardware:
        gpus = ", ".join(machine.gpus) or "no GPU"
        facts.append(
            f"{machine.cpu_model}, {machine.threads} hardware threads, {gpus}, torch {machine.torch}"
        )
    return f"*{'; '.join(facts)}.*"
