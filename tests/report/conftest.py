"""The study that the tests of questions are about, and its report, written once."""

from __future__ import annotations

from pathlib import Path

import pytest
import study_builder as build

from parashot.questions.study import Study, analyse

PARAMS_TEXT = "seed: 0  # <script>alert(1)</script> & more\n"


@pytest.fixture(scope="session")
def study() -> Study:
    """Everything measured, with answers that are known."""
    return analyse(build.study(), build.params())


@pytest.fixture(scope="session")
def report(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its report."""
    from parashot.report.page import write_report

    folder = tmp_path_factory.mktemp("report") / "reports"
    write_report(study, PARAMS_TEXT, folder)
    return folder
