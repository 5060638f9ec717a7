"""`parashot predict`: the time of a step on devices that are not here."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from parashot.cli.arguments import Commands, at_least
from parashot.errors import RecordError

if TYPE_CHECKING:
    pass


def add_parser(commands: Commands) -> None:
    """Add `parashot predict`."""
    parser = commands.add_parser(
        "predict",
        help="predict the time of a step on devices that are not here",
        description="Predict DDP's step on more devices such as the study in this folder measured: seconds, "
        "speedup and efficiency, with intervals. The model: docs/predict.md.",
    )
    parser.add_argument("--gpus", metavar="N,N,…", default="1,2,4,8,64", help="numbers of devices")
    link = "between nodes: here, a name such as infiniband-hdr, or GB/s,latency in µs; by default here"
    parser.add_argument("--link", metavar="LINK", default="here", help=link)
    parser.add_argument("--within", metavar="LINK", help="within a node; by default what was measured here")
    parser.add_argument(
        "--per-node", metavar="N", type=at_least(1), help="devices of a node; by default as here"
    )
    parser.add_argument(
        "--batchsz", metavar="N", type=at_least(1), help="episodes per step; by default the study's"
    )
    parser.add_argument("--json", action="store_true", help="print every digit as JSON")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    from parashot.questions.results import load_results
    from parashot.questions.scaling.rows import Predictor, checked_rows, parse_devices
    from parashot.questions.statistics import Resampling, flat
    from parashot.report.markdown import as_markdown
    from parashot.report.tables import CHECKED, SCALING

    devices = parse_devices(command.gpus)
    results = load_results(Path(), (), partial=True)
    if results.strategies is None:
        raise RecordError(results.missing["strategies"])
    predictor = Predictor.of(results.strategies, Resampling())
    predicted = predictor.rows(command.link, devices, command.per_node, command.within, command.batchsz)
    checked = checked_rows(predictor, results.strategies)
    if command.json:
        tree = {"rows": [flat(row) for row in predicted], "checked": [flat(row) for row in checked]}
        print(json.dumps(tree, indent=2, allow_nan=False))
        return
    tables = [table for table in (SCALING.of(predicted), CHECKED.of(checked)) if table.rows]
    print("\n\n".join(f"{table.caption}.\n\n{as_markdown(table)}" for table in tables))
