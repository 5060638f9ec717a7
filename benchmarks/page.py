"""`python -m benchmarks.page`: docs/benchmarks.md and its picture, from the results."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.__main__ import BENCHMARKS
from benchmarks.checkout import ROOT
from benchmarks.leaks import QUANTITIES, WORKS
from benchmarks.outcome import Table, aligned
from parashot.files import write_text
from parashot.questions.statistics import Interval

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "pictures" / "leaks.png"

OF_MANY: Mapping[str, tuple[str, ...]] = {
    "step": ("Training step: bottleneck, 84 px, 15", "Training step: conv4, 84 px, 15", "Share of", "DDP"),
    "loader": ("loader: 84 px, 1 query", "loader: how many"),
}
"""Tables that the page shows of a benchmark that has many, by the beginnings of their titles."""


def main() -> int:
    """Write both and return the exit status."""
    draw_leaks(_read(RESULTS / "leaks.json")).savefig(PICTURE, dpi=150)
    write_text(PAGE, page(RESULTS))
    print(f"{PAGE}\n{PICTURE}")
    return 0


def page(results: Path) -> str:
    """Return all results of a folder as one Markdown page."""
    parts = [
        "# Benchmarks",
        "Made by `python -m benchmarks.page` from `benchmarks/results/*.json`. Each "
        "was measured by `python -m benchmarks NAME --to benchmarks/results/NAME.json`: sides in processes "
        "of their own, timed in turn (A B C A B C …); medians with 95% intervals from resampled blocks. "
        "A `+` after a commit marks uncommitted changes.",
    ]
    for name in BENCHMARKS:
        if (results / f"{name}.json").exists():
            parts += [f"## {name}", (import_module(f"benchmarks.{name}").__doc__ or "").strip()]
        # a benchmark of other data is saved as NAME-DATA.json
        for file in (*results.glob(f"{name}.json"), *sorted(results.glob(f"{name}-*.json"))):
            tree = _read(file)
            parts.append(f"*{_circumstances(tree)}*")
            if name == "leaks":
                what = ", ".join(QUANTITIES.values())
                parts.append(f"![Of each work over its steps or restarts: {what}](pictures/{PICTURE.name})")
            shown = [each for each in _tables(tree) if each.title.startswith(OF_MANY.get(name, ""))]
            for table in shown:
                parts += [f"**{table.title}**", aligned(table)]
            if name in OF_MANY:
                parts.append(f"Other shapes: `benchmarks/results/{file.name}`.")
    return "\n\n".join(parts) + "\n"


def draw_leaks(tree: Mapping[str, Any]) -> Figure:
    """Draw a saved result of `leaks`: memory above, what is counted below, a column for each work."""
    figure = Figure(figsize=(10.0, 5.6), layout="constrained")
    grid = figure.subplots(2, len(WORKS), sharex="col")
    counted = [name for name in QUANTITIES if name != "memory_mb"]
    for (above, below), work in zip(grid.T, WORKS, strict=True):
        raw = tree["raw"][work.name]
        above.set_title(work.title)
        above.plot(raw["at"], raw["memory_mb"])
        above.set_ylim(0, 1.15 * max(raw["memory_mb"]))
        for name, style in zip(counted, ("-", "--", ":", "-.", (0, (1, 4))), strict=True):
            below.plot(raw["at"], raw[name], linestyle=style, label=QUANTITIES[name])
        below.set_ylim(0, 1.1 * max(max(raw[name]) for name in counted))
        below.set_xlabel(work.unit)
        below.xaxis.set_major_locator(MaxNLocator(4))
        below.xaxis.set_major_formatter("{x:,.0f}")
    grid[0][0].set_ylabel("memory (MB)")
    grid[1][0].set_ylabel("number")
    figure.legend(*grid[1][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(counted))
    return figure


def _read(file: Path) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return tree


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


def _circumstances(tree: Mapping[str, Any]) -> str:
    """Machine, versions, commit, date and duration in one line."""
    machine = tree["hardware"]
    devices = ", ".join(machine["gpus"]) or "no GPU"
    return (
        f"{machine['cpu_model']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {devices}; Python "
        f"{machine['python']}, torch {machine['torch']}; commit {tree['commit']}, {tree['date']}; "
        f"{tree['seconds'] / 60:.1f} minutes."
    )


if __name__ == "__main__":
    sys.exit(main())
