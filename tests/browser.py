"""A real Chromium for tests of pages; where there is none they skip, with the reason."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or find_spec("playwright") is None, reason="no chromium on the path, or no playwright"
)
WIDTHS = (390, 1440)
"""Pixels of a phone's screen, and of a wide one."""


def opened(browser: Browser, path: Path, width: int, scheme: Any = "light") -> tuple[Page, Watched]:
    """Open `path` on a screen `width` pixels wide that asks for light or dark."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    watched = Watched(page)
    page.goto(path.as_uri())
    return page, watched


def barriers(page: Page) -> list[str]:
    """Return what axe-core, with all its rules, finds that not everyone can see, hear or reach.

    The inside of figures is hidden from it: they are images with a text instead, and it takes long there.
    """
    from axe_playwright_python.sync_playwright import Axe

    page.add_style_tag(content="svg > * {display: none}")
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response
    return [f"{each['id']}: {node['html'][:90]}" for each in found["violations"] for node in each["nodes"]]


class Watched:
    """Errors of a page, and its requests."""

    def __init__(self, page: Page) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda each: self.complaints.append(each.text) if each.type == "error" else None)
        page.on("pageerror", lambda each: self.complaints.append(str(each)))
        page.on("request", lambda each: self.requests.append(each.url))
