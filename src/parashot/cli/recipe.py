"""`parashot recipe`: whole sets of knobs by name."""

from __future__ import annotations

import argparse
import sys

from parashot.cli.arguments import Commands
from parashot.errors import ParamsError


def add_parser(commands: Commands) -> None:
    """Add `parashot recipe`."""
    parser = commands.add_parser(
        "recipe",
        help="print a named set of knobs for dvc exp run, or list the sets",
        description="Print a recipe, a named set of knobs, for use in dvc exp run $(parashot recipe NAME).",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="recipe to print; default: list all")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    from parashot import recipes
    from parashot.knobs import arguments

    if command.name is None:
        known = [recipes.load_recipe(name) for name in recipes.recipe_names()]
        width = max(len(each.name) for each in known)
        for each in known:
            print(f"{each.name:<{width}}  {each.description} ({each.hardware})")
        return
    try:
        print(" ".join(arguments(recipes.load_recipe(command.name).settings)))
    except ParamsError:
        if not sys.stdout.isatty():
            # `dvc exp run $(parashot recipe TYPO)` would otherwise run with no argument at all.
            print("--no-such-recipe")
        raise
