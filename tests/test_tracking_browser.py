"""What people see in MLflow: a real `mlflow ui` over a real store, in a real browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import chromium, needs_browser
from tracked import Checkout

from parashot.records import Metric, Run, write_runs
from parashot.tracking import Store, Study, publish

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [needs_browser, pytest.mark.slow]


def training(name: str, seconds: float) -> Run:
    return Run(
        name=f"train {name}",
        stage=f"train-{name}",
        status="ok",
        start_ms=1_000,
        end_ms=61_000,
        params={"train.batchsz": "8", f"parallel.{name}.enabled": "True"},
        tags={"strategy": name, "git.commit": "c0ffee"},
        metrics=(
            *(Metric("loss", 1 / (step + 1), step, 1_000 + step) for step in range(5)),
            Metric("seconds", seconds),
            Metric("val_accuracy", 0.45),
        ),
        artifacts=("history.csv",),
        uuid=f"uuid-{name}",
    )


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An `mlflow ui` without flags but its port, over a published study of two trainings."""
    root = tmp_path_factory.mktemp("checkout")
    folders = []
    for name, seconds in (("serial", 60.0), ("ddp", 33.0)):
        folder = root / "results/train" / name
        write_runs(folder / "records.jsonl", [training(name, seconds)])
        (folder / "history.csv").write_text("step,loss\n0,1.0\n")
        folders.append(folder)
    (root / "reports").mkdir()
    (root / "reports/index.html").write_text("<h1>How to parallelise this training</h1>")
    study = Study("study on synthetic data", artifacts=[root / "reports"])
    publish(Store(root, "parashot"), study, folders, Checkout.no_model)
    with mlflow_ui(root) as found:
        yield found


@contextmanager
def mlflow_ui(root: Path) -> Iterator[str]:
    """Yield the address of a bare `mlflow ui` in `root`, on a port that it finds itself."""
    command = [sys.executable, "-m", "mlflow", "ui", "--port", "0", "--workers", "1"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # five processes more
    log = root / "ui.log"
    with log.open("w") as file:
        server = subprocess.Popen(command, cwd=root, env=environment, stdout=file, stderr=file)
    try:
        while not (found := re.search(r"running on (http://\S+)", log.read_text())):
            assert server.poll() is None, log.read_text()
            time.sleep(0.2)
        yield found[1]
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture
def page() -> Iterator[Page]:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(90_000)
        yield page


def test_runs_are_found_compared_and_opened(address: str, page: Page) -> None:
    page.goto(address)
    page.get_by_role("link", name="parashot", exact=True).first.click()
    page.wait_for_url(re.compile("experiments/"))
    experiment = re.search(r"experiments/(\d+)", page.url)
    assert experiment
    page.goto(f"{address}/#/experiments/{experiment[1]}/runs")
    page.get_by_text("study on synthetic data").first.wait_for()

    runs = {}
    for name in ("train serial", "train ddp", "study on synthetic data"):
        runs[name] = run_id(address, experiment[1], name)
    chosen = f'["{runs["train serial"]}","{runs["train ddp"]}"]'
    page.goto(f'{address}/#/compare-runs?runs={chosen}&experiments=["{experiment[1]}"]')
    page.get_by_text("train.batchsz").first.wait_for()
    for word in ("train serial", "train ddp"):
        page.get_by_text(word).first.wait_for()

    page.goto(f"{address}/#/experiments/{experiment[1]}/runs/{runs['train ddp']}")
    page.get_by_text("c0ffee").first.wait_for()

    page.goto(f"{address}/#/experiments/{experiment[1]}/runs/{runs['study on synthetic data']}/artifacts")
    page.get_by_text("reports").first.click()
    page.get_by_text("index.html").first.click()
    shown = page.frame_locator("iframe").get_by_text("How to parallelise this training")
    shown.first.wait_for()


def run_id(address: str, experiment: str, name: str) -> str:
    """By MLflow's own interface."""
    request = urllib.request.Request(
        f"{address}/api/2.0/mlflow/runs/search",
        data=json.dumps(
            {"experiment_ids": [experiment], "filter": f"attributes.run_name = '{name}'"}
        ).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        (run,) = json.load(answer)["runs"]
    return str(run["info"]["run_id"])
