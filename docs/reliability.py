"""`python docs/reliability.py`: the long versions of the tests behind docs/reliability.md, and its table.

Some need root, mounts and network namespaces; what was skipped is in the table. `--from FILE...` takes the
JUnit XML of earlier runs instead. What does not grow is told by benchmarks/results/leaks.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from parashot.files import write_text
from parashot.hardware import inspect_hardware

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reliability.md"
LEAKS = ROOT / "benchmarks/results/leaks.json"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


@dataclass(frozen=True)
class Row:
    """A figure: what it counts, the property by which tests tell it, and where those tests are."""

    what: str
    told_as: str
    tests: Sequence[str]


ROWS = (
    Row(
        "processes of a study killed at random moments (DVC, stages, ranks, loader workers, hosts); "
        "each time the next run went on, and every result was the same, byte for byte",
        "kills_survived",
        ("tests/pipeline/test_kills.py", "tests/pipeline/test_hosts.py", "tests/train/test_train_elastic.py"),
    ),
    Row(
        "writers killed in the middle of an output; readers found the old or the new, whole",
        "writers_killed",
        ("tests/test_files.py",),
    ),
    Row("bad inputs, each answered as expected, in one line", "inputs_answered", ("tests/hostile",)),
    Row(
        "processes that logged into one new MLflow store at once; every run and every point was there",
        "processes_logging",
        ("tests/test_tracking_failures.py",),
    ),
)

WITHOUT_GROWTH = {
    "steps": "steps of two whole trainings, by `serial` and by `ddp`, over which nothing had grown: "
    "memory, descriptors, threads, processes, files",
    "restarts": "restarts of a loader's workers over which nothing had grown, and that left nothing",
}


def main() -> int:
    """Run the tests or read what they said, write the table, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="files", type=Path, nargs="+", help="JUnit XML of these tests")
    files = parser.parse_args().files
    if files:
        return _write(files)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "tests.xml")
        tests = sorted({test for row in ROWS for test in row.tests})
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-o",
            "junit_family=xunit1",
            f"--junitxml={report}",
            *tests,
        ]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        return status or _write([report])


def _write(reports: Sequence[Path]) -> int:
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    figures = table([ElementTree.parse(each).getroot() for each in reports])
    write_text(PAGE, f"{before}{BEGIN}\n{figures}\n{END}{after}")
    return 0


def table(reports: Sequence[ElementTree.Element]) -> str:
    """The figures of the tests that passed, as Markdown."""
    cases = [case for report in reports for case in report.iter("testcase")]
    failures = (each.find(word) for each in cases for word in ("failure", "error"))
    if failed := [each for each in failures if each is not None]:
        raise SystemExit(f"error: {len(failed)} tests failed; mend them first")
    skipped = sum(each.find("skipped") is not None for each in cases)
    lines = ["| what | how many | tests |", "|---|---:|---|"]
    for row in ROWS:
        where = ", ".join(f"`{test}`" for test in row.tests)
        lines.append(f"| {row.what} | {_total(cases, row.told_as):,} | {where} |")
    lines += _without_growth()
    date = max(suite.get("timestamp", "")[:10] for report in reports for suite in report.iter("testsuite"))
    machine = inspect_hardware()
    tests = f"{len(cases) - skipped} tests passed, {skipped} skipped"
    lines += ["", f"*{machine.cpu_model}, {machine.threads} hardware threads; {tests}; {date}.*"]
    return "\n".join(lines)


def _without_growth() -> list[str]:
    counted = json.loads(LEAKS.read_text(encoding="utf-8"))["settings"]["without_growth"]
    where = "[`benchmarks leaks`](benchmarks.md#leaks)"
    return [f"| {what} | {counted[unit]:,} | {where} |" for unit, what in WITHOUT_GROWTH.items()]


def _total(cases: Sequence[ElementTree.Element], name: str) -> int:
    told = (each.iterfind(f"properties/property[@name='{name}']") for each in cases)
    return sum(int(found.attrib["value"]) for each in told for found in each)


if __name__ == "__main__":
    sys.exit(main())
