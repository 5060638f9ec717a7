"""The page in a real browser: on a phone and a wide screen, light and dark, on paper, and for everyone."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import WIDTHS, barriers, needs_browser, opened

from parashot.questions.study import Study
from parashot.report.canvas import LIGHT, SERIES

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TEXT, SHAPE = 4.5, 3.0
"""WCAG 2.2, 1.4.3 and 1.4.11: least contrast of words, and of what data are drawn in."""

WIDE = """width => [...document.querySelectorAll("body *")].filter(
    each => !each.closest(".scroll, nav, pre, svg, .skip")
        && each.getBoundingClientRect().right > width + 1
).map(each => each.outerHTML.slice(0, 80))"""
"""Elements that reach beyond the screen, but for those that scroll sideways on purpose."""

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

REACHABLE = "a[href], [tabindex='0']"
WHERE = f"""() => {{
    const at = document.activeElement, all = [...document.querySelectorAll("{REACHABLE}")];
    return [all.indexOf(at), getComputedStyle(at).outlineStyle];
}}"""
GROUND = "() => getComputedStyle(document.body).backgroundColor"


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), list(zip(WIDTHS, ("light", "dark"), strict=True)))
def test_the_page_fits_asks_for_nothing_and_has_no_barriers(
    browser: Browser, report: Path, study: Study, width: int, scheme: str
) -> None:
    """On a phone in light, and on a wide and dark screen, whose first view has the answer."""
    page, watched = opened(browser, report / "index.html", width, scheme)
    answer, further = page.locator(".answer"), page.locator(".further")
    assert (answer.inner_text(), further.inner_text()) == study.answer_in_two
    assert page.evaluate(WIDE, width) == []
    assert page.evaluate(OVERLAPS) == []
    if scheme == "dark":
        box = further.bounding_box()
        assert box is not None and box["y"] + box["height"] < 900
        assert max(_rgb(page.evaluate(GROUND))) < 64
    assert barriers(page) == []
    assert watched.complaints == []
    assert [each for each in watched.requests if not each.startswith("data:")] == [page.url]
    page.emulate_media(media="print")
    assert min(_rgb(page.evaluate(GROUND))) > 240
    assert not page.locator("nav").is_visible()
    page.close()


@needs_browser
def test_a_keyboard_reaches_every_link_and_every_table(browser: Browser, report: Path) -> None:
    """In the order of the page, and it is seen where one is; the first key skips the navigation."""
    page, _ = opened(browser, report / "index.html", WIDTHS[0])
    count = page.locator(REACHABLE).count()
    assert count > page.locator("table").count() * 2 > 10
    for place in range(count):
        page.keyboard.press("Tab")
        assert page.evaluate(WHERE) == [place, "solid"]
    page.keyboard.press("Tab")  # back to the first
    page.reload()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.closest('nav')") is None


def test_colours_stand_out() -> None:
    """Those of figures are in the style sheet by the same names."""
    import parashot.report

    style = (Path(parashot.report.__path__[0]) / "style.css").read_text(encoding="utf-8")
    light, dark = (
        dict(re.findall(r"--(\w+):(#\w{6});", part)) for part in re.findall(r":root\{.*?\}", style, re.S)
    )
    assert LIGHT.items() <= light.items() and light.keys() == dark.keys()
    for scheme in (light, dark):
        colours = {name: tuple(bytes.fromhex(each[1:])) for name, each in scheme.items()}
        for name, ground in product(("ink", "muted", "blue", "yes", "no"), ("paper", "tint")):
            assert contrast(colours[name], colours[ground]) >= TEXT, (name, ground)
        assert all(contrast(colours[name], colours["paper"]) >= SHAPE for name in SERIES)


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """Contrast of two colours by WCAG, from 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: tuple[int, ...]) -> float:
    shares = (each / 255 for each in colour)
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _rgb(text: str) -> tuple[int, ...]:
    """Read `rgb(1, 2, 3)`."""
    return tuple(int(each) for each in re.findall(r"\d+", text)[:3])
