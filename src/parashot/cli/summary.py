"""`parashot summary`: the tables of the last study, printed or written with their figures."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parashot.cli.arguments import Commands
from parashot.errors import UsageError


def add_parser(commands: Commands) -> None:
    """Add `parashot summary`."""
    parser = commands.add_parser(
        "summary",
        help="print the tables of the last study",
        description="Print the tables of results/summary.json as Markdown, "
        "or write them with the figures to a folder.",
    )
    parser.add_argument("--to", metavar="DIR", type=Path, help="write DIR/README.md and its figures instead")
    parser.add_argument("--title", default="The study", help="heading of the page")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    from parashot.files import replacing_folder
    from parashot.records import read_json
    from parashot.report.markdown import markdown

    summary = read_json(Path("results/summary.json"))
    if command.to is None:
        print(markdown(summary, command.title), end="")
        return
    figures = sorted(_figures(summary), key=lambda path: (path.stem != "overview", path.name))
    _refuse_to_replace_others(command.to)
    with replacing_folder(command.to.resolve()) as folder:
        for figure in figures:
            shutil.copyfile(figure, folder / figure.name)
        page = markdown(summary, command.title, [figure.name for figure in figures])
        (folder / "README.md").write_text(page, encoding="utf-8")
        shutil.copyfile("params.yaml", folder / "params.yaml")


def _refuse_to_replace_others(folder: Path) -> None:
    """The folder is replaced as a whole: it may hold nothing but what this command wrote there before."""
    if folder.is_dir() and any(folder.iterdir()):
        names = {each.name for each in folder.iterdir()}
        written = {"README.md", "params.yaml"} <= names
        others = {each for each in names - {"README.md", "params.yaml"} if not each.endswith(".png")}
        if not written or others:
            raise UsageError(f"--to {folder}: it holds other files; name a folder that is new or empty")
    elif folder.exists() and not folder.is_dir():
        raise UsageError(f"--to {folder}: a file has that name; name a folder")


def _figures(summary: Mapping[str, Any]) -> list[Path]:
    """Every figure; of real images those alone that show none, since a page like this is handed on."""
    figures = list(Path("reports/figures").glob("*.png"))
    return [path for path in figures if summary["synthetic"] or not path.stem.startswith("episode_")]
