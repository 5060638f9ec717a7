"""The whole study in a real DVC repository.

What runs, what does not run again, and what MLflow then holds.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from checkouts import TINY, Checkout
from faulty_server import refusing_address

from parashot.parallel.registry import STRATEGIES

ALWAYS = {"hardware", "source", "publish"}


def stages_run(output: str) -> set[str]:
    """Names in DVC's lines "Running stage 'NAME':"."""
    return {line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage")}


def mlflow_runs(checkout: Checkout) -> Counter[str]:
    """How often MLflow holds each record."""
    with sqlite3.connect(checkout.root / "mlflow.db") as database:
        rows = database.execute("select value from tags where key = 'parashot.uuid'").fetchall()
    return Counter(value for (value,) in rows)


def recorded_runs(checkout: Checkout) -> set[str]:
    files = checkout.root.glob("results/**/records.jsonl")
    return {json.loads(line)["uuid"] for file in files for line in file.read_text().splitlines()}


def test_every_part_of_the_summary_is_filled(studied: Checkout) -> None:
    summary = json.loads(studied.read("results/summary.json"))
    assert set(summary) >= {"hardware", "loader", "strategies", "batchsz", "evaluate", "claims", "advice"}
    assert not summary["missing"]
    assert summary["synthetic"] is True
    for name in ("serial", "dp", "ddp"):
        row = summary["strategies"][name]
        assert row["status"] == "ok"
        assert row["seconds_per_step"] > 0
        assert 0 <= row["val_accuracy"] <= 1
    assert {row["batchsz"] for row in summary["batchsz"]} == {2, 4}
    grid = {(backend, workers) for backend in ("jpeg", "packed") for workers in (0, 2)}
    assert {(row["backend"], row["workers"]) for row in summary["loader"]} == {*grid, ("resident", 0)}
    assert sum(row["chosen"] for row in summary["step"]) == 1
    assert len(summary["claims"]) >= 14
    assert all(claim["verdict"] and claim["reason"] for claim in summary["claims"])


def test_dp_and_ddp_really_are_parallel(studied: Checkout) -> None:
    header, *rows = [line.split(",") for line in studied.read("results/strategies/anatomy.csv").splitlines()]
    seen = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert (seen["serial"]["processes"], seen["serial"]["threads"]) == ("1", "1")
    assert (seen["dp"]["processes"], seen["dp"]["threads"]) == ("1", "2")
    assert (seen["ddp"]["processes"], seen["ddp"]["threads"]) == ("2", "2")
    assert int(seen["ddp"]["all_reduces"]) >= 1
    assert seen["dp"]["all_reduces"] == "0"
    assert json.loads(studied.read("results/train/ddp/result.json"))["ranks_identical"] is True


def test_dp_and_ddp_train_the_same_network(studied: Checkout) -> None:
    """Both give each replica the same episodes and running statistics.

    So even batch norm in training mode agrees.
    """
    dp, ddp = (studied.read(f"results/train/{name}/val_episodes.csv") for name in ("dp", "ddp"))
    assert dp == ddp


def test_the_page_is_whole_and_says_the_data_are_synthetic(studied: Checkout) -> None:
    page = studied.read("reports/index.html")
    HTMLParser().feed(page)
    assert "synthetic" in page.lower()
    assert 'src="http' not in page
    assert list((studied.root / "reports").rglob("*.png"))


def test_every_run_says_what_it_is_and_where_it_ran(studied: Checkout) -> None:
    with sqlite3.connect(studied.root / "mlflow.db") as database:
        rows = database.execute("select key, run_uuid from tags where value != ''").fetchall()
    tagged = {key: {run for name, run in rows if name == key} for key, _ in rows}
    runs = tagged["parashot.uuid"]
    for key in ("dvc.stage", "git.commit", "git.dirty", "hardware"):
        assert tagged[key] >= runs, key
    assert len(tagged["strategy"]) >= 8  # trainings, timed variants, batch sizes


def test_a_second_repro_runs_only_what_is_always_checked_and_fills_a_store_that_was_deleted(
    studied: Checkout,
) -> None:
    held = mlflow_runs(studied)
    assert set(held.values()) == {1}
    assert recorded_runs(studied) < set(held)
    (studied.root / "mlflow.db").unlink()
    shutil.rmtree(studied.root / "mlruns")
    assert stages_run(studied.run("dvc", "repro").stdout) == ALWAYS
    assert mlflow_runs(studied) == held


@pytest.mark.slow
def test_a_store_that_fails_costs_no_experiment(studied: Checkout) -> None:
    """DVC keeps nothing of an experiment, least of all of a temporary one, whose last stage fails."""
    away = {"MLFLOW_TRACKING_URI": refusing_address(), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    command = ["dvc", "exp", "run", "--temp", "--name", "untold", "-S", "claims.resamples=201"]
    done = studied.run(*command, **away)
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("warning: MLflow at")]
    assert warning.endswith("no result is lost, the next `dvc repro` publishes what is missing")
    assert "untold" in studied.run("dvc", "exp", "list", "--name-only").stdout.split()
    by_hand = studied.run("python", "-m", "stages.publish", check=False, **away)
    assert by_hand.returncode == 1
    assert by_hand.stderr.startswith("error: MLflow at")


def test_an_experiment_runs_again_what_its_knobs_touch_and_compares(studied: Checkout) -> None:
    held = mlflow_runs(studied)
    done = studied.run("dvc", "exp", "run", "-S", "parallel.dp.enabled=false")
    assert stages_run(done.stdout) - ALWAYS == {"strategy-bench", "train-dp", "evaluate", "summarize"}
    strategies = json.loads(studied.read("results/summary.json"))["strategies"]
    assert strategies["dp"]["status"] == "skipped"
    assert "parallel.dp.enabled" in strategies["dp"]["reason"]
    assert strategies["ddp"]["status"] == "ok"
    changed = json.loads(studied.run("dvc", "metrics", "diff", "--json").stdout)["results/metrics.json"]
    assert changed["dp.val_accuracy"]["old"] > 0 and changed["dp.val_accuracy"].get("new") is None
    columns = studied.run("dvc", "exp", "show", "--csv", "--no-pager").stdout.splitlines()[0].split(",")
    assert {"test_accuracy", "ddp.speedup", "claims.holds"} <= set(columns)
    turned = json.loads(studied.run("dvc", "params", "diff", "--json").stdout)["params.yaml"]
    assert {key: (each["old"], each["new"]) for key, each in turned.items()} == {
        "parallel.dp.enabled": (True, False)
    }
    now = mlflow_runs(studied)
    assert set(now.values()) == {1}
    assert set(held) < set(now)
    studied.run("dvc", "plots", "show", "-o", "plots-here")
    assert (studied.root / "plots-here" / "index.html").stat().st_size > 1000
    assert "parallel.dp.enabled" in studied.run("dvc", "exp", "show", "--csv").stdout
    studied.run("git", "checkout", "--quiet", "--", ".")
    studied.run("dvc", "checkout")


def test_a_part_of_the_study_runs_in_a_clone_that_has_no_cache(studied: Checkout, tmp_path: Path) -> None:
    studied.run("git", "clone", "--quiet", ".", str(tmp_path / "clone"))
    clone = Checkout(tmp_path / "clone")
    done = clone.run("dvc", "exp", "run", "-S", "seed=1", "hardware")
    assert stages_run(done.stdout) == {"hardware"}
    assert "Ran experiment" in done.stdout


@pytest.mark.slow
def test_another_batch_size_trains_every_strategy_again(studied: Checkout) -> None:
    done = studied.run("dvc", "exp", "run", "-S", "train.batchsz=2")
    # how a step is computed is measured for the new size; where that changes, what depends on it follows
    again = stages_run(done.stdout) - ALWAYS - {"pretrain", "batchsz", "warmup"}
    trainings = {f"train-{name}" for name in STRATEGIES}
    assert again == {"tune", "strategy-bench", *trainings, "evaluate", "summarize"}
    targets = [f"results/train/{name}/metrics.json" for name in ("serial", "dp", "ddp")]
    diff = json.loads(studied.run("dvc", "metrics", "diff", "--json", "--targets", *targets).stdout)
    for name in ("serial", "dp", "ddp"):
        steps = diff[f"results/train/{name}/metrics.json"]["steps"]
        assert (steps["old"], steps["new"]) == (2, 4)
    studied.run("git", "checkout", "--quiet", "--", ".")
    studied.run("dvc", "checkout")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("train.batchsz=abc", ["train.batchsz", "'abc'", "whole number"]),
        ("parallel.device=cuda", ["parallel.device", "cuda"]),
        pytest.param("episode.n_way=17", ["episode.n_way", "17", "val", "16"], marks=pytest.mark.slow),
        pytest.param("data.source=miniimagenet", ["data.archive"], marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_ends_in_one_line_and_leaves_the_results(
    studied: Checkout, setting: str, words: list[str]
) -> None:
    if setting == "parallel.device=cuda" and __import__("torch").cuda.is_available():
        pytest.skip("a CUDA device is here")
    failed = studied.run("dvc", "exp", "run", "-S", setting, check=False)
    assert failed.returncode != 0
    errors = [line for line in failed.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert all(word in errors[0] for word in words), errors[0]
    assert "Traceback" not in failed.stderr
    assert not [
        path for path in (studied.root / "data").iterdir() if path.name.startswith(".") and path.is_dir()
    ]
    studied.run("git", "checkout", "--quiet", "--", ".")
    studied.run("dvc", "checkout")


def ends_clean(checkout: Checkout) -> bool:
    """Whether the workspace is as it was; DVC's queue may still be putting it back."""
    for _ in range(60):
        if not checkout.run("git", "status", "--porcelain").stdout:
            return True
        time.sleep(1)
    return False


@pytest.mark.slow
def test_temporary_and_queued_experiments_reach_the_same_store(studied: Checkout) -> None:
    before = mlflow_runs(studied)
    studied.run("dvc", "exp", "run", "--temp", "-S", "train.learning_rate=0.002", "-S", "loader.workers=2")
    middle = mlflow_runs(studied)
    assert len(middle) > len(before)
    studied.run("dvc", "exp", "run", "--queue", "--name", "queued", "-S", "train.learning_rate=0.004")
    studied.run("dvc", "exp", "run", "--run-all")
    after = mlflow_runs(studied)
    assert len(after) > len(middle)
    assert set(after.values()) == {1}
    assert ends_clean(studied)
    studied.run("dvc", "exp", "apply", "queued")
    assert "learning_rate: 0.004" in studied.read("params.yaml")
    studied.run("git", "checkout", "--quiet", "--", ".")
    studied.run("dvc", "checkout")


def test_torchrun_joins_and_trains_the_same_network(studied: Checkout) -> None:
    before = studied.read("results/train/ddp/val_episodes.csv")
    uuids = recorded_runs(studied)
    command = ["torchrun", "--standalone", "--nproc-per-node", "2", "-m", "stages.train"]
    studied.run(*command, "ddp")
    assert studied.read("results/train/ddp/val_episodes.csv") == before
    assert recorded_runs(studied) != uuids
    refused = studied.run(*command, "serial", check=False)
    assert refused.returncode != 0
    assert "error: serial is one process, but torchrun started 2" in refused.stderr
    studied.run("dvc", "checkout", "--force")


def test_the_smallest_study_differs_from_the_default_in_size_only() -> None:
    assert not [
        each for each in TINY if each.startswith(("parallel.device", "data.source", "model.embedding"))
    ]
