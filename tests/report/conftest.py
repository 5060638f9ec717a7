"""The report's tests read the same small study as those of the findings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "findings"))


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The page of that study, and its summary."""
    import study_builder as build

    from parashot.findings.summary import summarize
    from parashot.report.write import write_report

    folder, results = tmp_path_factory.mktemp("report"), build.study()
    summary = summarize(results, build.params())
    write_report(summary, results, "seed: 0\n", folder / "reports")
    return folder / "reports/index.html", summary
