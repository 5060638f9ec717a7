"""The page and its tables: whole, self-contained, escaped, and equal to the rows of the study."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import study_builder as build
from browser import HOSTILE_NAMES, Elements

from parashot.knobs import arguments
from parashot.params import Params
from parashot.plain import printable
from parashot.questions import text
from parashot.questions.claim import Claim
from parashot.questions.results import StudyResults
from parashot.questions.study import Study, analyse
from parashot.report.markdown import MAIN, as_markdown, markdown, markdown_beside_report
from parashot.report.page import render_page, write_report
from parashot.report.tables import CLAIMS, TASKS, Table, all_tables

VOID = {"meta", "br", "img", "link", "path", "use"}


class Page(Elements):
    """The page as a browser sees it, with the cells of each table."""

    def __init__(self, html: str) -> None:
        self.html = html
        self.tables: dict[str, list[list[str]]] = {}
        self._open: list[str] = []
        self._rows: list[list[str]] = []
        super().__init__(html)
        assert self._open == [], "an element is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._rows = self.tables.setdefault(str(dict(attrs)["data-table"]), [])
        elif tag == "tr" and "tbody" in self._open:
            self._rows.append([])
        elif tag == "td":
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            super().handle_data(data)
        if "td" in self._open:
            self._rows[-1][-1] += data


def words(results: StudyResults, params: Params | None = None) -> Page:
    """Make a page without figures, which would only cost time."""
    study = analyse(results, params or build.params())
    return Page(render_page(study, {}, all_tables(study), "seed: 0\n"))


@pytest.fixture(scope="module")
def whole(report: Path) -> Page:
    return Page((report / "index.html").read_text(encoding="utf-8"))


def test_it_stands_alone_and_serves_screen_readers_and_phones(whole: Page, report: Path) -> None:
    assert whole.tags["script"] == whole.tags["link"] == whole.tags["img"] == whole.tags["iframe"] == 0
    assert all(each.startswith(("#", "data:text/csv", "data:image/png")) for each in whole.addresses)
    assert not re.search(r"https?:|@import|url\((?!#)", whole.html)
    ids = re.findall(r'<[^>]* id="([^"]+)"', whole.html)
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    targets = {each[1:] for each in whole.addresses if each.startswith("#")}
    targets |= set(re.findall(r'aria-labelledby="([^"]+)"', whole.html))
    assert targets <= set(ids) and {"answer", "claims", "methods"} <= targets
    assert whole.tags["h1"] == whole.tags["main"] == whole.tags["nav"] == 1
    assert 'lang="en"' in whole.html and "width=device-width" in whole.html
    labels = re.findall(r'<svg[^>]* aria-label="([^"]{40,})"', whole.html)
    files = len(list((report / "figures").glob("*.png")))
    assert whole.tags["figure"] == whole.tags["figcaption"] == len(labels) == files


def test_first_comes_the_answer(whole: Page, study: Study) -> None:
    speed, further = study.answer_in_two
    first = whole.text.index(further)
    assert whole.text.index(speed) < first < whole.text.index("What would change this")
    assert first < whole.text.index("How many loader workers?")
    assert first < whole.text.index("What each choice buys")
    assert [cells[1].strip() for cells in whole.tables["advice"]] == [each.choice for each in study.advice]
    assert all(words in whole.text for words in study.changes.values())
    assert f"dvc exp run {' '.join(arguments(study.settings))}" in whole.text


def test_tables_show_every_row_rounded(whole: Page, study: Study) -> None:
    tables = all_tables(study)
    assert {name: len(rows) for name, rows in whole.tables.items()} == {
        name: len(table.rows) for name, table in tables.items()
    }
    for row, cells in zip(study.loader, whole.tables["loader"], strict=True):
        assert cells[:2] == [row.backend, str(row.workers)]
        assert row.speedup and cells[3].startswith(f"{text.ratio(row.speedup.value)}×")
        assert row.speedup.low == row.speedup.high or f"{text.ratio(row.speedup.low)}× to" in cells[3]
    for claim, cells in zip(study.claims, whole.tables["claims"], strict=True):
        assert cells[0] == f"{claim.id} {claim.claim}" and claim.verdict in cells[3]
    for verdict, count in Counter(claim.verdict for claim in study.claims).items():
        assert re.search(rf"{verdict} {count}\b", whole.text)
    ddp, again = study.strategies["ddp"], dict(zip(study.strategies, whole.tables["strategies"], strict=True))
    assert ddp.how in again["ddp"][0] and again["ddp"][1] == "2 × 1"
    assert again["ddp"][7] == text.accuracy(ddp.val_accuracy or 0, ddp.val_accuracy_ci95)
    assert again["serial-all-cores"][7] == "–"


def test_a_column_that_no_row_fills_is_left_out() -> None:
    row = build.task(1, 0.02)
    without = replace(row, transductive_episodes=0)
    tables = TASKS.of([row]), TASKS.of([without, row]), TASKS.of([without])
    whole, mixed, fewer = ([each.header for each in table.columns] for table in tables)
    assert mixed == whole and fewer == whole[:-1]
    assert TASKS.of([]).columns == TASKS.columns


def test_csv_files_hold_every_digit(whole: Page, study: Study, report: Path) -> None:
    assert {path.stem for path in (report / "tables").glob("*.csv")} == set(all_tables(study))
    with (report / "tables/loader.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["speedup_low"]) for row in rows] == [
        row.speedup.low for row in study.loader if row.speedup
    ]
    embedded = [each for each in whole.addresses if each.startswith("data:text/csv")]
    contents = [base64.b64decode(each.partition("base64,")[2]).decode() for each in embedded]
    assert rows in [list(csv.DictReader(io.StringIO(each))) for each in contents]


def test_markdown_has_the_same_tables_and_beside_the_report_main_ones_and_pictures(study: Study) -> None:
    tables, page = all_tables(study), markdown(study, "A study")
    beside = markdown_beside_report(study, "A study", ["overview.png"])
    for each, names in ((page, set(tables)), (beside, set(MAIN))):
        lines = each.splitlines()
        assert each.startswith("\n\n".join(["# A study", *study.answer_in_two]))
        assert {name for name in tables if f"{tables[name].caption}." in lines} == names
    assert "*synthetic images, drawn by a program; a short run" in page
    assert "| 2 | ✗ stopped (it reached the time of batchsz 30) | 7.50 s | 30.0 s |" in page
    assert "On test, once: **" in page
    assert "![overview](overview.png)" in beside
    assert "| claim | in 2020 | here | verdict | why |" in page.splitlines()
    assert "| claim | here | verdict |" in beside.splitlines()
    unmeasured = [each.id for each in study.claims if not each.measured_here]
    assert {"cannot be tested here", "holds"} <= {
        each.verdict for each in study.claims if each.id in unmeasured
    }
    for claim in study.claims:  # one without a measurement is named below the table, and has no row
        assert (f"`{claim.id}`" in beside) is (claim.id in unmeasured)
        assert f"{claim.id}:" in page and (f"{claim.id}:" in beside) is (claim.id not in unmeasured)


def test_text_from_data_is_text(whole: Page) -> None:
    assert "Test CPU @ 2.00GHz &lt;fast&gt;" in whole.html and "<fast>" not in whole.html
    assert "<script>alert(1)</script> & more" in whole.text
    names = [printable(each) for each in HOSTILE_NAMES.values()]
    page = words(build.study(strategies=build.strategy_results(skipped={"ddp": " ".join(names)})))
    assert not page.tags.keys() & {"script", "iframe", "object", "link", "base", "form", "img"}
    assert page.handlers == []
    assert all(name in page.text for name in names)
    missing = {str(number): f"{name}: cannot be read" for number, name in enumerate(names)}
    study = analyse(StudyResults(evaluate=build.evaluation(), missing=missing), build.params())
    written = markdown(study, "A study")
    assert re.search(r"(?<!\\)(?:\\\\)*(<(script|img|b|!)|\[x\]\()", written) is None


def test_names_are_text_in_a_table_of_markdown() -> None:
    for name in HOSTILE_NAMES.values():
        lines = as_markdown(CLAIMS.of([Claim(name, name, name, name, "undecided", name)])).split("\n")
        assert len(lines) == 3
        assert len({len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines}) == 1
        assert re.search(r"(?<!\\)(?:\\\\)*(\[|<[a-zA-Z/!?])", lines[2]) is None
        assert lines[2] == printable(lines[2])


def test_caveats_are_told_in_words(whole: Page) -> None:
    assert "Synthetic data:" in whole.text and "A short run: 1,600 training episodes." in whole.text
    assert "DataParallel without GPUs does here" in whole.text and "batch_per is rank" not in whole.text
    params = build.params()
    train = replace(params.train, episodes=400_000, batch_per="rank")
    real = replace(params, data=replace(params.data, source="miniimagenet"), train=train)
    training = {"dp": build.training("dp", device="cuda")}
    page = words(StudyResults(hardware=build.HARDWARE, training=training), real)
    assert "Synthetic data:" not in page.text and "A short run:" not in page.text
    assert "DataParallel without GPUs" not in page.text and "batch_per is rank" in page.text


def test_everything_skipped_has_a_page() -> None:
    reasons = dict.fromkeys(build.STEPS, "switched off")
    page = words(
        build.study(
            strategies=build.strategy_results(skipped=reasons),
            training={name: build.skipped_training(name, "switched off") for name in ("serial", "dp", "ddp")},
            batchsz=build.skipped_batchsz(),
            evaluate=None,
        )
    )
    assert "skipped: switched off" in page.text and "ddp is off" in page.text


def test_the_folder_is_replaced_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "reports"
    (folder / "figures").mkdir(parents=True)
    (folder / "figures/old.png").write_bytes(b"old")
    nothing = analyse(StudyResults(hardware=build.HARDWARE), build.params())
    write_report(nothing, "", folder)
    page = Page((folder / "index.html").read_text())
    assert "Nothing was measured yet" in page.text
    assert page.tags["svg"] == 0 and len(page.tables["claims"]) == len(nothing.claims)
    before = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    assert {each.name for each in before} == {"index.html", "claims.csv"}

    monkeypatch.setattr(Table, "csv", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_report(nothing, "", folder)
    assert {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()} == before
