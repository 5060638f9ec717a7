"""`parashot measure`: the fastest way to train what a Python file describes."""

from __future__ import annotations

import argparse
import json
import logging
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from parashot.cli.arguments import Commands, tell
from parashot.errors import DeviceError, TrackingError

if TYPE_CHECKING:
    from parashot.questions.own.advice import OwnAdvice
    from parashot.questions.own.records import OwnResults
    from parashot.records import Hardware

REPORT = Path("parashot-report")


def add_parser(commands: Commands) -> None:
    """Add `parashot measure`."""
    parser = commands.add_parser(
        "measure",
        help="find the fastest way to train your own network",
        description="Measure strategies, loader workers and precisions on the training that FILE describes "
        f"and recommend the fastest; every timed block is written to {REPORT}/. FILE has functions "
        "network(), dataset(), loss(network, batch) and optimizer(parameters), and a number batchsz.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="a Python file")
    parser.add_argument("--budget", metavar="MINUTES", type=minutes, default=10.0, help="time to spend (10)")
    parser.add_argument(
        "--fail-below",
        metavar="X",
        type=float,
        help="exit with 1 where what is recommended is not X times as fast as the default",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def minutes(text: str) -> float:
    """Type of argument: minutes, of which one at least is needed."""
    value = float(text)
    if not 1 <= value <= 24 * 60:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and {24 * 60}")
    return value


def _run(command: argparse.Namespace) -> None:
    from parashot.hardware import inspect_hardware
    from parashot.progress import OneLine
    from parashot.questions.own.advice import advise_own
    from parashot.questions.own.measure import measure_own
    from parashot.report.own import as_json, write_own_report

    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[OneLine()])
    results = measure_own(command.file, 60 * command.budget)
    advice, hardware = advise_own(results), inspect_hardware()
    if results.search or results.finals:
        write_own_report(REPORT, command.file, results, advice, hardware)
    if advice is None:
        tell(f"stopped before there was an answer; what was timed is in {REPORT}/search.csv")
    elif command.json:
        print(json.dumps(as_json(results, advice, hardware), indent=2, ensure_ascii=False))
    else:
        print(_text(results, advice, hardware), end="")
    if advice is not None:
        publish_own(command.file, results, advice, hardware)
    if results.stopped:
        raise KeyboardInterrupt
    if advice and command.fail_below and advice.speedup < command.fail_below:
        raise DeviceError(f"{advice.speedup:.2f} times as fast, and --fail-below is {command.fail_below:g}")


def publish_own(file: Path, results: OwnResults, advice: OwnAdvice, hardware: Hardware) -> None:
    """Bring the finalists into MLflow, where there is one, below a run with the recommendation."""
    from parashot.questions.runs import numbers
    from parashot.records import write_runs
    from parashot.report.own import own_runs
    from parashot.tracking import Store, Study, mlflow_is_installed, publish

    if not mlflow_is_installed():
        return
    skipped = {f"skipped.{each.strategy}": each.reason for each in results.skipped}
    study = Study(
        name=file.name,
        params={key: str(value) for key, value in asdict(advice.row.way).items()},
        tags={"advice": advice.sentence, "hardware": str(hardware), **skipped},
        metrics=numbers(advice.row),
        artifacts=sorted(REPORT.iterdir()),
    )
    store = Store.of_environment(Path.cwd(), "parashot measure", f"all of them are in {REPORT}/")
    with TemporaryDirectory() as folder:
        write_runs(Path(folder) / "records.jsonl", own_runs(file, results))
        try:
            publish(store, study, [Path(folder)])
        except TrackingError as error:
            tell(f"warning: {error}")


def _text(results: OwnResults, advice: OwnAdvice, hardware: Hardware) -> str:
    """The sentence, a table of the finalists, lines to copy, and what was left out."""
    from parashot.questions.own.advice import to_copy
    from parashot.report.own import FINALS, PARTS, SIZES, parts_rows, said_of_workers

    skipped = (f"{each.strategy} was not tried: {each.reason}" for each in results.skipped)
    larger = [f"larger batches were not tried: {results.no_larger}"] if results.no_larger else []
    workers = filter(None, [said_of_workers(results, advice)])
    noted = "".join(f"Note: {each}\n" for each in (*results.warnings, *workers, *larger, *skipped))
    tried = f"{len(results.ways)} ways were tried; the page: {REPORT}/index.html\n"
    lines = "".join(f"    {each}\n" for each in to_copy(advice.row.way, bool(hardware.gpus)))
    tables = [
        FINALS.of(advice.rows).plain(),
        lines,
        PARTS.of(parts_rows(results, advice)).plain() if results.parts else "",
        SIZES.of(results.sizes).plain() if results.sizes else "",
    ]
    return "\n".join([f"{advice.sentence}\n", *filter(None, tables), f"{noted}{tried}"])
