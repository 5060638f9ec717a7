"""`parashot predict`: the time of a step on devices that are not here."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from parashot.cli.arguments import Commands, at_least
from parashot.errors import RecordError

if TYPE_CHECKING:
    from parashot.questions.scaling.rows import CheckedRow, ScalingRow


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
        print(_tables(rows, checked), end="")


def _tables(rows: Sequence[ScalingRow], checked: Sequence[CheckedRow]) -> str:
    """The predictions, and what the model says of the steps that were measured."""
    from parashot.plain import aligned
    from parashot.questions import text

    predicted = [
        ["link", "scaling", "devices", "nodes", "batchsz", "seconds per step", "speedup", "efficiency"]
    ]
    for row in rows:
        counts = [str(each) for each in (row.devices, row.nodes, row.batchsz)]
        step, share = row.seconds_per_step, row.efficiency
        seconds = f"{text.number(step.value)} ({text.number(step.low)} to {text.number(step.high)})"
        efficiency = f"{share.value:.1%} ({share.low:.1%} to {share.high:.1%})"
        predicted.append([row.link, row.mode, *counts, seconds, text.times(row.speedup), efficiency])
    said = f"Predicted, not measured: DDP on more devices such as these.\n\n{aligned(predicted)}"
    if checked:
        table = [["strategy", "replicas", "predicted, s per step", "measured", "error"]]
        for each in checked:
            figures = (
                text.number(each.predicted.value),
                text.number(each.measured.value),
                f"{each.error:+.1%}",
            )
            table.append([each.variant, str(each.devices), *figures])
        said += f"\nThe model checked here, by steps that were measured.\n\n{aligned(table)}"
    return said
