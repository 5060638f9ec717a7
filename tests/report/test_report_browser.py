"""The page in a real browser, on a phone and on a wide screen, light and dark, by keyboard, on paper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import study_builder as build
from browser import Watched, chromium, needs_browser

from parashot.findings.summary import summarize
from parashot.report.write import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = needs_browser

ROOT = Path(__file__).parents[2]

WIDE = """width => [...document.querySelectorAll("body *")].filter(
    each => !each.closest(".scroll, nav, pre, svg, .skip")
        && each.getBoundingClientRect().right > width + 1
).map(each => each.outerHTML.slice(0, 80))"""
"""What reaches beyond the screen, but for what scrolls sideways on purpose."""

OVERLAPS = """() => {
  const texts = [...document.querySelectorAll("svg")].map(svg => [...svg.querySelectorAll("text")]);
  const found = [];
  for (const some of texts) for (const [i, one] of some.entries()) for (const two of some.slice(i + 1)) {
    const a = one.getBoundingClientRect(), b = two.getBoundingClientRect();
    const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (x > 3 && y > 0.5 * Math.min(a.height, b.height))
      found.push(one.textContent + " | " + two.textContent);
  }
  return found;
}"""
"""Words of a figure that stand on each other."""

EMPTY = """() => [...document.querySelectorAll("svg")].filter(
    each => each.getBBox().width < 100 || each.clientWidth < 300 || each.querySelectorAll("path").length < 5
).map(each => each.getAttribute("aria-label"))"""

CELLS = """() => Object.fromEntries([...document.querySelectorAll("table")].map(table => [table.dataset.table,
    [...table.querySelectorAll("tbody tr")].map(row => Object.fromEntries([...row.querySelectorAll("td")]
        .filter(cell => cell.dataset.value !== undefined)
        .map(cell => [cell.dataset.key, Number(cell.dataset.value)])))]))"""


@pytest.fixture(scope="module", params=["built for this test", "of this checkout"])
def report(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """The page and the summary that it shows."""
    if request.param == "of this checkout":
        page, summary = ROOT / "reports/index.html", ROOT / "results/summary.json"
        if not (page.is_file() and summary.is_file()):
            pytest.skip("no study was run in this checkout; `make study` runs one")
        return page, json.loads(summary.read_text(encoding="utf-8"))
    folder, results = tmp_path_factory.mktemp("report"), build.study()
    summary = summarize(results, build.params())
    write_report(summary, results, "seed: 0\n", folder / "reports")
    return folder / "reports/index.html", summary


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


def opened(browser: Browser, path: Path, width: int, scheme: Any = "light") -> tuple[Page, Watched]:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    watched = Watched(page)
    page.goto(path.as_uri())
    return page, watched


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_overflows_and_every_figure_shows(
    browser: Browser, report: tuple[Path, dict[str, Any]], width: int
) -> None:
    page, watched = opened(browser, report[0], width)
    figures = len(list((report[0].parent / "figures").iterdir()))
    assert page.locator("svg").count() == figures > 10
    assert page.evaluate(WIDE, width) == []
    assert page.evaluate(EMPTY) == []
    assert page.evaluate(OVERLAPS) == []
    assert watched.complaints == []
    assert [each for each in watched.requests if not each.startswith("data:")] == [report[0].as_uri()]


def test_tables_equal_the_summary(browser: Browser, report: tuple[Path, dict[str, Any]]) -> None:
    page, _ = opened(browser, report[0], 1440)
    summary = json.loads(json.dumps(report[1]))
    cells = page.evaluate(CELLS)
    for name, rows in (
        ("loader", summary["loader"]),
        ("strategies", list(summary["strategies"].values())),
        ("batchsz", summary["batchsz"]),
        ("accuracy", summary["accuracy"]),
        ("confusion", summary["confusion"]),
    ):
        assert len(cells[name]) == len(rows)
        for shown, row in zip(cells[name], rows, strict=True):
            assert shown == {key: row[key] for key in shown} and len(shown) >= 2


def test_the_first_screen_answers(browser: Browser, report: tuple[Path, dict[str, Any]]) -> None:
    """Which strategy, how many workers, how much faster: without scrolling."""
    page, _ = opened(browser, report[0], 1440)
    answer = page.locator(".answer")
    box = answer.bounding_box()
    assert box is not None and box["y"] + box["height"] < 900
    words = answer.inner_text()
    assert words == report[1]["answer"]
    assert all(each in words for each in ("train with", "workers", "×"))


def test_dark_is_dark_and_legible(browser: Browser, report: tuple[Path, dict[str, Any]]) -> None:
    light, _ = opened(browser, report[0], 1440)
    dark, _ = opened(browser, report[0], 1440, "dark")
    style = "() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    assert light.evaluate(style)[0] != dark.evaluate(style)[0]
    ink = "() => getComputedStyle(document.querySelector('svg text')).fill"
    assert light.evaluate(ink) != dark.evaluate(ink)


def test_a_keyboard_reaches_the_content_and_every_table(
    browser: Browser, report: tuple[Path, dict[str, Any]]
) -> None:
    page, _ = opened(browser, report[0], 1440)
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to the content"
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("() => document.activeElement.getAttribute('aria-labelledby') || ''"))
    tables = page.evaluate("() => [...document.querySelectorAll('table')].map(each => each.dataset.table)")
    assert {f"caption-{name}" for name in tables} <= reached


def test_it_prints(browser: Browser, report: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    page, _ = opened(browser, report[0], 1440, "dark")
    page.emulate_media(media="print")
    assert page.evaluate("() => getComputedStyle(document.querySelector('nav')).display") == "none"
    paper = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert min(int(each) for each in paper.removeprefix("rgb(").removesuffix(")").split(",")[:3]) > 240
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").stat().st_size > 100_000
