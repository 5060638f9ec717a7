"""Pages in a real Chromium, without which tests skip, and as a parser of HTML reads them."""

from __future__ import annotations

import shutil
from collections import Counter
from html.parser import HTMLParser
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
HOSTILE_NAMES = {
    "a script": "<script>alert(1)</script>",
    "a picture": '"><img src=x onerror=alert(1)>',
    "a handler": "' onmouseover='alert(1)",
    "ends of elements": "</td></table></svg></style></title>",
    "an entity": "&lt;b&gt;&#x202e;",
    "a link": "[x](javascript:alert(1))",
    "cells": "a|b|c",
    "code": "``x``\\",
    "mathematics": r"$\frac{1}{0}$ $",
    "a formula": '=HYPERLINK("http://x","y")',
    "a tab and a formula": "\t=1",
    "a newline": "a\nb\r\nc\u2028\u2029",
    "an escape of terminals": "\x1b[2J\x1b]0;title\x07\x9b31m",
    "right to left": "\u202egpj.exe\u2066\u200f",
    "NUL and half a character": "a\0b\x7f\udcff",
}
"""What a path, or the name of a class, may hold."""


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


class Elements(HTMLParser):
    """Elements and how many there are of each, event handlers, addresses and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.handlers: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.addresses += [str(value) for name, value in attrs if name in {"href", "src", "srcset"}]

    def handle_data(self, data: str) -> None:
        self.text += data
