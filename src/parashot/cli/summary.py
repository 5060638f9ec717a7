"""`parashot summary`: the tables of the last study, printed or written with their figures."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from parashot.cli.arguments import Commands, study_here
from parashot.errors import UsageError


def add_parser(commands: Commands) -> None:
    """Add `parashot summary`."""
    parser = commands.add_parser(
        "summary",
        help="print the tables of the study",
        description="Print the tables of the study in this folder as Markdown, "
        "or write them to a folder together with the figures.",
    )
    parser.add_argument("--to", metavar="DIR", type=Path, help="write DIR/README.md and its figures instead")
    parser.add_argument("--title", default="The study", help="heading of the page (The study)")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    from parashot.files import replacing_folder
    from parashot.report.markdown import markdown

    study = study_here()
    if command.to is None:
        print(markdown(study, command.title), end="")
        return
    _refuse_to_replace_others(command.to)
    figures = _figures()
    with replacing_folder(command.to.resolve()) as folder:
        for figure in figures:
            shutil.copyfile(figure, folder / figure.name)
        page = markdown(study, command.title, [figure.name for figure in figures])
        (folder / "README.md").write_text(page, encoding="utf-8")
        shutil.copyfile("params.yaml", folder / "params.yaml")


def _refuse_to_replace_others(folder: Path) -> None:
    """Raise `UsageError` where the folder, which is replaced as a whole, holds files of others."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--to {folder}: a file has that name; name a folder")
    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    ours = {"README.md", "params.yaml"}
    if names and (not ours <= names or any(not name.endswith(".png") for name in names - ours)):
        raise UsageError(f"--to {folder}: it holds other files; name a folder that is new or empty")


def _figures() -> list[Path]:
    """Return the report's figures, the overview first."""
    figures = Path("reports/figures").glob("*.png")
    return sorted(figures, key=lambda path: (path.stem != "overview", path.name))
