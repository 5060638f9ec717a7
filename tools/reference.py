"""`python tools/reference.py`: the table of files in docs/reference.md, from the code.

With `--check` nothing is written; the exit status says whether the page is as the code is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from parashot.files import write_text
from parashot.questions.accuracy.records import Evaluation, Training, WarmupResults
from parashot.questions.batchsz.records import BatchszResults
from parashot.questions.gain.records import GainResults
from parashot.questions.loader.records import LoaderResults
from parashot.questions.runs import files_of
from parashot.questions.step.records import TuneResults
from parashot.questions.strategies.records import StrategyResults
from parashot.train.records import Choices
from results import ROOT, filled, table

PAGE = ROOT / "docs/reference.md"
FOLDERS: Mapping[str, type[Any]] = {
    "tune": TuneResults,
    "loader": LoaderResults,
    "gain": GainResults,
    "strategies": StrategyResults,
    "train/NAME": Training,
    "batchsz": BatchszResults,
    "warmup": WarmupResults,
    "evaluate": Evaluation,
}
"""What the files of each folder of results hold together."""


BEGIN, END = "<!-- files: begin -->", "<!-- files: end -->"


def main() -> int:
    """Write the table of the page, or compare it, and return the exit status."""
    page = PAGE.read_text(encoding="utf-8")
    text = filled(page, _files(), BEGIN, END)
    if sys.argv[1:] == ["--check"]:
        return int(page != text)
    write_text(PAGE, text)
    return 0


def _files() -> str:
    files: dict[str, list[str]] = {}
    for folder, kind in FOLDERS.items():
        for _, name, record in files_of(kind):
            contents = " ".join((record.__doc__ or "").split())
            files.setdefault(contents, []).append(f"`{name if record is Choices else f'{folder}/{name}'}`")
    rows = [[", ".join(paths), contents] for contents, paths in files.items()]
    return table(["in `results/`", "contents; of a CSV, of one row"], ["---"] * 2, rows)


if __name__ == "__main__":
    sys.exit(main())
