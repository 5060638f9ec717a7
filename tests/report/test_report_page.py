"""The page: whole, self-contained, escaped, and equal to the summary."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import study_builder as build

from parashot.params import Params
from parashot.questions.ledger import CLAIMS
from parashot.questions.results import StudyResults
from parashot.questions.summary import summarize
from parashot.report import write
from parashot.report.tables import NOTHING, all_tables
from parashot.report.write import write_report

VOID = {"meta", "br", "img", "link", "path", "use"}
PARAMS_TEXT = "seed: 0  # <script>alert(1)</script> & more\n"


@dataclass
class Cell:
    """One td: its attributes and its text."""

    attributes: dict[str, str | None]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """What a browser would see: elements, ids, addresses, the cells of each table, the text."""

    html: str
    tags: Counter[str] = field(default_factory=Counter)
    ids: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    tables: dict[str, list[list[Cell]]] = field(default_factory=dict)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._rows: list[list[Cell]] = []
        self.feed(self.html)
        self.close()
        assert self._open == [], "an element is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags[tag] += 1
        self.ids += [str(attributes["id"])] if "id" in attributes else []
        self.addresses += [
            str(attributes[key]) for key in ("href", "src", "xlink:href", "srcset") if key in attributes
        ]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._rows = self.tables.setdefault(str(attributes["data-table"]), [])
        elif tag == "tr":
            self._rows.append([])
        elif tag == "td":
            self._rows[-1].append(Cell(attributes))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data
        if "td" in self._open:
            self._rows[-1][-1].text += data


def report(
    tmp_path: Path, results: StudyResults, params: Params | None = None
) -> tuple[Page, dict[str, Any]]:
    summary = summarize(results, params or build.params())
    write_report(summary, results, PARAMS_TEXT, tmp_path / "reports")
    return Page((tmp_path / "reports/index.html").read_text(encoding="utf-8")), summary


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of figures are for `whole` and the tests of figures: here they would only cost time."""
    monkeypatch.setattr(write, "png", lambda _: b"")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("report")
    return *report(folder, build.study()), folder / "reports"


def test_nothing_is_fetched_from_anywhere(whole: tuple[Page, dict[str, Any], Path]) -> None:
    page = whole[0]
    assert page.tags["script"] == page.tags["link"] == page.tags["img"] == page.tags["iframe"] == 0
    assert all(each.startswith(("#", "data:text/csv", "data:image/png")) for each in page.addresses)
    assert not re.search(r"https?:|@import|url\((?!#)", page.html)


def test_every_link_within_the_page_has_its_target(whole: tuple[Page, dict[str, Any], Path]) -> None:
    page = whole[0]
    assert [name for name, count in Counter(page.ids).items() if count > 1] == []
    targets = {each[1:] for each in page.addresses if each.startswith("#")}
    assert targets <= set(page.ids) and {"answer", "loader", "strategies", "claims", "methods"} <= targets


def test_structure_serves_screen_readers_and_phones(whole: tuple[Page, dict[str, Any], Path]) -> None:
    page = whole[0]
    assert page.tags["h1"] == 1 and page.tags["main"] == 1 and page.tags["nav"] == 1
    assert 'lang="en"' in page.html and "width=device-width" in page.html
    assert page.tags["figure"] == page.tags["figcaption"] == page.tags["svg"] == 19
    labels = re.findall(r'<svg[^>]* aria-label="([^"]+)"', page.html)
    assert len(labels) == 19 and all(len(label) > 40 for label in labels)
    assert "prefers-color-scheme:dark" in page.html and "@media print" in page.html


def test_first_comes_the_answer(whole: tuple[Page, dict[str, Any], Path]) -> None:
    page, summary, _ = whole
    first = page.text.index(summary["answer"])
    assert first < page.text.index("What each choice buys") < page.text.index("How many loader workers?")
    assert "train with ddp on 2 replicas" in summary["answer"] and "no workers" in summary["answer"]


def test_cells_hold_the_numbers_of_the_summary(whole: tuple[Page, dict[str, Any], Path]) -> None:
    page, summary, _ = whole
    tables = {
        "step": summary["step"],
        "loader": summary["loader"],
        "strategies": list(summary["strategies"].values()),
        "table1": summary["table1"],
        "scaling": summary["scaling"]["rows"],
        "scaling_checked": summary["scaling"]["checked"],
        "scaling_published": summary["scaling"]["published"],
        "batchsz": summary["batchsz"],
        "accuracy": summary["accuracy"],
        "tasks": summary["tasks"],
        "confusion": summary["confusion"],
        "claims": summary["claims"],
    }
    for name, rows in tables.items():
        body = [row for row in page.tables[name] if row]
        assert len(body) == len(rows)
        for cells, row in zip(body, rows, strict=True):
            numbers = 0
            for cell in cells:
                value = row[str(cell.attributes["data-key"])]
                if "data-value" in cell.attributes:
                    numbers += 1
                    assert float(str(cell.attributes["data-value"])) == value
                elif value is None:
                    assert cell.text == NOTHING
                elif isinstance(value, str):
                    assert value in cell.text or value == row.get("first")
            assert name in {"table1", "claims"} or numbers >= 2


