"""`python tools/reference.py`: docs/reference.md, from the code.

With `--check` nothing is written; the exit status says whether the page is as the code is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
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

ROOT = Path(__file__).resolve().parents[1]
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


def main() -> int:
    """Write the page, or compare it, and return the exit status."""
    parts = [
        "# Reference",
        "What neither `params.yaml`, `dvc.yaml` nor `parashot COMMAND --help` says. Made by "
        "`python tools/reference.py`.",
    ]
    text = "\n\n".join([*parts, *_files(), *_surroundings()]) + "\n"
    if sys.argv[1:] == ["--check"]:
        return int(PAGE.read_text(encoding="utf-8") != text)
    write_text(PAGE, text)
    return 0


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(header)}", *lines[1:]])


def _files() -> Iterator[str]:
    yield "## Files of results"
    yield (
        "Every result folder also has `metrics.json`, numbers for `dvc metrics`, and `records.jsonl`, a line "
        "per run. Names of columns and keys contain their units. `results/pretrain` has the files of "
        "`results/train/NAME`, but no seeds and no twin."
    )
    files: dict[str, list[str]] = {}
    for folder, kind in FOLDERS.items():
        for _, name, record in files_of(kind):
            contents = " ".join((record.__doc__ or "").split())
            files.setdefault(contents, []).append(f"`{name if record is Choices else f'{folder}/{name}'}`")
    rows = [[", ".join(paths), contents] for contents, paths in files.items()]
    yield _table(["in `results/`", "contents; of a CSV, of one row"], rows)


def _surroundings() -> Iterator[str]:
    yield "## Exit statuses"
    rows = [
        ["0", "done"],
        ["1", "one line on stderr says what is wrong and what to do; or a bound (`--fail-below`) is missed"],
        ["2", "options or values that the command does not take, or the wrong folder for it"],
        ["130", "Ctrl-C"],
    ]
    yield _table(["status", "of `parashot` and of `python -m benchmarks`"], rows)
    yield "## Environment variables"
    rows = [
        [
            "`MLFLOW_TRACKING_URI`",
            "a server of MLflow, or a database (then artifacts stay in `mlruns/`); by default `mlflow.db`",
        ],
        ["`CUDA_VISIBLE_DEVICES`", "the GPUs that are used"],
        ["`PARASHOT_…`", "the network between machines: [several-machines.md](several-machines.md#settings)"],
    ]
    yield _table(["variable", "meaning"], rows)


if __name__ == "__main__":
    sys.exit(main())
