"""`python tools/reference.py`: the table of files in docs/reference.md, from the code."""

from __future__ import annotations

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


def page() -> str:
    """Return the page with the table that it should have."""
    files: dict[str, list[str]] = {}
    for folder, kind in FOLDERS.items():
        for _, name, record in files_of(kind):
            contents = " ".join((record.__doc__ or "").split())
            files.setdefault(contents, []).append(f"`{name if record is Choices else f'{folder}/{name}'}`")
    rows = [[", ".join(paths), contents] for contents, paths in files.items()]
    contents = table(["in `results/`", "contents; of a CSV, of one row"], ["---"] * 2, rows)
    return filled(PAGE.read_text(encoding="utf-8"), contents, "<!-- files: begin -->", "<!-- files: end -->")


if __name__ == "__main__":
    write_text(PAGE, page())
