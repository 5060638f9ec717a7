"""What `parashot measure` says of the examples, against the same two ways written by hand in plain PyTorch.

After one measurement, its default and its recommended way are timed ten times more, in turn: by the code of
the finals, which states an interval, and by hand (plain_training.py). How often does the interval, widened by
5%, hold the speedup by hand: the mean of all ten, or that of the pair timed beside it?
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

from benchmarks.checkout import ROOT, run_command
from benchmarks.outcome import Cell, Outcome, Table, ratio_of
from benchmarks.search import Grid, grid_of
from parashot.allocator import as_environment
from parashot.questions.own.advice import ELSEWHEN
from parashot.questions.own.measure import LAUNCHES, ROUNDS, apart_on, own_placement
from parashot.questions.own.records import OwnWay
from parashot.questions.statistics import CONFIDENCE, Interval
from parashot.questions.ways.measure import steps_in_common, time_ways
from parashot.questions.ways.rows import way_rows

EXAMPLES: Sequence[str] = ("image_classifier", "jpeg_classifier", "text_transformer", "tabular_mlp")
MINUTES, REPEATS, SECONDS = 5.0, 10, 4.0
"""Of `parashot measure`, repeats, and of a training by hand."""

NEEDED = 9
"""Intervals that hold the speedup by hand."""

COLUMNS = [
    "example",
    "recommended",
    "stated",
    "by hand",
    "intervals that hold it",
    "that hold the pair beside",
]

Way = dict[str, Any]
"""As `parashot measure --json` writes it."""


def run(quick: bool) -> Outcome:
    """Compare example by example; `quick`: one of them, one minute, two repeats."""
    rows, raw, short = list[list[Cell]](), dict[str, Any](), False
    minutes, repeats, seconds = (1.0, 2, 1.0) if quick else (MINUTES, REPEATS, SECONDS)
    for name in ("tabular_mlp",) if quick else EXAMPLES:
        file = ROOT / "examples" / f"{name}.py"
        advice = _measured(file, minutes)
        default, advised = advice["finalists"][0]["way"], advice["advised"]
        raw[name] = {"advice": advice}
        if advised == default:
            rows.append([name, advised["way"], None, None, "nothing to compare", ""])
            continue
        stated, pairs = _repeated(file, default, advised, repeats, seconds)
        by_hand = ratio_of(*([*each] for each in zip(*pairs, strict=True)))
        held = [each.side_of(by_hand.value) == "around" for each in stated]
        own = [each.side_of(a / b) == "around" for each, (a, b) in zip(stated, pairs, strict=True)]
        counts = (f"{sum(each)} of {len(each)}" for each in (held, own))
        rows.append([name, advised["way"], _first_stated(advice), by_hand, *counts])
        raw[name] |= {"stated": [asdict(each) for each in stated], "seconds": pairs}
        short |= sum(held) < NEEDED
    table = Table("Speedup over the default way", COLUMNS, rows)
    return Outcome("own", [table], raw, {"minutes": minutes, "short": short and not quick})


def _first_stated(advice: dict[str, Any]) -> Interval:
    """The speedup of the advised way in the finals of the measurement itself."""
    row = next(each for each in advice["finalists"] if each["way"] == advice["advised"])
    return Interval(row["speedup"], row["speedup_low"], row["speedup_high"])


def _repeated(
    file: Path, default: Way, advised: Way, repeats: int, seconds: float
) -> tuple[list[Interval], list[list[float]]]:
    """Speedups that finals state, and seconds per step of both ways by hand, in turn."""
    grid, stated, pairs = grid_of(file), list[Interval](), list[list[float]]()
    for number in range(repeats):
        stated.append(_stated(grid, default, advised))
        pairs.append(_compared(file, default, advised, seconds))
        found = (file.stem, number + 1, repeats, *astuple(stated[-1]), *pairs[-1])
        said = "  %s, %d of %d: %.3f (%.3f to %.3f); by hand %.6f and %.6f s per step"
        print(said % found, file=sys.stderr)
    return stated, pairs


def _stated(grid: Grid, *ways: Way) -> Interval:
    """The speedup of the second way over the first that the finals of a measurement state."""
    default, advised = both = [OwnWay(**each) for each in ways]
    bench = replace(grid.parallel.bench, launches=LAUNCHES, blocks=ROUNDS)
    placement, steps = own_placement(grid.parallel), 0
    if apart_on(placement):
        seen = time_ways(grid.trainings, both, placement, replace(bench, launches=1), "before")
        steps = steps_in_common(both, seen, bench)
    blocks = time_ways(grid.trainings, both, placement, bench, "finals again", steps_apart=steps)
    _, row = way_rows([default, advised], blocks, default.way, CONFIDENCE, ELSEWHEN)
    assert row.speedup is not None
    return row.speedup


def _measured(file: Path, minutes: float) -> Any:
    """What `parashot measure --json` says of a file."""
    command = ("-m", "parashot.cli", "measure", str(file), "--budget", str(minutes), "--json")
    with tempfile.TemporaryDirectory() as folder:
        return json.loads(run_command(sys.executable, *command, folder=Path(folder)))


def _compared(file: Path, first: Way, second: Way, seconds: float) -> list[float]:
    """Seconds per step of two ways, each the geometric mean of two trainings, so drift harms neither."""
    order = [_by_hand(file, way, seconds) for way in (first, second, second, first)]
    return [math.sqrt(order[0] * order[3]), math.sqrt(order[1] * order[2])]


def _by_hand(file: Path, way: Way, seconds: float) -> float:
    """Seconds per step of a way in plain PyTorch, trained for `seconds`."""
    variables = as_environment() if way["keep_memory"] else {}
    start = ["env", *(f"{name}={value}" for name, value in variables.items()), sys.executable]
    if way["strategy"] != "serial" and way["replicas"] > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(way["replicas"])]
    script = Path(__file__).with_name("plain_training.py")
    said = run_command(*start, str(script), str(file), json.dumps(way), str(seconds))
    return float(said.split()[-1])
