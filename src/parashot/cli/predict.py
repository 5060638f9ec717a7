"""`parashot predict`: the time of a step on devices that are not here."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from parashot.cli.shared import require_study
from parashot.errors import RecordError
from parashot.questions.results import load_results
from parashot.questions.scaling.rows import Predictor, checked_rows, parse_devices
from parashot.questions.statistics import CONFIDENCE
from parashot.report.tables import CHECKED, SCALING


def run(command: argparse.Namespace) -> None:
    """Print what the model says of more devices, and how it does on those that are here."""
    devices = parse_devices(command.gpus)
    results = load_results(Path(), (), partial=True)
    if results.strategies is None:
        if not Path("results/strategies").exists():
            require_study()
        raise RecordError(results.missing["strategies"])
    predictor = Predictor.of(results.strategies, CONFIDENCE)
    rows = predictor.rows(command.link, devices, command.per_node, command.within, command.batchsz)
    checked = checked_rows(predictor, results.strategies)
    if command.json:
        trees = {"rows": [asdict(row) for row in rows], "checked": [asdict(row) for row in checked]}
        print(json.dumps(trees, indent=2, allow_nan=False))
    else:
        tables = (SCALING.of(rows), CHECKED.of(checked))
        print("\n".join(f"{table.caption}.\n\n{table.plain()}" for table in tables if table.rows), end="")