def test_csv_files_hold_every_digit(whole: tuple[Page, dict[str, Any], Path]) -> None:
    page, summary, folder = whole
    assert {path.stem for path in (folder / "tables").glob("*.csv")} == set(all_tables(summary))
    with (folder / "tables/loader.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["speedup_low"]) for row in rows] == [row["speedup_low"] for row in summary["loader"]]
    embedded = next(each for each in page.addresses if each.startswith("data:text/csv"))
    text = base64.b64decode(embedded.partition("base64,")[2]).decode()
    assert list(csv.DictReader(io.StringIO(text))) == rows


def test_text_from_data_is_escaped(whole: tuple[Page, dict[str, Any], Path]) -> None:
    page = whole[0]
    assert "Test CPU @ 2.00GHz &lt;fast&gt;" in page.html and "<fast>" not in page.html
    assert "<script>alert(1)</script> & more" in page.text


def test_reasons_that_look_like_markup_stay_text(tmp_path: Path) -> None:
    evil = '<img src=x onerror="alert(1)"> & "quotes"'
    results = build.study(
        strategies=build.strategy_results(skipped={"ddp": evil}),
        training={"serial": build.training("serial"), "ddp": build.skipped_training("ddp", evil)},
    )
    page, _ = report(tmp_path, results)
    assert page.tags["img"] == 0 and evil in page.text


def test_synthetic_and_short_runs_are_told_in_words(
    tmp_path: Path, whole: tuple[Page, dict[str, Any], Path]
) -> None:
    assert "Synthetic data:" in whole[0].text and "A short run: 1,600 training episodes." in whole[0].text
    params = build.params()
    data, train = replace(params.data, source="miniimagenet"), replace(params.train, episodes=400_000)
    page, _ = report(tmp_path, StudyResults(), replace(params, data=data, train=train))
    assert "Synthetic data:" not in page.text and "A short run:" not in page.text


def test_batches_per_rank_are_told(tmp_path: Path) -> None:
    params = build.params()
    page, _ = report(tmp_path, StudyResults(), replace(params, train=replace(params.train, batch_per="rank")))
    assert "batch_per is rank" in page.text


def test_stopped_runs_are_shown_as_stopped(whole: tuple[Page, dict[str, Any], Path]) -> None:
    page = whole[0]
    row = next(row for row in page.tables["batchsz"] if row and row[0].text == "2")
    assert "stopped" in row[1].text and "it reached the time of batchsz 30" in row[1].text
    assert "stopped," in page.text and "≈ 30.0 s" in page.text


def test_dp_on_a_cpu_is_labelled_as_such(tmp_path: Path, whole: tuple[Page, dict[str, Any], Path]) -> None:
    assert "DataParallel without GPUs means here" in whole[0].text
    names = ("serial", "dp", "ddp")
    gpus = {name: build.training(name, device="cuda") for name in names}
    assert "DataParallel without GPUs" not in report(tmp_path, StudyResults(training=gpus))[0].text


@pytest.mark.parametrize("part", ["hardware", "tune", "loader", "strategies", "batchsz", "evaluate"])
def test_a_missing_part_is_told_and_the_rest_is_there(tmp_path: Path, part: str) -> None:
    reason = f"results/{part} cannot be read; run `dvc repro`"
    page, summary = report(tmp_path, build.study(**{part: None}, missing={part: reason}))
    assert f"Missing: {reason}" in page.text
    assert page.tables["claims"] and page.tags["svg"] >= 6
    assert (summary["answer"] in page.text) and "ddp" in page.text


def test_trainings_alone_have_a_report(tmp_path: Path) -> None:
    page, _ = report(tmp_path, StudyResults(training=build.study().training))
    assert page.tables["strategies"] and page.tables["accuracy"]


def test_a_study_without_any_result_has_a_report(tmp_path: Path) -> None:
    page, _ = report(tmp_path, StudyResults(missing={"loader": "no loader", "strategies": "no strategies"}))
    assert "Missing: no loader" in page.text and "Nothing was measured yet" in page.text
    assert page.tags["svg"] == 0 and len([row for row in page.tables["claims"] if row]) == len(CLAIMS)
    assert list((tmp_path / "reports/figures").iterdir()) == []


def test_everything_skipped_has_a_report(tmp_path: Path) -> None:
    reasons = dict.fromkeys(build.STEPS, "switched off")
    runs = tuple(replace(run, status="skipped", reason="ddp is off") for run in build.batchsz_results().runs)
    page, _ = report(
        tmp_path,
        build.study(
            strategies=build.strategy_results(skipped=reasons),
            training={name: build.skipped_training(name, "switched off") for name in ("serial", "dp", "ddp")},
            batchsz=replace(build.batchsz_results(), runs=runs, blocks=()),
            evaluate=None,
        ),
    )
    assert "skipped: switched off" in page.text and "ddp is off" in page.text


def test_the_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "reports/figures").mkdir(parents=True)
    (tmp_path / "reports/figures/old.png").write_bytes(b"old")
    report(tmp_path, StudyResults(batchsz=build.batchsz_results()))
    assert {path.name for path in (tmp_path / "reports/figures").iterdir()} == {
        "batchsz_time.png",
        "batchsz_accuracy.png",
        "batchsz_communication.png",
        "overview.png",
    }
    assert not (tmp_path / "reports/figures/old.png").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["reports"]


def test_a_failure_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report(tmp_path, StudyResults())
    before = (tmp_path / "reports/index.html").read_bytes()

    def fail(_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write, "render_page", fail)
    with pytest.raises(OSError, match="No space"):
        report(tmp_path, StudyResults(hardware=build.HARDWARE))
    assert (tmp_path / "reports/index.html").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["reports"]
