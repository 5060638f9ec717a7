"""`parashot predict`: the time of a step on devices that are not here."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from parashot.cli.arguments import Commands, at_least
from parashot.errors import RecordError


def add_parser(commands: Commands) -> None:
    """Add `parashot predict`."""
    parser = commands.add_parser(
        "predict",
        help="predict the time of a DDP step on more devices",
        description="Predict seconds, speedup and efficiency of DDP's step on more devices like those that "
        "the study in this folder measured, with intervals. The model: docs/predict.md.",
    )
    parser.add_argument(
        "--gpus", metavar="N,N,…", default="1,2,4,8,64", help="numbers of devices (1,2,4,8,64)"
    )
    link = "link between nodes: here, a name such as infiniband-hdr, or GB/s,latency in µs (here)"
    parser.add_argument("--link", metavar="LINK", default="here", help=link)
    parser.add_argument("--within", metavar="LINK", help="link within a node; default: as measured here")
    parser.add_argument(
        "--per-node", metavar="N", type=at_least(1), help="devices of a node; default: as here"
    )
    parser.add_argument(
        "--batchsz", metavar="N", type=at_least(1), help="episodes per step; default: the study's"
    )
    parser.add_argument("--json", action="store_true", help="print JSON in full precision")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    from parashot.questions.results import load_results
    from parashot.questions.scaling.rows import Predictor, checked_rows, parse_devices
    from parashot.questions.statistics import Resampling
    from parashot.report.tables import CHECKED, SCALING

    devices = parse_devices(command.gpus)
    results = load_results(Path(), (), partial=True)
    if results.strategies is None:
        raise RecordError(results.missing["strategies"])
    predictor = Predictor.of(results.strategies, Resampling())
    rows = predictor.rows(command.link, devices, command.per_node, command.within, command.batchsz)
    checked = checked_rows(predictor, results.strategies)
    if command.json:
        trees = {"rows": [asdict(row) for row in rows], "checked": [asdict(row) for row in checked]}
        print(json.dumps(trees, indent=2, allow_nan=False))
    else:
        tables = (SCALING.of(rows), CHECKED.of(checked))
        print("\n".join(f"{table.caption}.\n\n{table.plain()}" for table in tables if table.rows), end="")
