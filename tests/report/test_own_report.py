"""What is said of a user's training: advice, lines to copy, the page in a real browser, runs of MLflow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from browser import WIDTHS, barriers, needs_browser, opened
from own_file import advised, results, way
from torch import nn
from tracked import Checkout, refusing_address

from parashot.cli import REPORT
from parashot.cli.measure import publish_own
from parashot.cli.shared import recommendation
from parashot.hardware import inspect_hardware
from parashot.questions.own.advice import BY_HAND, DATA_PARALLEL, OwnAdvice, to_copy
from parashot.questions.own.records import PLAIN, OwnResults, SizeRow, StepParts
from parashot.questions.statistics import Interval
from parashot.questions.ways.records import SkippedWay
from parashot.report.own import write_own_report
from parashot.tracking import Store

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def page_of_own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    seconds = {
        way(PLAIN): 0.2,
        way("serial-2-bf16", workers=2, precision="bf16"): 0.1,
        way("ddp-2-bf16", replicas=2, workers=2, precision="bf16"): 0.08,
    }
    found = replace(
        results(seconds),
        skipped=(SkippedWay("dp", "torch.nn.DataParallel spreads a batch over GPUs only"),),
        parts=(StepParts("ddp-2-bf16", 0.3, 0.5, 0.05, 0.1, 0.05),),
        sizes=(SizeRow(6, 0.08, 2**30, 3.0), SizeRow(12, 0.15, 2**31, 4.0)),
        no_larger="the data set has 150 samples",
        stopped=True,
        gradients={"ddp": 0.03},
        warnings=("the gradient by ddp is not that of one process",),
    )
    folder = tmp_path_factory.mktemp("own") / "report"
    write_own_report(folder, Path("a <file>.py"), found, advised(found), inspect_hardware())
    return folder / "index.html"


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), list(zip(WIDTHS, ("light", "dark"), strict=True)))
def test_the_page_answers_and_has_no_barriers(
    browser: Browser, page_of_own: Path, width: int, scheme: str
) -> None:
    page, watched = opened(browser, page_of_own, width, scheme)
    assert page.locator("h1").inner_text() == "How to train a <file>.py"
    assert page.locator(".answer").inner_text().startswith("Use ddp on 2 replicas, 2 workers, bf16: 2.5")
    assert page.locator("[role=note]").count() == 3
    assert page.locator("section[aria-labelledby=parts] tbody tr").count() == 1
    assert page.locator("section[aria-labelledby=sizes] tbody tr").count() == 2
    assert (watched.complaints, barriers(page)) == ([], [])
    assert [each for each in watched.requests if not each.startswith("data:")] == [page.url]
    page.close()


def test_the_simplest_that_is_as_good_is_recommended() -> None:
    plain, workers, ddp = way(PLAIN), way("workers", workers=2), way("ddp", replicas=2, workers=2)
    fast = advised(results({plain: 0.2, workers: 0.1, ddp: 0.0999}))
    assert (fast.choice.choice, fast.choice.decided) == ("workers", True)
    assert fast.sentence.startswith("Use one process with 1 thread, 2 workers, fp32: 2.00× (1.90 to 2.10)")
    assert fast.as_good == []
    assert fast.rows[0].speedup == Interval(1, 1, 1)


def test_the_lines_to_copy_share_batch_and_workers_out() -> None:
    ddp = way("ddp", replicas=2, workers=4, precision="bf16")
    lines = to_copy(ddp, gpus=False)
    assert lines[0] == "torchrun --nproc-per-node 2 YOUR_SCRIPT.py"
    assert lines[1] == 'torch.distributed.init_process_group("gloo")'
    assert lines[3] == "torch.set_num_threads(1)"
    assert "batch_size=3, num_workers=2, prefetch_factor=2, persistent_workers=True, sampler" in lines[4]
    assert "DistributedDataParallel" in lines[5] and 'autocast("cpu", torch.bfloat16)' in lines[6]
    assert "(network, find_unused_parameters=True)" in to_copy(ddp, gpus=False, unused=True)[5]
    assert "torch.cuda.set_device(torch.distributed.get_node_local_rank())" in to_copy(ddp, gpus=True)
    uneven = to_copy(replace(ddp, replicas=4), gpus=False)[4]
    assert "batch_size=2, num_workers=1" in uneven and uneven.endswith("# 8 per step; 6 were timed")
    assert to_copy(way(PLAIN), gpus=True) == ["DataLoader(dataset, batch_size=6, num_workers=0, ...)"]
    by_hand = to_copy(replace(way("by hand", replicas=2), strategy="allreduce"), gpus=False)
    assert by_hand.count("torch.distributed.all_reduce(flat)") == 1  # one message, as it was measured
    kept, threads, _ = to_copy(replace(way("kept"), keep_memory=True), gpus=False)
    assert threads == "torch.set_num_threads(1)"
    assert kept.startswith("export MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=1073741824 ")
    all_on = replace(way("all", precision="fp16"), channels_last=True, fused=True, compile="default")
    text = "\n".join(to_copy(replace(all_on, pin_memory=True), gpus=True))
    parts = "channels_last", "fused=True", "network.compile", "pin_memory=True", "float16", "GradScaler"
    assert [part for part in (*parts, "non_blocking=True", "around the loss") if part not in text] == []
    threads_of_its_own = replace(way("dp", replicas=2, precision="bf16"), strategy="dp")
    assert "in WithLoss.forward" in to_copy(threads_of_its_own, gpus=True)[-1]


def test_the_lines_that_average_gradients_do_so_in_any_memory_order(monkeypatch: pytest.MonkeyPatch) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(36, 1))
    network = network.to(memory_format=torch.channels_last)
    network(torch.ones(2, 3, 5, 5)).sum().backward()
    expected = [each.grad / 2 for each in network.parameters() if each.grad is not None]
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda flat: None)
    exec(BY_HAND.format(ranks=2), {"torch": torch, "network": network})
    torch.testing.assert_close([each.grad for each in network.parameters()], expected)


def test_the_lines_for_data_parallel_give_the_gradient_of_the_mean_loss() -> None:
    """Without GPUs `torch.nn.DataParallel` calls the module."""
    network, batch = nn.Linear(3, 1), torch.rand(5, 3)

    def loss(module: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = module(batch).square().mean(1)
        return values

    expected = torch.autograd.grad(loss(network, batch).mean(), [*network.parameters()])
    exec(DATA_PARALLEL, {"torch": torch, "network": network, "loss": loss, "batch": batch})
    torch.testing.assert_close([each.grad for each in network.parameters()], [*expected])


def noisy(found: OwnResults, name: str) -> OwnResults:
    """The same, one way faster in every other round and slower in the others."""
    finals = (
        replace(each, seconds=each.seconds * (1.25 if each.round % 2 else 0.8)) if each.way == name else each
        for each in found.finals
    )
    return replace(found, finals=tuple(finals))


def test_what_may_be_as_good_is_told_by_what_sets_it_apart() -> None:
    """How they differ is said, not what they are called; the default is kept unless beaten."""
    plain, one = way(PLAIN), way("serial-1", workers=1)
    fast, other = way("ddp-2", replicas=2, workers=2), way("ddp-2-bf16", replicas=2, precision="bf16")
    advice = advised(noisy(results({plain: 0.2, fast: 0.1, other: 0.1}), other.way))
    assert not advice.choice.decided
    said = {"ddp-2": "no workers, bf16", "ddp-2-bf16": "2 workers, fp32"}[advice.choice.choice]
    assert advice.as_good == [said]
    better = advised(noisy(results({plain: 0.112, one: 0.1, fast: 0.099}), fast.way))
    assert (better.choice.choice, better.choice.decided) == (one.way, False)  # though the other may be faster
    kept = advised(noisy(results({plain: 0.1, one: 0.098}), one.way))
    assert not kept.choice.decided
    assert kept.sentence == f"Keep {plain}: nothing was shown to be more than 5% faster."
    assert kept.as_good == ["1 worker"]
    assert recommendation(kept.sentence, kept.as_good) == (
        f"{kept.sentence}\nUndecided; with any one of these changes it may be as fast:\n    1 worker\n"
    )
    fused = replace(way("fused"), fused=True, keep_memory=True)
    assert fused.unlike(plain) == "fused optimizer, freed memory kept"
    assert plain.unlike(fused) == "no fused optimizer, freed memory not kept"
    assert replace(fused, keep_memory=False, workers=1).unlike(fused) == "1 worker, freed memory not kept"


def told(found: OwnResults) -> OwnAdvice:
    """Write the report of `own.py` and publish it, as the command does."""
    advice, hardware = advised(found), inspect_hardware()
    write_own_report(REPORT, Path("own.py"), found, advice, hardware)
    publish_own(Path("own.py"), found, advice, hardware)
    return advice


def test_the_finalists_are_runs_below_one_with_the_recommendation(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was skipped is a tag."""
    monkeypatch.chdir(checkout.root)
    fails = SkippedWay("fsdp", "shares parameters")
    found = results({way(PLAIN): 0.2, way("ddp-2", replicas=2, workers=2): 0.1})
    advice = told(replace(found, skipped=(fails,)))
    checkout.store = Store(checkout.root, "parashot measure")
    runs = checkout.runs()
    above = runs.pop("own.py")
    assert above.data.tags["skipped.fsdp"] == "shares parameters"
    assert (above.data.params["way"], above.data.params["workers"]) == ("ddp-2", "2")
    assert above.data.metrics["speedup"] == pytest.approx(advice.speedup)
    assert "index.html" in {each.path for each in checkout.client.list_artifacts(above.info.run_id)}
    assert set(runs) == {"own.py: default", "own.py: ddp-2"}
    assert {each.data.tags["mlflow.parentRunId"] for each in runs.values()} == {above.info.run_id}
    assert len(checkout.points("own.py: ddp-2", "seconds_per_step_block")) == 8


@pytest.mark.usefixtures("here")
def test_a_store_that_fails_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", refusing_address())
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    told(results({way(PLAIN): 0.2, way("ddp-2", replicas=2): 0.1}))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: MLflow at") and line.endswith("all of them are in parashot-report/")
