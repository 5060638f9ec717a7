"""What `parashot measure` says of an example, against the same two ways written by hand in plain PyTorch.

It is measured once. Then the default and the recommended way are trained by plain_training.py, each
in processes of its own, in turn, ten times: how often does the speedup of a pair lie in the stated interval?
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.checkout import ROOT, run_command
from benchmarks.outcome import Cell, Outcome, Table, ratio_of
from parashot.progress import passing

EXAMPLES = ("image_classifier",)
MINUTES, REPEATS, SECONDS = 3.0, 10, 5.0
"""Of `parashot measure`, pairs, and of a training by hand."""

NEEDED = 9
"""Pairs within the stated interval."""


def run(quick: bool) -> Outcome:
    """Compare example by example."""
    examples = ("tabular_mlp",) if quick else EXAMPLES
    rows, raw, short = list[list[Cell]](), {}, False
    for name in examples:
        row, raw[name], good = _example(ROOT / "examples" / f"{name}.py", quick)
        rows.append([name, *row])
        short |= not good
    columns = ["example", "recommended", "stated, low", "stated, high", "by hand", "pairs within"]
    table = Table("Speedup over the default way", columns, rows)
    return Outcome("own", [table], raw, {"minutes": MINUTES, "short": short and not quick})


def _example(file: Path, quick: bool) -> tuple[list[Cell], dict[str, Any], bool]:
    with tempfile.TemporaryDirectory() as folder:
        minutes = str(1 if quick else MINUTES)
        command = ("-m", "parashot.cli", "measure", str(file), "--budget", minutes, "--json")
        advice = json.loads(run_command(sys.executable, *command, folder=Path(folder)))
    default, advised = advice["finalists"][0]["way"], advice["advised"]
    stated = next(each for each in advice["finalists"] if each["way"] == advised)
    low, high = stated["speedup_low"], stated["speedup_high"]
    if advised == default:
        return [advised["way"], None, None, None, "nothing to compare"], {"advice": advice}, True
    seconds: dict[str, list[float]] = {"default": [], "advised": []}
    repeats = 2 if quick else REPEATS
    for number in range(repeats):
        passing("%s by hand: %d of %d", file.stem, number + 1, repeats)
        seconds["default"].append(_by_hand(file, default, quick))
        seconds["advised"].append(_by_hand(file, advised, quick))
    ratios = [above / below for above, below in zip(*seconds.values(), strict=True)]
    within = sum(low <= each <= high for each in ratios)
    row: list[Cell] = [advised["way"], low, high, ratio_of(*seconds.values()), f"{within} of {repeats}"]
    return row, {"advice": advice, "seconds": seconds}, within >= NEEDED


def _by_hand(file: Path, way: dict[str, Any], quick: bool) -> float:
    """Seconds per step of a way in plain PyTorch."""
    ranks = way["replicas"] if way["strategy"] != "serial" else 1
    start = [sys.executable]
    if ranks > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    options = {
        "strategy": way["strategy"],
        "threads": way["threads_per_replica"],
        "workers": way["workers"],
        "prefetch": way["prefetch"],
        "precision": way["precision"],
        "seconds": 1 if quick else SECONDS,
    }
    switches = {
        "--channels-last": way["channels_last"],
        "--fused": way["fused"],
        "--compile": way["compile"] != "none",
    }
    command = [*start, str(Path(__file__).with_name("plain_training.py")), str(file)]
    command += [part for name, value in options.items() for part in (f"--{name}", str(value))]
    command += [name for name, is_on in switches.items() if is_on]
    return float(run_command(*command).split()[-1])
