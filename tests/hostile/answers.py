"""The type of the fixture that holds a refusal to what it promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Answered = Callable[[], None]


class Refused(Protocol):
    """`refused(kind, call, *words)`: `call` raises `kind`, in one line with all of `words`."""

    def __call__(self, kind: type[Exception], call: Callable[[], Any], *words: str) -> None: ...
