"""The study that the tests of questions are about, and its report, written once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from parashot.questions.study import Study, analyse

sys.path.insert(0, str(Path(__file__).parents[1] / "questions"))

PARAMS_TEXT = "seed: 0  # <script>alert(1)</script> & more\n"


@pytest.fixture(scope="session")
def study() -> Study:
    """Everything measured, with answers that are known."""
    import study_builder as build

    return analyse(build.study(), build.params())


@pytest.fixture(scope="session")
def report(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its report."""
    from parashot.report.page import write_report

    folder = tmp_path_factory.mktemp("report") / "reports"
    write_report(study, PARAMS_TEXT, folder)
    return folder
