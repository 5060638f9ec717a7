"""`parashot recipe`: whole sets of knobs by name."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from parashot.errors import UsageError
from parashot.knobs import arguments
from parashot.recipes import load_recipe, recipe_names


def run(command: argparse.Namespace) -> None:
    """Print one set, or a line for each."""
    if command.name is None:
        known = [load_recipe(name) for name in recipe_names()]
        if command.json:
            print(json.dumps([asdict(each) for each in known], indent=2))
            return
        width = max(len(each.name) for each in known)
        for each in known:
            print(f"{each.name:<{width}}  {each.description} ({each.hardware})")
        return
    try:
        recipe = load_recipe(command.name)
        print(json.dumps(asdict(recipe), indent=2) if command.json else " ".join(arguments(recipe.settings)))
    except UsageError:
        if not command.json and not sys.stdout.isatty():
            # `dvc exp run $(parashot recipe TYPO)` would otherwise run with no argument at all
            print("-S no_such_recipe=0")
        raise
