"""What `parashot measure` says of the examples, against the same two ways written by hand in plain PyTorch.

Each is measured once. Then its default and its recommended way are trained by plain_training.py, each
training in processes of its own, ten times in the order A B B A: how often does the speedup lie in the stated
interval?
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.checkout import ROOT, run_command
from benchmarks.outcome import Cell, Outcome, Table, ratio_of
from parashot.allocator import as_environment
from parashot.progress import passing

EXAMPLES: Sequence[str] = ("image_classifier", "jpeg_classifier", "text_transformer", "tabular_mlp")
MINUTES, REPEATS, SECONDS = 5.0, 10, 5.0
"""Of `parashot measure`, comparisons by hand, and of a training in one of them."""

NEEDED = 9
"""Comparisons within the stated interval."""

COLUMNS = ["example", "recommended", "stated, low", "stated, high", "by hand", "within"]


def run(quick: bool) -> Outcome:
    """Compare example by example; `quick`: one of them, one minute, two comparisons."""
    examples, minutes, repeats, seconds = EXAMPLES, MINUTES, REPEATS, SECONDS
    if quick:
        examples, minutes, repeats, seconds = ("tabular_mlp",), 1.0, 2, 1.0
    rows, raw, short = list[list[Cell]](), dict[str, Any](), False
    for name in examples:
        file = ROOT / "examples" / f"{name}.py"
        advice = _measured(file, minutes)
        default, advised = advice["finalists"][0]["way"], advice["advised"]
        raw[name] = {"advice": advice}
        if advised == default:
            rows.append([name, advised["way"], None, None, None, "nothing to compare"])
            continue
        pairs = raw[name]["seconds"] = [
            _compared(file, default, advised, seconds) for _ in _counted(name, repeats)
        ]
        stated = next(each for each in advice["finalists"] if each["way"] == advised)
        low, high = stated["speedup_low"], stated["speedup_high"]
        within = sum(low <= above / below <= high for above, below in pairs)
        by_hand = ratio_of(*([*each] for each in zip(*pairs, strict=True)))
        rows.append([name, advised["way"], low, high, by_hand, f"{within} of {repeats}"])
        short |= within < NEEDED
    table = Table("Speedup over the default way", COLUMNS, rows)
    return Outcome("own", [table], raw, {"minutes": minutes, "short": short and not quick})


def _counted(name: str, repeats: int) -> Iterator[int]:
    """Count, and show how far it is."""
    for number in range(repeats):
        passing("%s by hand: %d of %d", name, number + 1, repeats)
        yield number


def _measured(file: Path, minutes: float) -> Any:
    """What `parashot measure --json` says of a file."""
    command = ("-m", "parashot.cli", "measure", str(file), "--budget", str(minutes), "--json")
    with tempfile.TemporaryDirectory() as folder:
        return json.loads(run_command(sys.executable, *command, folder=Path(folder)))


def _compared(file: Path, first: dict[str, Any], second: dict[str, Any], seconds: float) -> list[float]:
    """Seconds per step of two ways, each the geometric mean of two trainings, so drift harms neither."""
    order = [_by_hand(file, way, seconds) for way in (first, second, second, first)]
    return [math.sqrt(order[0] * order[3]), math.sqrt(order[1] * order[2])]


def _by_hand(file: Path, way: dict[str, Any], seconds: float) -> float:
    """Seconds per step of a way in plain PyTorch, trained for `seconds`."""
    variables = as_environment() if way["keep_memory"] else {}
    start = ["env", *(f"{name}={value}" for name, value in variables.items()), sys.executable]
    if way["strategy"] != "serial" and way["replicas"] > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(way["replicas"])]
    script = Path(__file__).with_name("plain_training.py")
    said = run_command(*start, str(script), str(file), json.dumps(way), str(seconds))
    return float(said.split()[-1])
