"""The tree of params.yaml as flat, dotted keys."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, cast

from parashot.errors import ParamsError
from parashot.files import replacing_file
from parashot.params import Params, load_params
from parashot.parsing import Value, in_yaml


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
        result |= flatten(value, f"{key}.") if is_dataclass(value) else {key: in_yaml(value)}
    return result


def arguments(settings: Mapping[str, Value]) -> list[str]:
    """Return settings as arguments of `dvc exp run`, unquoted: word splitting does not remove quotes."""
    return [word for key, value in settings.items() for word in ("-S", f"{key}={in_yaml(value)}")]


def apply(tree: Mapping[str, Any], settings: Mapping[str, Value]) -> dict[str, Any]:
    """Return a copy of the YAML tree with every dotted key of `settings` set.

    Raises `ParamsError` for a key that the tree does not have.
    """
    changed = cast("dict[str, Any]", copy.deepcopy(tree))  # not of dict(tree), which has lost its comments
    for dotted, value in settings.items():
        *sections, key = dotted.split(".")
        section: Any = changed
        for each in sections:
            section = section.get(each) if isinstance(section, dict) else None
        if not isinstance(section, dict) or key not in section:
            raise ParamsError(f"{dotted}: unknown key; params.yaml lists the known ones")
        section[key] = value
    return changed


def write_settings(path: Path, settings: Mapping[str, Value]) -> None:
    """Set dotted keys in the params.yaml at `path`; comments and the order of keys stay.

    Raises `ParamsError`, and leaves the file as it was, for a key or a value that is not allowed.
    """
    load_params(path)  # whose faults are one line; those of ruamel are not
    yaml = keeping_yaml()
    tree = yaml.load(path)
    with replacing_file(path) as temporary:
        yaml.dump(apply(tree, settings), temporary)
        load_params(temporary)


def keeping_yaml() -> Any:
    """Return a reader and writer of YAML that keeps comments, quotes and long lines."""
    from ruamel.yaml import YAML  # as `dvc exp run -S` writes it

    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, 10_000
    return yaml
