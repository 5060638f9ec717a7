"""`python -m benchmarks.page`: docs/benchmarks.md, its pictures, the README's bounds, from the results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import leaks_figure
from benchmarks.outcome import ROOT, Cell, Table, aligned
from parashot.files import replacing_file, write_text
from parashot.questions.statistics import Interval
from parashot.report.canvas import Drawing, png

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = PAGE.parent / "pictures"
README = ROOT / "README.md"
BEGIN, END = "<!-- bounds: begin -->", "<!-- bounds: end -->"

ORDER = ("check", "step", "loader", "scale", "equivalence", "leaks", "machine", "predict", "pipeline")
"""Of the sections: what readers ask first comes first."""

DRAWN: Mapping[str, Callable[[Mapping[str, Any]], Drawing]] = {"leaks": leaks_figure.draw}
"""How results are drawn that need it, by name."""


def main() -> int:
    """Write both and return the exit status."""
    for name in DRAWN.keys() & {path.stem for path in RESULTS.glob("*.json")}:
        with replacing_file(PICTURES / f"{name}.png") as temporary:
            temporary.write_bytes(png(DRAWN[name](_read(RESULTS, name))))
    write_text(PAGE, page(RESULTS))
    write_text(README, with_bounds(README.read_text(encoding="utf-8"), RESULTS))
    print(f"{PAGE}\n{README}")
    return 0


def page(results: Path) -> str:
    """All results that are there as one Markdown page."""
    parts = [
        "# Benchmarks",
        "Made by `python -m benchmarks.page` from `benchmarks/results/*.json`. Each "
        "was measured by `python -m benchmarks NAME --to benchmarks/results/NAME.json`: sides in processes "
        "of their own, timed in turn (A B C A B C …); medians with 95% intervals from resampled blocks.",
    ]
    for name in sorted((path.stem for path in results.glob("*.json")), key=_place):
        tree = _read(results, name)
        about = import_module(f"benchmarks.{tree['benchmark']}").__doc__ or ""
        parts += [f"## {name}", about.strip(), f"*{_circumstances(tree)}*"]
        if name in DRAWN:
            drawing = DRAWN[name](tree)
            parts += [f"![{drawing.alt}]({PICTURES.name}/{name}.png)", drawing.caption]
        for table in _tables(tree):
            parts += [f"**{table.title}**", aligned(table)]
    return "\n\n".join(parts) + "\n"


def with_bounds(readme: str, results: Path) -> str:
    """The README with its table of bounds made anew. Raises `ValueError` where it has no place for it."""
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    tree = _read(results, "check")
    table = aligned(_tables(tree)[0])
    return f"{before}{BEGIN}\n{table}\n\n*{_circumstances(tree)}*\n{END}{after}"


def _read(results: Path, name: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
    return tree


def _tables(tree: Mapping[str, Any]) -> list[Table]:
    return [
        Table(
            each["title"],
            list(each["rows"][0]),
            [[_cell(cell) for cell in row.values()] for row in each["rows"]],
        )
        for each in tree["tables"]
        if each["rows"]
    ]


def _cell(cell: Any) -> Cell:
    if isinstance(cell, list):
        return Interval(*cell)
    plain: Cell = cell
    return plain


def _circumstances(tree: Mapping[str, Any]) -> str:
    """On what, with what, when, in one line."""
    machine, versions = tree["hardware"], tree["versions"]
    devices = ", ".join(machine["gpus"]) or "no GPU"
    return (
        f"{machine['cpu_model']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {devices}; Python "
        f"{versions['python']}, torch {versions['torch']}; commit {tree['commit']}, {tree['date']}; "
        f"{tree['seconds'] / 60:.1f} minutes."
    )


def _place(name: str) -> tuple[int, str]:
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)


if __name__ == "__main__":
    sys.exit(main())
