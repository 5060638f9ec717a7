"""The smallest study in a real DVC repository: results, page, runs in MLflow, and experiments on it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkouts import Checkout, stages_run
from faulty_server import refusing_address

ALWAYS = {"hardware", "source", "publish"}

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def restored(studied: Checkout) -> Iterator[Checkout]:
    """The study, put back after the test."""
    yield studied
    studied.restore()


def loaded(checkout: Checkout, name: str) -> Any:
    return json.loads(checkout.read(name))


def mlflow_runs(checkout: Checkout) -> Counter[str]:
    """How often MLflow holds each record, by uuid."""
    with sqlite3.connect(checkout.root / "mlflow.db") as database:
        rows = database.execute("select value from tags where key = 'parashot.uuid'").fetchall()
    return Counter(value for (value,) in rows)


def recorded_runs(checkout: Checkout) -> set[str]:
    files = checkout.root.glob("results/**/records.jsonl")
    return {json.loads(line)["uuid"] for file in files for line in file.read_text().splitlines()}


def test_every_part_of_the_summary_is_filled(studied: Checkout) -> None:
    summary = loaded(studied, "results/summary.json")
    assert not summary["missing"]
    assert summary["synthetic"] is True
    for name in ("serial", "dp", "ddp"):
        row = summary["strategies"][name]
        assert row["status"] == "ok"
        assert row["seconds_per_step"] > 0
        assert 0 <= row["val_accuracy"] <= 1
    assert {row["batchsz"] for row in summary["batchsz"]} == {2, 4}
    grid = {(backend, workers) for backend in ("jpeg", "packed") for workers in (0, 2)}
    read = [row["way"] for row in summary["loading"]]
    assert {(way["backend"], way["workers"]) for way in read} == {*grid, ("resident", 0)}
    assert [row["way"]["way"] for row in summary["gain"]] == ["default", "advised"]
    assert summary["claims"] and all(claim["verdict"] and claim["reason"] for claim in summary["claims"])
    page = studied.read("reports/index.html")
    assert "synthetic" in page.lower()
    assert 'src="http' not in page
    assert list((studied.root / "reports").rglob("*.png"))


def test_dp_and_ddp_really_are_parallel_and_train_the_same_network(studied: Checkout) -> None:
    """Each replica has the same episodes and running statistics, so even batch norm agrees."""
    header, *rows = [line.split(",") for line in studied.read("results/strategies/anatomy.csv").splitlines()]
    seen = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert {name: (seen[name]["processes"], seen[name]["threads"]) for name in ("serial", "dp", "ddp")} == {
        "serial": ("1", "1"),
        "dp": ("1", "2"),
        "ddp": ("2", "2"),
    }
    assert int(seen["ddp"]["all_reduces"]) > int(seen["dp"]["all_reduces"]) == 0
    assert loaded(studied, "results/train/ddp/result.json")["ranks_identical"] is True
    dp, ddp = (studied.read(f"results/train/{name}/val_episodes.csv") for name in ("dp", "ddp"))
    assert dp == ddp


def test_runs_say_what_they_are_and_where_they_ran(studied: Checkout) -> None:
    with sqlite3.connect(studied.root / "mlflow.db") as database:
        tags = database.execute("select key, run_uuid from tags where value != ''").fetchall()
        params = database.execute("select run_uuid, key from params").fetchall()
    runs = {run for key, run in tags if key == "parashot.uuid"}
    for tag in ("dvc.stage", "git.commit", "git.dirty", "hardware"):
        assert {run for key, run in tags if key == tag} >= runs, tag
    assert any(key == "parallel.ddp.bucket_mb" for _, key in params)


def test_a_second_repro_only_checks_and_fills_a_store_that_was_deleted(studied: Checkout) -> None:
    held = mlflow_runs(studied)
    assert set(held.values()) == {1}
    assert recorded_runs(studied) < set(held)
    (studied.root / "mlflow.db").unlink()
    shutil.rmtree(studied.root / "mlruns")
    assert stages_run(studied.run("dvc", "repro").stdout) == ALWAYS
    assert mlflow_runs(studied) == held


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
    assert "train.batchsz" in error and "abc" in error
    assert "Traceback" not in failed.stderr


# --- experiments --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_experiment_is_compared_with_the_study(restored: Checkout) -> None:
    held = mlflow_runs(restored)
    restored.run("dvc", "exp", "run", "-S", "parallel.dp.enabled=false")
    dp = loaded(restored, "results/summary.json")["strategies"]["dp"]
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
    away = {"MLFLOW_TRACKING_URI": refusing_address(), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    command = ["dvc", "exp", "run", "--temp", "--name", "untold", "-S", "claims.resamples=201"]
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
