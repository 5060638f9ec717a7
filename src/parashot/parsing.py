"""Reading and checking of YAML: a fault is one line with the key, the value found and what is allowed."""

from __future__ import annotations

import dataclasses
import re
import reprlib
import types
import typing
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import (
    AfterValidator,
    Field,
    Strict,
    StrictBool,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from parashot.errors import ParamsError, one_line
from parashot.plain import did_you_mean

T = TypeVar("T")
Item = TypeVar("Item")

Value = bool | int | float | str | None | list[Any]
"""Of a key in YAML."""


def in_yaml(value: object) -> str:
    """Say a value as params.yaml does, and `-S` of `dvc exp run`; texts are not quoted."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(in_yaml, value))}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def _distinct(items: tuple[Item, ...]) -> tuple[Item, ...]:
    if len(set(items)) < len(items):
        raise ValueError("an item comes twice")
    return items


# Strict, since YAML has types: neither "4" nor true is a number.
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Switch = StrictBool
Text = Annotated[str, StringConstraints(strict=True, pattern=r"\S")]
Distinct = Annotated[tuple[Item, ...], Field(min_length=1), AfterValidator(_distinct)]

_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 100
_UNKNOWN = {"unexpected_keyword_argument", "invalid_key"}
"""Pydantic's errors for a key that no field has."""


def read_yaml(path: Path) -> object:
    """Read a YAML file as plain data. Raises `ParamsError` in one line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        advice = f"try `git checkout {path.name}`"
        raise ParamsError(f"{path}: cannot be read ({one_line(error)}); {advice}") from error
    return parse_yaml(text, path.name)


def parse_yaml(text: str, name: str) -> object:
    """Return YAML as plain data; `name` is that of its file, for the message. Raises `ParamsError`."""
    try:
        return yaml.load(text, Loader=_Loader)
    except Exception as error:
        # beside its own errors, PyYAML lets through what Python raises over a value unfit for its tag
        where = getattr(error, "problem_mark", None)
        line = f" at line {where.line + 1} ({getattr(error, 'problem', '')})" if where else ""
        raise ParamsError(f"{name}: not valid YAML{line}; correct it there") from error


class _Loader(yaml.SafeLoader):
    """YAML 1.1, but a key stands once in its section, and 1e-05 is a number as in YAML 1.2 and for DVC."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"the key {key.value!r} comes twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def parse(kind: type[T], value: object, key: str = "") -> T:
    """Turn plain YAML data, at `key` of params.yaml, into a record such as `Params`. Raises `ParamsError`."""
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)
        faults.sort(key=lambda each: each["type"] not in _UNKNOWN)  # an unknown key explains a missing one
        misspelt = {each["loc"][:-1] for each in faults if each["type"] in _UNKNOWN}
        told = [each for each in faults if each["type"] != "missing" or each["loc"][:-1] not in misspelt]
        first, *others = (_message(kind, value, key, each) for each in told)
        places = {each.partition(": ")[0] for each in others} - {first.partition(": ")[0]}
        more = f"; also wrong: {', '.join(sorted(places))}" if places else ""
        raise ParamsError(first + more) from None


def _message(kind: Any, found: Any, key: str, fault: ErrorDetails) -> str:
    """Say in one line what is wrong with `found`, the value at `key`; `fault` names the place within it."""
    place, section, hint = [key] if key else [], kind, kind
    for part in fault["loc"]:
        if not dataclasses.is_dataclass(hint):  # the index of a list item, or the branch of a union
            break
        section, hint = hint, keys(hint).get(str(part))
        found = found.get(part) if isinstance(found, Mapping) else None
        place.append(str(part))
    where = ".".join(place) or "params.yaml"
    if fault["type"] in _UNKNOWN:
        known = list(keys(section))
        return f"{where}: unknown key; {did_you_mean(place[-1], known)}known here: {', '.join(known)}"
    if fault["type"] == "missing":
        return f"{where}: missing; it must be {allowed(hint)}"
    if dataclasses.is_dataclass(hint):
        return f"{where}: {_SHOWN.repr(found)} found, a section with keys is needed"
    advice = ""
    if isinstance(found, str) and re.fullmatch(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?", found):
        advice = " (it was read as text; YAML wants numbers like 0.001 or 1.0e-3, without quotes)"
    return f"{where}: {_SHOWN.repr(found)} is not allowed; it must be {allowed(hint)}{advice}"


def keys(section: Any) -> dict[str, Any]:
    """Return the keys of a section with their types; a field with a default is no key."""
    hints = typing.get_type_hints(section, include_extras=True)
    needed = (each for each in dataclasses.fields(section) if each.default_factory is dataclasses.MISSING)
    return {each.name: hints[each.name] for each in needed}


def allowed(hint: Any) -> str:
    """Say in words what `hint` admits."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        base, *metadata = arguments
        bounds = [each for info in metadata if isinstance(info, FieldInfo) for each in info.metadata]
        low = next((each.ge for each in bounds if hasattr(each, "ge")), None)
        high = next((each.le for each in bounds if hasattr(each, "le")), None)
        least = f" at least {low:.10g}" if low is not None else ""
        return allowed(base) + (least if high is None else f" from {low:.10g} to {high:.10g}")
    if origin in {Union, types.UnionType}:
        return " or ".join(map(allowed, arguments))
    if origin is Literal:
        return " | ".join(arguments)
    if origin is tuple:
        return f"a list of different values, each {allowed(arguments[0])}"
    if dataclasses.is_dataclass(hint):
        return "a section with keys"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    return names[hint]
