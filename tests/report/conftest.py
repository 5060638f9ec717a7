"""The report's tests read the same small study as those of the findings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT / "tests/questions"))


@pytest.fixture(scope="session", params=["built for this test", "of this checkout"])
def report(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """A page, and the summary that it shows."""
    import study_builder as build

    from parashot.questions.summary import summarize
    from parashot.report.write import write_report

    if request.param == "of this checkout":
        page, file = ROOT / "reports/index.html", ROOT / "results/summary.json"
        if not (page.is_file() and file.is_file()):
            pytest.skip("no study was run in this checkout; `make study` runs one")
        return page, json.loads(file.read_text(encoding="utf-8"))
    folder, results = tmp_path_factory.mktemp("report"), build.study()
    summary = summarize(results, build.params())
    write_report(summary, results, "seed: 0\n", folder / "reports")
    return folder / "reports/index.html", summary
