"""Recipes: whole sets of knobs by name, printed as the `-S key=value` arguments of `dvc exp run`.

A file of `recipes/` names what differs from the recipe that it is `like`: where it names none, from the
default study, which is `quick`. What a recipe prints covers every key that any recipe sets, so that one can
follow another in the same checkout. The user's own copy of the images (`data.archive`) outlives a change of
recipe, except that the default study has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parashot.errors import UsageError
from parashot.parsing import Value, read_yaml
from parashot.plain import did_you_mean

DEFAULT = "quick"
FOLDER = Path(__file__).with_name("recipes")


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
    """Return the recipe `name`. Raises `UsageError` for a name that is not known."""
    if name not in (known := recipe_names()):
        raise UsageError(
            f"recipe {name!r} is unknown; {did_you_mean(name, known)}there are {', '.join(known)}"
        )
    own = _read(name)
    like = load_recipe(own["like"]).settings if "like" in own else _read(DEFAULT)["set"]
    default = {key: value for key, value in like.items() if key != "data.archive"}
    return Recipe(name, own["description"], own["hardware"], {**default, **own["set"]})


def _read(name: str) -> dict[str, Any]:
    tree = read_yaml(FOLDER / f"{name}.yaml")
    assert isinstance(tree, dict)
    return tree
