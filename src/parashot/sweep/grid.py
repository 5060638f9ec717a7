"""A grid of params: every combination of the choices given as `-S key=value,value`, each checked.

The grammar is that of `dvc exp run -S`, read by the parser that DVC itself uses (Hydra's).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parashot.errors import ParamsError, UsageError
from parashot.knobs import apply
from parashot.params import Params
from parashot.parsing import Value, in_yaml, parse

Grid = Mapping[str, Sequence[Value]]
"""Values to try, by dotted key."""


@dataclass(frozen=True)
class Point:
    """One combination: the knobs that were given, and the params that they make."""

    settings: Mapping[str, Value]
    params: Params

    @property
    def name(self) -> str:
        """The knobs as a user gives them."""
        return " ".join(f"{key}={in_yaml(value)}" for key, value in self.settings.items()) or "params.yaml"


def grid(tree: object, choices: Grid, fixed: Mapping[str, Value] | None = None) -> list[Point]:
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
    """Read `key=value,value` words. Raises `UsageError`."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import QuotedString
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    choices: dict[str, list[Value]] = {}
    for word in words:
        try:
            override = parser.parse_override(word)
            found: Any = override.sweep_iterator() if override.is_sweep_override() else [override.value()]
            values: list[Any] = [each.text if isinstance(each, QuotedString) else each for each in found]
        except (HydraException, ValueError) as error:  # range(0,1,0)
            reason = str(error).partition("\n")[0]
            raise UsageError(
                f"-S {word}: write key=value, or key=value,value for a choice ({reason})"
            ) from None
        key = override.key_or_group
        if key in choices:
            raise UsageError(f"-S {word}: {key} is given twice; write its values behind one key: {key}=1,2")
        choices[key] = values
    return choices
