"""`parashot verify`: are outputs and DVC's cache still what they were when they were written?"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from parashot.cli.arguments import Commands
from parashot.errors import DataError, UsageError

if TYPE_CHECKING:
    from parashot.integrity.check import Report


def add_parser(commands: Commands) -> None:
    """Add `parashot verify`."""
    parser = commands.add_parser(
        "verify",
        help="compare every output and DVC's cache with their checksums",
        description="Read every output that dvc.lock names, and every object of DVC's cache, and compare it "
        "with its checksum; no time stamp is trusted. What is damaged or missing is named with the commands "
        "that mend it, and the exit status is 1; what was changed since DVC took it up is named too.",
    )
    parser.add_argument("--no-cache", action="store_true", help="read of the cache only what outputs need")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    from parashot.integrity.cache import Cache, cache_folder
    from parashot.integrity.check import Scope, check
    from parashot.integrity.lock import read_lock
    from parashot.integrity.running import written_now
    from parashot.progress import OneLine, Progress

    root = Path.cwd()
    if not (root / "dvc.yaml").exists():
        raise UsageError(f"{root}: no dvc.yaml here; run it in the folder of the project")
    outputs, cache = read_lock(root), Cache(cache_folder(root))
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[OneLine()])
    files = sum(each.files for each in outputs) + (0 if command.no_cache else len(cache.names()))
    scope = Scope(root, cache, outputs, written_now(root), not command.no_cache, ("data/packed", "pack"))
    progress = Progress("verify", max(files, 1), "file")
    report = check(scope, lambda done: progress(done) if done < files else None)
    progress(max(files, 1))
    print(_as_json(report) if command.json else _said(report), end="")
    if not report.is_whole:
        count = sum(each.kind != "changed" for each in report.faults)
        raise DataError(f"{count} damaged or missing; the commands beside each mend it")


def _said(report: Report) -> str:
    from parashot.questions.text import size

    lines = [f"{each.kind}: {each.path}: {each.what}; fix: {each.fix}" for each in report.faults]
    if report.under_way:
        lines.append(f"not judged, a stage writes them now: {', '.join(report.under_way)}")
    if not (report.outputs or report.under_way or report.not_built):
        lines.append("nothing has been built here yet (dvc repro)")
    if report.not_built:
        lines.append(f"not built here yet (dvc repro): {', '.join(report.not_built)}")
    read = f"{size(report.bytes)} read: {report.files} files of {report.outputs} outputs"
    lines.append(f"{read}, {report.objects} objects of DVC's cache{'' if report.faults else '; all whole'}")
    return "".join(f"{line}\n" for line in lines)


def _as_json(report: Report) -> str:
    tree = {**vars(report), "faults": [vars(each) for each in report.faults]}
    return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"
