"""`parashot measure`: the fastest way to train what a Python file describes."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from parashot.cli import REPORT
from parashot.cli.shared import recommendation, tell
from parashot.errors import DeviceError, TrackingError, UsageError
from parashot.hardware import inspect_hardware
from parashot.parallel.server import joined_by_torchrun
from parashot.progress import OneLine, end_line
from parashot.questions.own.advice import OwnAdvice, advise_own
from parashot.questions.own.measure import measure_own
from parashot.questions.own.records import OwnResults
from parashot.questions.runs import numbers
from parashot.records import Hardware, write_runs
from parashot.report.own import (
    FINALS,
    PARTS,
    SIZES,
    as_json,
    lines_to_copy,
    own_runs,
    parts_rows,
    write_own_report,
)
from parashot.tracking import Store, StudyRun, mlflow_is_installed, publish


def run(command: argparse.Namespace) -> None:
    """Measure, write the report and tell MLflow, and print the answer.

    Also of what Ctrl-C or an error has cut short; the error is raised afterwards.
    """
    if joined_by_torchrun():
        raise UsageError("`parashot measure` starts its own processes; run it without torchrun")
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[OneLine()])
    with TemporaryDirectory(prefix=".parashot-", dir=Path.cwd()):  # the report can be written here
        pass
    here = Path.cwd()
    with printing_to_stderr():
        results = measure_own(command.file, 60 * command.budget)
    os.chdir(here)  # the user's code may have gone to another folder
    end_line()
    advice, hardware = advise_own(results), inspect_hardware()
    if results.search or results.finals:
        write_own_report(REPORT, command.file, results, advice, hardware)
    if advice is None:
        timed = f"what was timed is in {REPORT}/search.csv" if results.search else "nothing was timed"
        tell(f"stopped before there was an answer; {timed}")
    else:
        if command.json:
            print(json.dumps(as_json(results, advice, hardware), indent=2, ensure_ascii=False))
        else:
            print(_text(results, advice, hardware), end="")
        publish_own(command.file, results, advice, hardware)
    if results.error:
        raise results.error
    if results.stopped:
        raise KeyboardInterrupt
    if advice and command.fail_below and advice.speedup < command.fail_below:
        raise DeviceError(f"{advice.speedup:.2f} times as fast, and --fail-below is {command.fail_below:g}")


@contextmanager
def printing_to_stderr() -> Iterator[None]:
    """Within it, what this process and those that it starts print goes to stderr: the answer is on stdout."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def publish_own(file: Path, results: OwnResults, advice: OwnAdvice, hardware: Hardware) -> None:
    """Bring the finalists into MLflow, where there is one, below a run with the recommendation."""
    if not mlflow_is_installed():
        return
    skipped = {f"skipped.{each.what}": each.reason for each in results.skipped}
    study = StudyRun(
        name=file.name,
        params={key: str(value) for key, value in asdict(advice.row.way).items()},
        tags={"hardware": str(hardware), **skipped},
        metrics=numbers(advice.row),
        artifacts=sorted(REPORT.iterdir()),
        note=recommendation(advice.sentence, advice.as_good),
    )
    store = Store.of_environment(Path.cwd(), "parashot measure", f"all of them are in {REPORT}/")
    with TemporaryDirectory() as folder:
        write_runs(Path(folder) / "records.jsonl", own_runs(file, results, advice))
        try:
            publish(store, study, [Path(folder)])
        except TrackingError as error:
            tell(f"warning: {error}")


def _text(results: OwnResults, advice: OwnAdvice, hardware: Hardware) -> str:
    """The sentence, a table of the finalists, lines to copy, and what was left out."""
    skipped = (f"{each.what} is left out: {each.reason}" for each in results.skipped)
    tried = f"batches larger than {results.sizes[-1].batchsz}" if results.sizes else "larger batches"
    larger = [f"{tried} were not tried: {results.no_larger}"] if results.no_larger else []
    noted = "".join(f"Note: {each}\n" for each in (*results.warnings, *larger, *skipped))
    ways = f"{len(results.ways)} ways were tried; the page: {REPORT}/index.html\n"
    lines = "".join(f"    {each}\n" for each in lines_to_copy(results, advice, hardware))
    tables = [
        FINALS.of(advice.rows).plain(),
        lines,
        PARTS.of(parts_rows(results, advice)).plain() if results.parts else "",
        SIZES.of(results.sizes).plain() if results.sizes else "",
    ]
    return "\n".join(
        [recommendation(advice.sentence, advice.as_good), *filter(None, tables), f"{noted}{ways}"]
    )
