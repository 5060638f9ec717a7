"""`parashot recipe`: whole sets of knobs by name."""

from __future__ import annotations

import argparse
import sys

from parashot.errors import ParamsError
from parashot.knobs import arguments
from parashot.recipes import load_recipe, recipe_names


def run(command: argparse.Namespace) -> None:
    """Print one set, or a line for each."""
    if command.name is None:
        known = [load_recipe(name) for name in recipe_names()]
        width = max(len(each.name) for each in known)
        for each in known:
            print(f"{each.name:<{width}}  {each.description} ({each.hardware})")
        return
    try:
        print(" ".join(arguments(load_recipe(command.name).settings)))
    except ParamsError:
        if not sys.stdout.isatty():
            # `dvc exp run $(parashot recipe TYPO)` would otherwise run with no argument at all.
            print("--no-such-recipe")
        raise
