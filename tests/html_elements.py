"""A page as a browser sees it."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser


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
