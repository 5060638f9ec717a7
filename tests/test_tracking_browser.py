"""What people see in MLflow: a real `mlflow ui` over a real store, in a real browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from browser import needs_browser
from tracked import Checkout, a_run

from parashot.tracking import StudyRun

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [needs_browser, pytest.mark.slow]


def test_runs_are_found_compared_and_opened(checkout: Checkout, browser: Browser) -> None:
    from screenshots import mlflow_ui  # imports playwright, which may not be there

    report = checkout.root / "reports/index.html"
    report.parent.mkdir()
    report.write_text("<h1>How to parallelise this training</h1>")
    folder = checkout.record("train", a_run("train serial"), a_run("train ddp"))
    checkout.publish(folder, study=StudyRun("study on synthetic data", artifacts=[report.parent]))
    runs = {name: run.info for name, run in checkout.runs().items()}
    serial, ddp, study = (runs[name] for name in ("train serial", "train ddp", "study on synthetic data"))

    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(90_000)
    with mlflow_ui(checkout.root) as address:
        page.goto(address)
        page.get_by_role("link", name="few shots", exact=True).first.click()
        page.wait_for_url(re.compile(f"experiments/{study.experiment_id}"))
        experiment = f"{address}/#/experiments/{study.experiment_id}/runs"
        page.goto(experiment)
        page.get_by_text("study on synthetic data").first.wait_for()

        chosen = f'["{serial.run_id}","{ddp.run_id}"]'
        page.goto(f'{address}/#/compare-runs?runs={chosen}&experiments=["{study.experiment_id}"]')
        for word in ("train.batchsz", "train serial", "train ddp"):
            page.get_by_text(word).first.wait_for()

        page.goto(f"{experiment}/{ddp.run_id}")
        page.get_by_text("c0ffee").first.wait_for()

        page.goto(f"{experiment}/{study.run_id}/artifacts")
        page.get_by_text("reports").first.click()
        page.get_by_text("index.html").first.click()
        page.frame_locator("iframe").get_by_text("How to parallelise this training").first.wait_for()
