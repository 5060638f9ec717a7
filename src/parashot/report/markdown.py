"""The study as one Markdown page, for a terminal, a README or a wiki.

The tables of the report, in its order.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from parashot.report.markup import Markup
from parashot.report.tables import Table, all_tables

_SECTIONS = {
    "step": "How a step is computed",
    "loader": "Loader workers",
    "strategies": "Strategies",
    "costs": "What a step costs",
    "table1": "DP and DDP",
    "scaling": "More devices",
    "scaling_checked": "The model of cost, checked here",
    "scaling_published": "The model of cost, against published scalings",
    "batchsz": "Batch sizes",
    "accuracy": "Does the accuracy survive?",
    "tasks": "Few-shot accuracy on unseen classes",
    "confusion": "What is mistaken for what",
    "claims": "The study's claims",
}


def markdown(summary: Mapping[str, Any], title: str, pictures: Sequence[str] = ()) -> str:
    """Render `summary` with `pictures` (paths, as the page will link them) above its tables."""
    tables = all_tables(summary)
    parts = [f"# {title}", summary["answer"], _circumstances(summary)]
    parts += [f"![{_caption(each)}]({each})" for each in pictures]
    parts += [f"*Missing: {name}. {escaped(reason)}*" for name, reason in summary["missing"].items()]
    for name, heading in _SECTIONS.items():
        if name in tables:
            parts += [f"## {heading}", f"{tables[name].caption}.", as_markdown(tables[name])]
        if name == "accuracy" and (test := summary["evaluate"]):
            parts.append(_test_line(test))
    return "\n\n".join(parts) + "\n"


def as_markdown(table: Table) -> str:
    """Render one table; small print follows in brackets."""
    header = [column.header for column in table.columns]
    ruler = ["---:" if column.number else "---" for column in table.columns]
    rows = [[_text(column.say(row)) for column in table.columns] for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, ruler, *rows])


def _circumstances(summary: Mapping[str, Any]) -> str:
    """What was measured on what, in one paragraph."""
    machine = summary["hardware"]
    facts = [
        "synthetic images, drawn by a program" if summary["synthetic"] else f"{summary['source']} images"
    ]
    if summary["short_run"]:
        facts.append("a short run: its accuracies are not comparable with published ones")
    if machine:
        gpus = ", ".join(machine["gpus"]) or "no GPU"
        facts.append(
            f"{machine['cpu_model']}, {machine['threads']} hardware threads, {gpus}, torch {machine['torch']}"
        )
    return f"*{'; '.join(facts)}.*"


def _test_line(test: Mapping[str, Any]) -> str:
    return (
        f"On test, once: **{100 * test['test_accuracy']:.2f} ± {100 * test['test_accuracy_ci95']:.2f}%** "
        f"({test['n_way']}-way {test['k_shot']}-shot, {test['k_query']} queries per class, "
        f"{test['episodes']} episodes; the model of {test['strategy']}, chosen by {test['chosen_by']})."
    )


def _text(cell: object) -> str:
    """Plain words of a table cell."""
    words = str(cell)
    if isinstance(cell, Markup):
        words = re.sub(r"<small>(.*?)</small>", r" (\1)", words)
        words = html.unescape(re.sub(r"<[^>]*>", "", words))
    return escaped(" ".join(words.split()))


def escaped(words: str) -> str:
    """`words` as they are: no link, picture, HTML or end of a cell comes of them."""
    return re.sub(r"([\\|\[]|<(?=[a-zA-Z/!?]))", r"\\\1", words)


def _caption(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".png").replace("_", " ")
