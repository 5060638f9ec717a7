"""For everyone: headings, names, contrast, and a keyboard that reaches all there is to reach."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import WIDTHS, barriers, needs_browser, opened

from parashot.report.palette import DARK, LIGHT, SERIES

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Report = tuple[Path, dict[str, Any]]

SCHEMES = ("light", "dark")
TEXT, SHAPE = 4.5, 3.0
"""WCAG 2.2, 1.4.3 and 1.4.11: least contrast of words, and of what data are drawn in."""

FIGURE_WORDS = """() => [
    getComputedStyle(document.body).backgroundColor,
    [...document.querySelectorAll("svg text")].map(each => [each.textContent, getComputedStyle(each).fill]),
]"""

REACHABLE = "a[href], [tabindex='0']"
"""What a reader can follow or scroll."""

WHERE = f"""() => {{
    const at = document.activeElement, all = [...document.querySelectorAll("{REACHABLE}")];
    return [all.indexOf(at), getComputedStyle(at).outlineStyle];
}}"""


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_there_are_no_barriers(browser: Browser, report: Report, width: int, scheme: str) -> None:
    page, _ = opened(browser, report[0], width, scheme)
    assert barriers(page) == []
    page.close()


@needs_browser
def test_a_barrier_would_be_found(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<html><body><main><p style='color:#ccc'>faint words</p><img src='a.png'></main>" * 20)
    found = {each.split(":")[0] for each in barriers(opened(browser, page, 1440)[0])}
    assert {"color-contrast", "image-alt", "html-has-lang", "document-title"} <= found


@needs_browser
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_words_of_figures_stand_out(browser: Browser, report: Report, scheme: str) -> None:
    page, _ = opened(browser, report[0], 1440, scheme)
    paper, words = page.evaluate(FIGURE_WORDS)
    assert len(words) > 100
    assert [each for each, fill in words if contrast(_rgb(fill), _rgb(paper)) < TEXT] == []


@pytest.mark.parametrize("palette", [LIGHT, DARK])
def test_what_data_are_drawn_in_stands_out(palette: dict[str, str]) -> None:
    paper = _hex(palette["paper"])
    assert [name for name in SERIES if contrast(_hex(palette[name]), paper) < SHAPE] == []


@needs_browser
@pytest.mark.parametrize("width", WIDTHS)
def test_a_keyboard_reaches_every_link_and_every_table(browser: Browser, report: Report, width: int) -> None:
    """In the order of the page, and it is seen where one is."""
    page, _ = opened(browser, report[0], width)
    count = page.locator(REACHABLE).count()
    assert count > page.locator("table").count() * 2 > 10
    steps = []
    for _ in range(count):
        page.keyboard.press("Tab")
        steps.append(page.evaluate(WHERE))
    assert steps == [[place, "solid"] for place in range(count)]


@needs_browser
def test_the_first_key_skips_the_navigation(browser: Browser, report: Report) -> None:
    page, _ = opened(browser, report[0], 1440)
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.closest('nav')") is None


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """By WCAG, from 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: tuple[int, ...]) -> float:
    shares = (each / 255 for each in colour)
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in shares
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(share: float) -> float:
    return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4


def _rgb(text: str) -> tuple[int, ...]:
    """`rgb(1, 2, 3)`."""
    return tuple(int(each) for each in text.removeprefix("rgb(").removesuffix(")").split(","))


def _hex(text: str) -> tuple[int, ...]:
    """`#010203`."""
    return tuple(bytes.fromhex(text.removeprefix("#")))
