"""The page in a real browser, on a phone and on a wide screen, light and dark, on paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import WIDTHS, needs_browser, opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = needs_browser

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


@pytest.mark.parametrize("width", WIDTHS)
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
        ("tasks", summary["tasks"]),
        ("confusion", summary["confusion"]),
    ):
        assert len(cells[name]) == len(rows)
        for shown, row in zip(cells[name], rows, strict=True):
            assert shown == {key: row[key] for key in shown}
            assert len(shown) >= 2 or row["status"] == "skipped"


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


def test_it_prints(browser: Browser, report: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    page, _ = opened(browser, report[0], 1440, "dark")
    page.emulate_media(media="print")
    assert page.evaluate("() => getComputedStyle(document.querySelector('nav')).display") == "none"
    paper = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert min(int(each) for each in paper.removeprefix("rgb(").removesuffix(")").split(",")[:3]) > 240
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").stat().st_size > 100_000
