"""The smallest study in a real DVC repository: results, page, runs in MLflow, and experiments on it."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from checkouts import ROOT, Checkout, stages_run
from tracked import refusing_address

from parashot.questions.loader.records import LoaderBlock
from parashot.questions.ways.measure import LEAST_STEPS_OF_WORKERS
from parashot.questions.ways.records import EpisodeWay, WayBlock
from parashot.records import read_json, read_result, read_rows, read_runs
from parashot.train.records import Choices

ALWAYS = {"hardware", "source", "publish"}
ROUNDS, WORKERS = range(7), (0, 2)
ALONE = [*product(["jpeg"], WORKERS), ("packed", 0), ("resident", 0)]
"""Settings of loading alone: backend and workers."""

IN_TRAINING = [*product(["jpeg", "packed"], WORKERS), ("resident", 0)]

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def restored(studied: Checkout) -> Iterator[Checkout]:
    """The study, put back after the test."""
    yield studied
    studied.restore()


def mlflow_runs(checkout: Checkout) -> Counter[str]:
    """How often MLflow holds each record, by uuid."""
    return Counter(value for (value,) in checkout.query("select value from tags where key = 'parashot.uuid'"))


def recorded_runs(checkout: Checkout) -> set[str]:
    """What MLflow has to hold: all records but those of what was skipped."""
    files = checkout.root.glob("results/**/records.jsonl")
    records = [each for file in files for each in read_runs(file)]
    ran = [each for each in records if each.status != "skipped"]
    of_skipped_alone = {each.parent for each in records} - {each.parent for each in ran}
    return {each.uuid for each in ran} - of_skipped_alone


def test_every_part_of_the_summary_is_filled(studied: Checkout) -> None:
    summary = read_json(studied.root / "results/summary.json")
    assert not summary["missing"] and summary["synthetic"] is True
    for name in ("serial", "dp", "ddp"):
        row = summary["strategies"][name]
        assert row["status"] == "ok" and row["seconds_per_step"] > 0 and 0 <= row["val_accuracy"] <= 1
    assert {row["batchsz"] for row in summary["batchsz"]} == {2, 4}
    ways = [row["way"] for row in summary["loading"]]
    assert {(way["backend"], way["workers"]) for way in ways} == {*IN_TRAINING}
    assert [row["way"]["way"] for row in summary["gain"]] == ["default", "advised"]
    assert summary["claims"] and all(claim["verdict"] and claim["reason"] for claim in summary["claims"])
    page = studied.read("reports/index.html")
    assert "synthetic" in page.lower() and 'src="http' not in page
    assert list((studied.root / "reports").rglob("*.png"))


def test_dp_and_ddp_really_are_parallel_and_train_the_same_network(studied: Checkout) -> None:
    """Each replica has the same episodes and running statistics, so even batch norm agrees."""
    header, *rows = [line.split(",") for line in studied.read("results/strategies/anatomy.csv").splitlines()]
    seen = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    found = {name: (seen[name]["processes"], seen[name]["threads"]) for name in ("serial", "dp", "ddp")}
    assert found == {"serial": ("1", "1"), "dp": ("1", "2"), "ddp": ("2", "2")}
    assert int(seen["ddp"]["all_reduces"]) > int(seen["dp"]["all_reduces"]) == 0
    assert read_json(studied.root / "results/train/ddp/result.json")["ranks_identical"] is True
    dp, ddp = (studied.read(f"results/train/{name}/val_episodes.csv") for name in ("dp", "ddp"))
    assert dp == ddp


def test_loading_is_timed_alone_and_in_training(studied: Checkout) -> None:
    loader = studied.root / "results/loader"
    blocks = read_rows(LoaderBlock, loader / "blocks.csv")
    found = [(each.round, (each.backend, each.workers)) for each in blocks]
    assert sorted(found) == list(product(ROUNDS, ALONE))
    assert [number for number, _ in found] == [number for number in ROUNDS for _ in ALONE]
    assert all(each.batchsz == 2 and each.batches >= max(1, each.workers) for each in blocks)
    assert all(each.seconds > 0 and each.first_batch_seconds > 0 for each in blocks)
    ways = {each.way: each for each in read_rows(EpisodeWay, loader / "ways.csv")}
    assert [(each.backend, each.workers) for each in ways.values()] == IN_TRAINING
    chosen = read_result(Choices, studied.root / "results/choices.json")
    assert {(each.strategy, each.replicas, each.computing) for each in ways.values()} == {("ddp", 2, chosen)}
    trained = read_rows(WayBlock, loader / "training.csv")
    assert sorted((each.round, each.way) for each in trained) == list(product(ROUNDS, sorted(ways)))
    orders = {tuple(each.way for each in trained if each.round == number) for number in ROUNDS}
    assert len(orders) > 1  # random within a round
    assert all(
        0 <= each.waiting_seconds < each.seconds and each.steps == LEAST_STEPS_OF_WORKERS for each in trained
    )
    for memory in (
        [median(each.memory_bytes for each in blocks if each.workers == n) for n in WORKERS],
        [median(each.memory_bytes for each in trained if ways[each.way].workers == n) for n in WORKERS],
    ):
        assert memory[1] > memory[0]

    metrics = read_json(loader / "metrics.json")
    alone, in_training = ([f"{name}-{workers}" for name, workers in each] for each in (ALONE, IN_TRAINING))
    assert set(metrics) == {*alone, *(f"training-{each}" for each in in_training)}
    assert metrics["jpeg-0"]["speedup"] == 1
    parent, *children = read_runs(loader / "records.jsonl")
    assert {each.parent for each in children} == {parent.uuid}
    settings = [(each.params["backend"], int(each.params["workers"])) for each in children]
    assert settings == [*IN_TRAINING, *ALONE]
    jpeg = [each.seconds / each.batches for each in blocks if (each.backend, each.workers) == ALONE[0]]
    first = children[len(IN_TRAINING)]
    assert [each.value for each in first.metrics if each.key == "seconds_per_batch_block"] == jpeg
    assert metrics["jpeg-0"]["episodes_per_second"] == pytest.approx(2 / median(jpeg))


def test_both_ways_of_the_gain_train_as_many_episodes_in_every_round(studied: Checkout) -> None:
    gain = studied.root / "results/gain"
    default, advised = read_rows(EpisodeWay, gain / "ways.csv")
    assert (default.way, default.strategy, default.replicas) == ("default", "serial", 1)
    assert default.computing == Choices("concat", "fp32", "none")
    chosen = read_result(Choices, studied.root / "results/choices.json")
    assert (advised.way, advised.computing) == ("advised", chosen)
    assert default.batchsz == advised.batchsz == 4
    blocks = read_rows(WayBlock, gain / "blocks.csv")
    assert sorted((each.round, each.way) for each in blocks) == list(product(ROUNDS, ["advised", "default"]))
    assert {each.launch for each in blocks} == {0}
    steps = {(each.round, each.steps) for each in blocks}
    assert len(steps) == len(ROUNDS)  # as many of both
    assert advised.workers or max(number for _, number in steps) < LEAST_STEPS_OF_WORKERS
    metrics = read_json(gain / "metrics.json")
    assert metrics["default"]["speedup"] == 1 and metrics["advised"]["speedup"] > 0
    _, *children = read_runs(gain / "records.jsonl")
    assert [each.params["strategy"] for each in children] == ["serial", advised.strategy]


def test_runs_say_what_they_are_and_where_they_ran(studied: Checkout) -> None:
    tags = studied.query("select key, run_uuid from tags where value != ''")
    runs = {run for key, run in tags if key == "parashot.uuid"}
    for tag in ("dvc.stage", "git.commit", "git.dirty", "hardware"):
        assert {run for key, run in tags if key == tag} >= runs, tag
    assert studied.query("select run_uuid from params where key = 'parallel.ddp.bucket_mb'")
    assert studied.query("select count(*) from logged_models") == [(1,)]  # the one that was chosen


def test_a_second_repro_only_checks_and_fills_a_store_that_was_deleted(studied: Checkout) -> None:
    held = mlflow_runs(studied)
    assert set(held.values()) == {1}
    assert recorded_runs(studied) < set(held)
    (studied.root / "mlflow.db").unlink()
    shutil.rmtree(studied.root / "mlruns")
    assert stages_run(studied.run("dvc", "repro").stdout) == ALWAYS
    assert mlflow_runs(studied) == held


def test_the_notebook_opens_the_study(studied: Checkout) -> None:
    cells = json.loads((ROOT / "docs/results.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    folder = studied.root / "docs"  # where Jupyter runs it, and where there are results of another kind
    (folder / "results").mkdir(parents=True)
    try:
        done = studied.run("python", "-c", f"import os; os.chdir('docs')\n{code}", MPLBACKEND="Agg")
    finally:
        shutil.rmtree(folder)
    assert read_json(studied.root / "results/summary.json")["answer"] in done.stdout


# --- experiments --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_clone_without_a_cache_runs_a_part_and_refuses_an_impossible_setting(
    studied: Checkout, tmp_path: Path
) -> None:
    studied.run("git", "clone", "--quiet", ".", str(tmp_path / "clone"))
    clone = Checkout(tmp_path / "clone")
    done = clone.run("dvc", "exp", "run", "-S", "seed=1", "hardware")
    assert stages_run(done.stdout) == {"hardware"}
    assert "Ran experiment" in done.stdout
    failed = clone.run("dvc", "exp", "run", "-S", "train.batchsz=abc", check=False)
    assert failed.returncode != 0
    (error,) = [line for line in failed.stderr.splitlines() if line.startswith("error:")]
    assert "train.batchsz" in error and "abc" in error and "git checkout params.yaml" in error
    assert "Traceback" not in failed.stderr


@pytest.mark.slow
def test_an_experiment_is_compared_with_the_study(restored: Checkout) -> None:
    held = mlflow_runs(restored)
    restored.run("dvc", "exp", "run", "-S", "parallel.dp.enabled=false")
    dp = read_json(restored.root / "results/summary.json")["strategies"]["dp"]
    assert (dp["status"], "parallel.dp.enabled" in dp["reason"]) == ("skipped", True)
    changed = json.loads(restored.run("dvc", "metrics", "diff", "--json").stdout)["results/metrics.json"]
    assert changed["dp.val_accuracy"]["old"] > 0 and changed["dp.val_accuracy"].get("new") is None
    shown = restored.run("dvc", "exp", "show", "--csv", "--no-pager").stdout.splitlines()[0].split(",")
    assert {"test_accuracy", "ddp.speedup", "parallel.dp.enabled"} <= set(shown)
    turned = json.loads(restored.run("dvc", "params", "diff", "--json").stdout)["params.yaml"]
    assert list(turned) == ["parallel.dp.enabled"]
    restored.run("dvc", "plots", "show", "-o", "plots-here")
    assert (restored.root / "plots-here/index.html").stat().st_size > 1000
    now = mlflow_runs(restored)
    assert set(now.values()) == {1}
    assert set(held) < set(now)


@pytest.mark.slow
def test_temporary_and_queued_experiments_reach_the_same_store(restored: Checkout) -> None:
    before = mlflow_runs(restored)
    restored.run("dvc", "exp", "run", "--temp", "-S", "train.learning_rate=0.002", "-S", "loader.workers=2")
    middle = mlflow_runs(restored)
    restored.run("dvc", "exp", "run", "--queue", "--name", "queued", "-S", "train.learning_rate=0.004")
    restored.run("dvc", "exp", "run", "--run-all")
    after = mlflow_runs(restored)
    assert len(before) < len(middle) < len(after)
    assert set(after.values()) == {1}
    for _ in range(60):  # the queue may still be putting the workspace back
        if not restored.run("git", "status", "--porcelain").stdout:
            break
        time.sleep(1)
    restored.run("dvc", "exp", "apply", "queued")
    assert "learning_rate: 0.004" in restored.read("params.yaml")


@pytest.mark.slow
def test_a_store_that_fails_costs_no_experiment(restored: Checkout) -> None:
    """DVC keeps nothing of an experiment whose last stage fails."""
    away: dict[str, Any] = {"MLFLOW_TRACKING_URI": refusing_address(), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    command = ["dvc", "exp", "run", "--temp", "--name", "untold", "-S", "claims.confidence=0.94"]
    done = restored.run(*command, **away)
    assert len([line for line in done.stderr.splitlines() if line.startswith("warning: MLflow at")]) == 1
    assert "untold" in restored.run("dvc", "exp", "list", "--name-only").stdout.split()
    by_hand = restored.run("python", "-m", "stages.publish", check=False, **away)
    assert by_hand.returncode == 1
    assert by_hand.stderr.startswith("error: MLflow at")


@pytest.mark.slow
def test_torchrun_joins_and_trains_the_same_network(restored: Checkout) -> None:
    before, uuids = restored.read("results/train/ddp/val_episodes.csv"), recorded_runs(restored)
    command = ["torchrun", "--standalone", "--nproc-per-node", "2", "-m", "stages.train"]
    restored.run(*command, "ddp")
    assert restored.read("results/train/ddp/val_episodes.csv") == before
    assert recorded_runs(restored) != uuids
    refused = restored.run(*command, "serial", check=False)
    assert refused.returncode != 0
    assert "error: serial is one process, but torchrun started 2" in refused.stderr
