"""What a benchmark brings back: tables to read, and the same numbers as JSON with hardware and versions."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from parashot.files import write_text
from parashot.hardware import inspect_hardware
from parashot.questions.statistics import Interval, Resampling
from parashot.questions.text import number

RESAMPLING = Resampling()
"""How every interval of the benchmarks is made: 95%, resampled blocks."""

Cell = str | int | float | Interval | None

_PACKAGES = ("parashot", "torch", "torchvision", "numpy", "pillow", "easyfsl")
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Table:
    """One table: `columns` name the unit, cells are numbers, intervals or words."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Outcome:
    """One benchmark's result; `raw` holds what the tables were made from, block by block."""

    benchmark: str
    tables: Sequence[Table]
    raw: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


def show(outcome: Outcome) -> str:
    """The tables as text."""
    return "\n\n".join(f"{table.title}\n\n{aligned(table)}" for table in outcome.tables) + "\n"


def save(outcome: Outcome, path: Path) -> None:
    """Write `outcome` as JSON, with what it was measured on."""
    tree = {
        "benchmark": outcome.benchmark,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": _commit(),
        "hardware": asdict(inspect_hardware()),
        "kernel": platform.release(),
        "versions": _versions(),
        "seconds": round(outcome.seconds, 1),
        "settings": dict(outcome.settings),
        "tables": [
            {
                "title": table.title,
                "rows": [dict(zip(table.columns, map(_plain, row), strict=True)) for row in table.rows],
            }
            for table in outcome.tables
        ],
        "raw": dict(outcome.raw),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(tree, indent=1) + "\n")


def _plain(cell: Cell) -> Any:
    """A cell as JSON knows it; an interval is [value, low, high]."""
    return [cell.value, cell.low, cell.high] if isinstance(cell, Interval) else cell


def aligned(table: Table) -> str:
    """A Markdown table whose columns stand in line."""
    cells = [list(table.columns), *([_words(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(table.columns))]
    lines = [
        "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _words(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, Interval):
        return f"{number(cell.value)} ({number(cell.low)} to {number(cell.high)})"
    return number(float(cell)) if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else cell


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _commit() -> str | None:
    """The commit that was measured, with `+` where the tree differs from it; None outside of git."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
