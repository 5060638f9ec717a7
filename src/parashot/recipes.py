"""Recipes: whole sets of knobs by name, printed as the `-S key=value` arguments of `dvc exp run`.

A file of `recipes/` names what differs from the default study, which is the recipe `quick`. What a recipe
prints covers every key that any recipe sets, so that one can follow another in the same checkout. The user's
own copy of the images (`data.archive`) outlives a change of recipe, except that the default study has none.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parashot.errors import ParamsError
from parashot.parsing import read_yaml

DEFAULT = "quick"
FOLDER = Path(__file__).with_name("recipes")

Value = bool | int | float | str | None | list[Any]


@dataclass(frozen=True)
class Recipe:
    """A named set of knobs: dotted keys of params.yaml and their values."""

    name: str
    description: str
    hardware: str  # what it takes, in words
    settings: Mapping[str, Value]


def recipe_names() -> list[str]:
    """Every recipe, the default study first."""
    return sorted((path.stem for path in FOLDER.glob("*.yaml")), key=lambda name: (name != DEFAULT, name))


def load_recipe(name: str) -> Recipe:
    """Return the recipe `name`. Raises `ParamsError` for a name that is not known."""
    if name not in recipe_names():
        raise ParamsError(f"recipe {name!r} is unknown; choose one of: {', '.join(recipe_names())}")
    own = _read(name)
    default = {key: value for key, value in _read(DEFAULT)["set"].items() if key != "data.archive"}
    return Recipe(name, own["description"], own["hardware"], {**default, **own["set"]})


def arguments(recipe: Recipe) -> list[str]:
    """Return `recipe` as arguments of `dvc exp run`; none holds a space or anything a shell would change."""
    return [word for key, value in recipe.settings.items() for word in ("-S", f"{key}={_word(value)}")]


def apply(tree: Mapping[str, Any], settings: Mapping[str, Value]) -> dict[str, Any]:
    """Return a copy of the YAML tree with every dotted key of `settings` set.

    Raises `ParamsError` for a key that the tree does not have.
    """
    changed = copy.deepcopy(dict(tree))
    for dotted, value in settings.items():
        *sections, key = dotted.split(".")
        section: Any = changed
        for each in sections:
            section = section.get(each) if isinstance(section, dict) else None
        if not isinstance(section, dict) or key not in section:
            raise ParamsError(f"{dotted}: unknown key; params.yaml lists the known ones")
        section[key] = value
    return changed


def _read(name: str) -> dict[str, Any]:
    tree = read_yaml(FOLDER / f"{name}.yaml")
    assert isinstance(tree, dict)
    return tree


def _word(value: Value) -> str:
    """Write a value in the grammar of `-S` (Hydra's), unquoted: word splitting does not remove quotes."""
    if isinstance(value, list):
        return f"[{','.join(_word(each) for each in value)}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    word = str(value)
    if not re.fullmatch(r"[\w./+-]+", word):
        raise ParamsError(
            f"{word!r} cannot be passed through a shell unquoted; choose a value of letters and digits"
        )
    return word
