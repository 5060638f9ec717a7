"""Names of files in the report: text, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import study_builder as build
from html_elements import Elements

from parashot.plain import printable
from parashot.questions.claim import Claim
from parashot.questions.results import StudyResults
from parashot.questions.study import analyse
from parashot.report.markdown import as_markdown, markdown
from parashot.report.page import write_report
from parashot.report.tables import CLAIMS

NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</td></table></svg></style></title>",
    "[x](javascript:alert(1))",
    "a|b|c",
    "``x``\\",
    '=HYPERLINK("http://x","y")',
    r"$\frac{1}{0}$ $",
)
"""What a path may hold."""


def test_names_are_text_in_the_page(tmp_path: Path) -> None:
    missing = {str(number): f"{name}: cannot be read" for number, name in enumerate(NAMES)}
    results = StudyResults(evaluate=build.evaluation(), missing=missing)
    study = analyse(results, build.params())
    write_report(study, NAMES[1], tmp_path / "reports")
    seen = Elements((tmp_path / "reports" / "index.html").read_text(encoding="utf-8"))
    assert not seen.tags & {"script", "iframe", "object", "link", "base", "form", "img"}
    assert seen.handlers == []
    assert NAMES[0] in seen.text and NAMES[1] in seen.text
    page = markdown(study, "A study")
    assert re.search(r"(?<!\\)(?:\\\\)*(<(script|img|b|!)|\[x\]\()", page) is None


def test_names_are_text_in_a_table_of_markdown() -> None:
    for name in (*NAMES, "a\nb\r\nc", "\x1b[2J"):
        lines = as_markdown(CLAIMS.of([Claim(name, name, name, name, "undecided", name)])).split("\n")
        assert len(lines) == 3
        assert len({len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines}) == 1
        assert re.search(r"(?<!\\)(?:\\\\)*(\[|<[a-zA-Z/!?])", lines[2]) is None
        assert lines[2] == printable(lines[2])
