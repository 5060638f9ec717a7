"""Bounds are judged by their median, and the pages say what the results hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import check
from benchmarks.__main__ import BENCHMARKS, main
from benchmarks.check import Row
from benchmarks.outcome import Outcome, Table, save, show
from benchmarks.page import BEGIN, END, PAGE, README, RESULTS, page, with_bounds
from parashot.questions.statistics import Interval


def interval(value: float) -> Interval:
    return Interval(value, 0.9 * value, 1.1 * value)


@pytest.mark.parametrize(
    ("row", "verdict", "short"),
    [
        (Row("a", interval(3.0), 3), "holds", False),
        (Row("a", interval(2.99), 3), "falls short", True),
        (Row("a", interval(0.5), 0.5, least=False), "holds", False),
        (Row("a", interval(0.51), 0.5, least=False), "falls short", True),
        (Row("a", interval(2.0), 3, excuse="no units"), "not asked here: no units", False),
        (Row("a", interval(4.0), 3, excuse="no units"), "holds", False),
        (Row("a", None, 3, excuse="no disk"), "not measured: no disk", True),
    ],
)
def test_a_row_holds_when_its_median_reaches_the_bound(row: Row, verdict: str, short: bool) -> None:
    assert (row.verdict, row.short) == (verdict, short)


@pytest.mark.parametrize(("value", "status"), [(4.0, 0), (2.0, 1)])
def test_the_command_fails_where_a_bound_falls_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: float, status: int
) -> None:
    monkeypatch.setattr(check, "_PARTS", (lambda quick, raw: iter([Row("steps", interval(value), 3)]),))
    assert main(["check"]) == status
    printed = capsys.readouterr().out
    assert "at least 3" in printed
    assert ("falls short" in printed) == (status == 1)


def made_results(folder: Path) -> Path:
    """Two results as the benchmarks save them."""
    table = Table("Bounds", ("bound", "measured"), [("loader", interval(51.5)), ("step", None)])
    for name in ("pipeline", "check"):
        save(Outcome(name, [table], seconds=90), folder / f"{name}.json")
    return folder


def test_the_page_says_what_the_results_hold(tmp_path: Path) -> None:
    text = page(made_results(tmp_path))
    assert text.index("## check") < text.index("## pipeline")
    assert text.count("51.5 (46.4 to 56.7)") == 2  # rounded to three digits
    assert "1.5 minutes" in text and "torch" in text


def test_the_readme_gets_its_bounds_and_nothing_else_changes(tmp_path: Path) -> None:
    made = with_bounds(f"before\n{BEGIN}\nold\n{END}\nafter\n", made_results(tmp_path))
    assert made.startswith("before\n") and made.endswith("\nafter\n")
    assert "old" not in made and "51.5 (46.4 to 56.7)" in made
    assert with_bounds(made, tmp_path) == made


def test_a_saved_table_reads_as_it_was_shown(tmp_path: Path) -> None:
    outcome = Outcome("check", [Table("T", ("a", "b"), [("x", 1_234), ("y", 0.5)])])
    save(outcome, tmp_path / "check.json")
    assert "1,234" in show(outcome) and "1,234" in page(tmp_path)
    tree = json.loads((tmp_path / "check.json").read_text())
    assert tree["tables"][0]["rows"] == [{"a": "x", "b": 1234}, {"a": "y", "b": 0.5}]
    assert tree["hardware"]["cores"] >= 1 and tree["versions"]["torch"]


def test_the_committed_pages_are_those_of_the_committed_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(RESULTS)
    readme = README.read_text(encoding="utf-8")
    assert with_bounds(readme, RESULTS) == readme
    assert {path.stem for path in RESULTS.glob("*.json")} <= set(BENCHMARKS)
