"""HTML from Python: every text is escaped unless it is markup already."""

from __future__ import annotations

from html import escape

VOID = {"meta", "br", "img", "link"}


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *content: object, **attributes: object) -> Markup:
    """Build one element. `class_` and `for_` lose their underscore, others turn theirs into a hyphen.

    Attributes that are None or False are left out; True stands alone; content is escaped unless it is
    `Markup`.
    """
    opening = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Markup(opening) if name in VOID else Markup(f"{opening}{join(*content)}</{name}>")


def document(title: str, style: str, *content: object) -> str:
    """A whole page that fetches nothing, for screens of any width, light and dark."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(style)),
    )
    return f"<!doctype html>\n{element('html', head, element('body', *content), lang='en')}\n"


def join(*content: object) -> Markup:
    """Put pieces side by side; None is nothing, lists and tuples are put one after the other."""
    return Markup("".join(_text(piece) for piece in content))


def _text(piece: object) -> str:
    if piece is None:
        return ""
    if isinstance(piece, list | tuple):
        return join(*piece)
    return piece if isinstance(piece, Markup) else escape(str(piece), quote=False)


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
