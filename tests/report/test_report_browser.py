"""The page in a real browser, on a phone and on a wide screen."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import study_builder as build

from parashot.findings.summary import summarize
from parashot.report.write import write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
PROBE = """<!doctype html>
<iframe id="f" src="reports/index.html" style="width:{width}px;height:900px;border:0">
</iframe><pre id="out"></pre><script>
f.onload = () => {{
  const page = f.contentDocument, ours = [...page.querySelectorAll("body *")];
  const scrolls = e => e.closest(".scroll, nav, pre, svg, .skip");
  const wide = ours.filter(e => !scrolls(e) && e.getBoundingClientRect().right > {width} + 1);
  const empty = [...page.querySelectorAll("svg")].filter(e => e.getBBox().width < 100 || e.clientWidth < 300);
  const fetched = f.contentWindow.performance.getEntriesByType("resource");
  out.textContent = `overflow=${{wide.length}} empty=${{empty.length}} fetched=${{fetched.length}}`
    + ` figures=${{page.querySelectorAll("svg").length}}`;
}};</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")
@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_overflows_and_every_figure_shows(tmp_path: Path, width: int) -> None:
    results = build.study()
    write_report(summarize(results, build.params()), results, "seed: 0\n", tmp_path / "reports")
    (tmp_path / "probe.html").write_text(PROBE.format(width=width))
    done = subprocess.run(
        [
            str(CHROMIUM),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--allow-file-access-from-files",
            "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={width + 100},1000",
            "--virtual-time-budget=5000",
            "--dump-dom",
            (tmp_path / "probe.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    figures = len(list((tmp_path / "reports/figures").iterdir()))
    assert figures > 10
    assert f"overflow=0 empty=0 fetched=0 figures={figures}" in done.stdout
    assert not re.search(r"CONSOLE", done.stderr)
