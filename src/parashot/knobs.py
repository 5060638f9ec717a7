"""The tree of params.yaml as flat, dotted keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from parashot.params import Params
from parashot.parsing import allowed, keys


def knobs(kind: Any = None, prefix: str = "") -> dict[str, str]:
    """Return every knob by its dotted key, in order, with what it may be in words."""
    found: dict[str, str] = {}
    for name, hint in keys(kind or Params).items():
        key = f"{prefix}{name}"
        found |= knobs(hint, f"{key}.") if is_dataclass(hint) else {key: allowed(hint)}
    return found


def select(params: Params, knobs: Sequence[str]) -> dict[str, str]:
    """Return the flat keys of `params` that are among `knobs` or lie in a section among them."""
    inside = tuple(f"{knob}." for knob in knobs)
    return {key: value for key, value in flatten(params).items() if key in knobs or key.startswith(inside)}


def flatten(section: Any, prefix: str = "") -> dict[str, str]:
    """Return a section of the tree as {"dotted.key": "value"}, as tracking wants its parameters."""
    values = {each.name: getattr(section, each.name) for each in fields(section)}
    values |= values.pop("further", {})
    result: dict[str, str] = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        result |= flatten(value, f"{key}.") if is_dataclass(value) else {key: str(value)}
    return result
