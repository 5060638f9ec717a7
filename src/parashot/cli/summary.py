"""`parashot summary`: the tables of the last study, printed or written with their figures."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from parashot.cli import PARAMS
from parashot.cli.shared import study_here
from parashot.errors import UsageError
from parashot.files import replacing_folder
from parashot.questions.summary import export
from parashot.report.markdown import markdown, markdown_beside_report

REPORT = Path("reports/index.html")


def run(command: argparse.Namespace) -> None:
    """Print the tables, or write them with the report and its figures, the overview first."""
    study = study_here()
    if command.json:
        print(json.dumps(export(study), indent=2, allow_nan=False))
        return
    if command.to is None:
        print(markdown(study, command.title), end="")
        return
    _refuse_to_replace_others(command.to)
    if not REPORT.exists():
        raise UsageError(f"--to {command.to}: {REPORT} is missing; `dvc repro summarize` writes it")
    found = Path("reports/figures").glob("*.png")
    figures = sorted(found, key=lambda path: (path.stem != "overview", path.name))
    with replacing_folder(command.to.resolve()) as folder:
        for file in (*figures, PARAMS):
            shutil.copyfile(file, folder / file.name)
        shutil.copyfile(REPORT, folder / "report.html")
        page = markdown_beside_report(study, command.title, [figure.name for figure in figures])
        (folder / "README.md").write_text(page, encoding="utf-8")


def _refuse_to_replace_others(folder: Path) -> None:
    """Raise `UsageError` where the folder, which is replaced as a whole, holds files of others."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--to {folder}: a file has that name; name a folder")
    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    ours = {"README.md", "params.yaml"}
    others = {name for name in names - ours - {"report.html"} if not name.endswith(".png")}
    if names and (others or not ours <= names):
        raise UsageError(f"--to {folder}: it holds other files; name a folder that is new or empty")
