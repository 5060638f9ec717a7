"""The page of `parashot measure` in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import WIDTHS, barriers, needs_browser, opened
from study_builder import HARDWARE

from parashot.questions.own.advice import advise_own
from parashot.questions.own.records import (
    DEFAULTS,
    PLAIN,
    GradientCheck,
    OwnResults,
    OwnWay,
    SizeRow,
    SkippedWay,
    StepParts,
)
from parashot.questions.ways.records import WayBlock
from parashot.report.own import write_own_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WAYS = {
    OwnWay(PLAIN, "serial", 1, 2, 64, 0, "fp32", **DEFAULTS): 0.2,
    OwnWay("serial-2-bf16", "serial", 1, 2, 64, 2, "bf16", **DEFAULTS): 0.1,
    OwnWay("ddp-2-bf16", "ddp", 2, 1, 64, 2, "bf16", **DEFAULTS): 0.08,
    OwnWay("fsdp-2-bf16", "fsdp", 2, 1, 64, 2, "bf16", **DEFAULTS): 0.12,
}


@pytest.fixture(scope="module")
def page_of_own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    finals = tuple(
        WayBlock(number // 4, number, way.way, 5, 5 * step * (1 + 0.01 * (number % 3)), 0.01, 2**24)
        for way, step in WAYS.items()
        for number in range(8)
    )
    search = tuple(each for each in finals if each.round == 0)
    skipped = (SkippedWay("dp", "torch.nn.DataParallel spreads a batch over GPUs only"),)
    checks, warnings = (GradientCheck("ddp", 0.03),), ("the gradient by ddp is not that of one process",)
    results = OwnResults(
        tuple(WAYS),
        skipped,
        search,
        refining=(),
        finals=finals,
        parts=(StepParts("ddp-2-bf16", 0.3, 0.5, 0.05, 0.1, 0.05, 1.9),),
        sizes=(SizeRow(64, 0.08, 2**30, 3.0), SizeRow(128, 0.15, 2**31, 4.0)),
        no_larger="the data set has 200 samples",
        samples=1600,
        stopped=True,
        checks=checks,
        warnings=warnings,
    )
    advice = advise_own(results)
    assert advice is not None
    folder = tmp_path_factory.mktemp("own") / "report"
    write_own_report(folder, Path("a <file>.py"), results, advice, HARDWARE)
    return folder / "index.html"


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), list(zip(WIDTHS, ("light", "dark"), strict=True)))
def test_the_page_answers_and_has_no_barriers(
    browser: Browser, page_of_own: Path, width: int, scheme: str
) -> None:
    page, watched = opened(browser, page_of_own, width, scheme)
    assert page.locator("h1").inner_text() == "How to train a <file>.py"
    assert page.locator(".answer").inner_text().startswith("Train by ddp on 2 replicas, 2 workers, bf16: 2.5")
    assert page.locator("[role=note]").count() == 3
    assert page.locator("section[aria-labelledby=parts] tbody tr").count() == 1
    workers = page.locator("section[aria-labelledby=parts]").inner_text()
    assert "The first batch took 1.90 s" in workers and "a pass of 2.02 s 94% longer" in workers
    assert page.locator("section[aria-labelledby=sizes] tbody tr").count() == 2
    assert (watched.complaints, barriers(page)) == ([], [])
    assert [each for each in watched.requests if not each.startswith("data:")] == [page.url]
    page.close()
