"""The command `parashot`."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from parashot.command import guarded
from parashot.errors import ParamsError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (this process's where None is given) and return its exit status."""
    command = _parser().parse_args(arguments)
    return guarded(lambda: command.run(command))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="parashot",
        description="How should this few-shot training be parallelised? Measured, on your machine.",
    )
    parser.add_argument("--version", action="version", version=f"parashot {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    recipe = commands.add_parser(
        "recipe",
        help="print a whole set of knobs for dvc exp run, or list the sets",
        description="Print a recipe as arguments for dvc exp run $(parashot recipe NAME), or list all.",
    )
    recipe.add_argument("name", nargs="?", metavar="NAME", help="the recipe to print")
    recipe.set_defaults(run=_recipe)
    summary = commands.add_parser(
        "summary",
        help="print the tables of the last study",
        description="Print the tables of results/summary.json as Markdown, "
        "or write them with the figures to a folder.",
    )
    summary.add_argument("--to", metavar="DIR", type=Path, help="write DIR/README.md and its figures instead")
    summary.add_argument("--title", default="The study", help="heading of the page")
    summary.set_defaults(run=_summary)
    return parser


def _version() -> str:
    try:
        return metadata.version("parashot")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _recipe(command: argparse.Namespace) -> None:
    from parashot import recipes

    if command.name is None:
        known = [recipes.load_recipe(name) for name in recipes.recipe_names()]
        width = max(len(each.name) for each in known)
        for each in known:
            print(f"{each.name:<{width}}  {each.description} ({each.hardware})")
        return
    try:
        print(" ".join(recipes.arguments(recipes.load_recipe(command.name))))
    except ParamsError:
        if not sys.stdout.isatty():
            # `dvc exp run $(parashot recipe TYPO)` would otherwise run with no argument at all.
            print("--no-such-recipe")
        raise


def _summary(command: argparse.Namespace) -> None:
    from parashot.files import replacing_folder
    from parashot.records import read_json
    from parashot.report.markdown import markdown

    summary = read_json(Path("results/summary.json"))
    if command.to is None:
        print(markdown(summary, command.title), end="")
        return
    figures = sorted(
        Path("reports/figures").glob("*.png"), key=lambda path: (path.stem != "overview", path.name)
    )
    with replacing_folder(command.to) as folder:
        for figure in figures:
            shutil.copyfile(figure, folder / figure.name)
        page = markdown(summary, command.title, [figure.name for figure in figures])
        (folder / "README.md").write_text(page, encoding="utf-8")
        shutil.copyfile("params.yaml", folder / "params.yaml")


if __name__ == "__main__":
    sys.exit(main())
