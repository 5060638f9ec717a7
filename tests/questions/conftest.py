"""What speeds all tests of the analysis up."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def fewer_resamples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts and advice do not hang on the number of resamples; tests of statistics have all."""
    if "statistics" not in request.node.path.name:
        monkeypatch.setattr("parashot.questions.statistics.RESAMPLES", 200)
