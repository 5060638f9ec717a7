"""HTML from Python: nothing gets through unescaped."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from parashot.report.markup import Markup, element, join


def test_elements() -> None:
    assert (
        element("p", "a < b & c", class_="x", hidden=True, title=None)
        == '<p class="x" hidden>a &lt; b &amp; c</p>'
    )
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert element("a", "x", aria_label='"q"') == '<a aria-label="&quot;q&quot;">x</a>'
    assert join(None, ["a", Markup("<b>")], 1) == "a<b>1"
    assert element("p", element("b", "x"), " ", 2) == "<p><b>x</b> 2</p>"


@given(st.text(), st.text())
def test_any_text_comes_back_as_text(content: str, attribute: str) -> None:
    tags: list[tuple[str, list[tuple[str, str | None]]]] = []
    texts: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append((tag, attrs))

        def handle_data(self, data: str) -> None:
            texts.append(data)

    parser = Parser()
    parser.feed(element("p", content, title=attribute))
    parser.close()
    assert tags == [("p", [("title", attribute)])] and "".join(texts) == content
