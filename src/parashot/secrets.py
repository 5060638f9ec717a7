"""Text without passwords and tokens. Whatever is told, logged or recorded in words has gone through here."""

from __future__ import annotations

import os
import re

_HIDDEN = "***"
_SHORTEST = 8
"""Of a secret by its value: what is shorter may be any word."""

_NAMES = re.compile(r"(?:^|_)(?:TOKEN|PASSWORD|PASSWD|SECRET|KEY)(?:_|$)", re.IGNORECASE)
"""Environment variables whose values are secrets."""

_USER = re.compile(r"(?<=://)[^/\s?#'\"]*@")
_QUERY = re.compile(r"(://[^\s\"'<>?]{0,2000}\?|\?[^\s\"'<>=?]+=)[^\s\"'<>]+?([.,;:)\]}]*)(?=[\s\"'<>]|$)")
_HEADER = re.compile(r"(authorization['\"]?\s*[:=]\s*['\"]?(?:\w+ )?|\bbearer )[^\s'\"]+", re.IGNORECASE)
_NAMED = re.compile(
    r"((?:token|password|passwd|secret|signature|(?:api|access)[_-]?key)[\w.-]{0,40}"
    r"(?:=|['\"]\s*:\s*)['\"]?)[^\s'\"&,;)]+",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """`text` with every secret cut out that can be told from other words.

    Those are user and password of an address, what follows its `?`, headers that authorise, what is said to
    be a token, password, secret, signature or key, and values of environment variables with such names.
    """
    for value in _secret_values():
        text = text.replace(value, _HIDDEN)
    text = _USER.sub("", text)
    text = _QUERY.sub(rf"\1{_HIDDEN}\2", text)
    text = _HEADER.sub(rf"\1{_HIDDEN}", text)
    return _NAMED.sub(rf"\1{_HIDDEN}", text)


def _secret_values() -> list[str]:
    """The longest first: one may be a part of another."""
    named = {value for name, value in os.environ.items() if _NAMES.search(name) and len(value) >= _SHORTEST}
    return sorted(named, key=len, reverse=True)
