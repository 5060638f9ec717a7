"""`python -m benchmarks.page`: docs/benchmarks.md, from the results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.__main__ import BENCHMARKS
from benchmarks.checkout import ROOT
from benchmarks.outcome import Table, aligned
from parashot.files import write_text
from parashot.questions.statistics import Interval

LEFT_OUT = {"leaks", "predict", "roofline", "pipeline"}
"""Benchmarks whose figures few readers compare."""

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"


def page(results: Path) -> str:
    """Return the results of a folder as one Markdown page."""
    files = [(name, file) for name in BENCHMARKS if name not in LEFT_OUT for file in _files(results, name)]
    trees = {file: json.loads(file.read_text(encoding="utf-8")) for _, file in files}
    usual, _ = Counter(_machine(tree) for tree in trees.values()).most_common(1)[0]
    parts = [
        "# Benchmarks",
        "`python -m benchmarks NAME` repeats one of them; `python -m benchmarks.page` makes this page.\n"
        f"[Every block, and {', '.join(sorted(LEFT_OUT))}](../benchmarks/results). What is compared runs in "
        "processes\nof its own, timed in turn; medians with 95% intervals. A `+` after a commit: uncommitted "
        "changes.",
        f"*Where nothing else is said: {usual}.*",
    ]
    for name, file in files:
        tree = trees[file]
        if file == results / f"{name}.json":
            about = (import_module(f"benchmarks.{name}").__doc__ or "").strip().split("\n\n")[:2]
            parts += [f"## {name}", *about, f"[More](../benchmarks/{name}.py)."]
        machine = "" if _machine(tree) == usual else f"{_machine(tree)}; "
        parts.append(
            f"*{machine}commit {tree['commit']}, {tree['date']}; {tree['seconds'] / 60:.1f} minutes.*"
        )
        for table in _tables(tree):
            parts += [f"**{table.title}**", aligned(table)]
    return "\n\n".join(parts) + "\n"


def _files(results: Path, name: str) -> list[Path]:
    """Results of a benchmark; one of other data is saved as NAME-DATA.json."""
    return [*results.glob(f"{name}.json"), *sorted(results.glob(f"{name}-*.json"))]


def _tables(tree: Mapping[str, Any]) -> list[Table]:
    """Tables as they were before they were saved: a list of three is an interval."""
    tables = []
    for each in tree["tables"]:
        rows = [
            [Interval(*cell) if isinstance(cell, list) else cell for cell in row.values()]
            for row in each["rows"]
        ]
        tables.append(Table(each["title"], list(each["rows"][0]), rows))
    return tables


def _machine(tree: Mapping[str, Any]) -> str:
    """Machine and versions in one line."""
    machine = tree["hardware"]
    devices = ", ".join(machine["gpus"]) or "no GPU"
    return (
        f"{machine['cpu_model']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {devices}; Python "
        f"{machine['python']}, torch {machine['torch']}"
    )


if __name__ == "__main__":
    write_text(PAGE, page(RESULTS))
    print(PAGE)
