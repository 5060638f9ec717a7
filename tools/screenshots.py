"""`python tools/screenshots.py`: the README's pictures of report and MLflow, of the study in this checkout.

It needs `pip install -e ".[dev]"` and a chromium on the path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from playwright.sync_api import FloatRect, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/pictures"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
EXPERIMENT = "parashot"
BESIDE_ASSISTANT: FloatRect = {"x": 0, "y": 0, "width": 948, "height": 820}
"""What MLflow shows of runs; the rest of its window is a chat."""


def main() -> int:
    """Take the pictures and return the exit status."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    report = ROOT / "reports/index.html"
    if browser is None or not report.exists():
        print("error: no chromium on the path" if report.exists() else "error: no report; run `dvc repro`")
        return 1
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as player, mlflow_ui(ROOT) as address:
        chromium = player.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1280, "height": 860})
        page.goto(report.as_uri())
        page.screenshot(path=PICTURES / "report.png")
        show_runs(page, address)
        page.screenshot(path=PICTURES / "mlflow.png", clip=BESIDE_ASSISTANT)
        chromium.close()
    return 0


def show_runs(page: Page, address: str) -> None:
    """Open the experiment's table of runs, with those below the study."""
    page.goto(address)
    page.get_by_role("link", name=EXPERIMENT, exact=True).first.click()
    page.goto(f"{page.url.split('?')[0].rsplit('/runs', 1)[0]}/runs")
    study = page.get_by_role("row").filter(has_text=re.compile("study on")).first
    study.wait_for(timeout=60_000)
    study.get_by_role("button").first.click()
    page.get_by_text("train ddp").first.wait_for(timeout=60_000)


@contextmanager
def mlflow_ui(root: Path) -> Iterator[str]:
    """Yield the address of an `mlflow ui` over the store in `root`, on a port that it finds itself."""
    command = [sys.executable, "-m", "mlflow", "ui", "--port", "0", "--workers", "1"]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # five processes more
    with NamedTemporaryFile("w+") as log:
        server = subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log)
        try:
            while not (found := re.search(r"running on (http://\S+)", Path(log.name).read_text())):
                if server.poll() is not None:
                    raise RuntimeError(f"mlflow ui ended: {Path(log.name).read_text()}")
                time.sleep(0.2)
            yield found[1]
        finally:
            server.terminate()
            server.wait(30)


if __name__ == "__main__":
    sys.exit(main())
