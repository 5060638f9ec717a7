"""A grid of params: every combination of the choices given as `-S key=value,value`, each checked.

The grammar is the one of `dvc exp run -S`, and so the reverse of `recipes.arguments`: choices stand between
commas, and a value that is a list itself stands in brackets.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parashot.errors import ParamsError
from parashot.params import Params
from parashot.parsing import parse
from parashot.recipes import Value, apply

Choices = Mapping[str, Sequence[Value]]
"""Values to try, by dotted key."""

_WORDS: dict[str, Value] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class Point:
    """One combination: the knobs that were given, and the params that they make."""

    settings: Mapping[str, Value]
    params: Params

    @property
    def name(self) -> str:
        """The knobs in words, as a user would give them."""
        return " ".join(f"{key}={shown(value)}" for key, value in self.settings.items()) or "params.yaml"


def grid(tree: object, choices: Choices, fixed: Mapping[str, Value] | None = None) -> list[Point]:
    """Every combination of `choices` on the YAML tree with `fixed` set in it; the last key varies fastest.

    Raises `ParamsError` for a key or a value that params.yaml could not hold, and for data other than those
    of `tree`: the images are there already when a sweep begins.
    """
    base = parse(Params, tree)
    assert isinstance(tree, Mapping)
    points = []
    for values in itertools.product(*choices.values()):
        settings = dict(zip(choices, values, strict=True))
        params = parse(Params, apply(tree, {**(fixed or {}), **settings}))
        if params.data != base.data:
            raise ParamsError(
                "data: a sweep trains on the images that are packed; set data.* in params.yaml, "
                "then run `dvc repro pack`"
            )
        points.append(Point(settings, params))
    return points


def read_choices(words: Sequence[str]) -> dict[str, list[Value]]:
    """Read `key=value,value` words. Raises `ParamsError`."""
    choices: dict[str, list[Value]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not key or not equals:
            raise ParamsError(f"-S {word}: no setting; write key=value, or key=value,value for a choice")
        if key in choices:
            raise ParamsError(f"-S {word}: {key} is given twice; write its values behind one key: {key}=1,2")
        values = [_value(each, word) for each in _parts(text, word)]
        for index, value in enumerate(values):
            if any(shown(value) == shown(other) for other in values[:index]):
                raise ParamsError(f"-S {word}: {shown(value)} is there twice")
        choices[key] = values
    return choices


def varied(choices: Choices) -> list[str]:
    """The keys that differ between the points of a grid."""
    return [key for key, values in choices.items() if len(values) > 1]


def shown(value: Value) -> str:
    """Write a value as it is given on the command line."""
    if isinstance(value, list):
        return f"[{','.join(shown(each) for each in value)}]"
    return value if isinstance(value, str) else json.dumps(value)


def _parts(text: str, word: str) -> list[str]:
    """Split at the commas that stand outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if depth < 0:
            break
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise ParamsError(f"-S {word}: its brackets do not match")
    return [part.strip() for part in parts]


def _value(text: str, word: str) -> Value:
    """A list, a truth value, null, a number, or else text."""
    if not text:
        raise ParamsError(f"-S {word}: a value is missing")
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip()
        return [_value(each, word) for each in _parts(inner, word)] if inner else []
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        return float(text)
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text
