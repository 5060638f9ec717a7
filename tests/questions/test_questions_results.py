"""The analysis reads what the stages wrote; its export is plain, finite and complete, its metrics are few."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import study_builder as build
from study_files import write_study

from parashot.errors import RecordError
from parashot.questions.ledger import CLAIMS
from parashot.questions.results import StudyResults, load_results
from parashot.questions.study import analyse
from parashot.questions.summary import export, metrics

STRATEGIES = ("serial", "dp", "ddp")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_study(tmp_path, build.study())
    return tmp_path


def test_a_study_survives_its_files(tmp_path: Path) -> None:
    """With further seeds of one training, and another training that was skipped."""
    study = build.study()
    several = build.with_seeds(study.training["dp"], (0.0, 0.1, -0.1))
    skipped = build.skipped_training("ddp", "one GPU")
    study = replace(study, training={**study.training, "dp": several, "ddp": skipped})
    write_study(tmp_path, study)
    assert load_results(tmp_path, STRATEGIES) == study
    assert set(load_results(tmp_path, ("dp",)).training) == {"dp"}


def test_tables_that_a_study_may_lack_are_empty(root: Path) -> None:
    for name in ("strategies/cost_steps.csv", "strategies/cost_messages.csv", "train/dp/seeds.csv"):
        (root / "results" / name).unlink()
    results = load_results(root, STRATEGIES)
    assert results.strategies
    assert (results.strategies.cost_steps, results.strategies.cost_messages) == ((), ())
    assert analyse(results, build.params()).scaling == ()


def test_batch_sizes_without_the_baseline_that_params_name_are_missing() -> None:
    """As `advise` finds them where `batchsz_study` was changed and `dvc repro` not called yet."""
    params = build.params()
    changed = replace(params, batchsz_study=replace(params.batchsz_study, sizes=(2, 16, 60), baseline=16))
    study = analyse(build.study(), changed)
    assert study.sizes == () and "results/batchsz has no size 16" in study.why_missing("batchsz")
    assert analyse(build.study(), params).sizes


def test_missing_parts_are_one_line_or_left_out(root: Path) -> None:
    shutil.rmtree(root / "results/train/dp")
    for name in ("hardware.json", "results/batchsz/blocks.csv"):
        (root / name).unlink()
    with pytest.raises(RecordError, match="dvc repro"):
        load_results(root, STRATEGIES)
    results = load_results(root, STRATEGIES, partial=True)
    assert {*results.missing} == {"hardware", "train/dp", "batchsz"}
    assert all(str(root) not in each and "dvc repro" in each for each in results.missing.values())
    assert export(analyse(results, build.params()))["missing"] == results.missing


def test_an_export_is_plain_json_and_complete_and_metrics_are_flat_and_few() -> None:
    study = analyse(build.study(), build.params())
    tree, found = export(study), metrics(study)
    assert json.loads(json.dumps(tree, allow_nan=False)) == tree
    assert [part for part in tree if not tree[part]] == ["missing"] and len(tree["claims"]) == len(CLAIMS)
    assert (tree["synthetic"], tree["short_run"], tree["missing"]) == (True, True, {})
    ddp = tree["strategies"]["ddp"]
    assert ddp["speedup_low"] <= ddp["speedup"] <= ddp["speedup_high"]
    assert ddp["efficiency"] == pytest.approx(ddp["speedup"] / 2) and ddp["val_accuracy_ci95"] > 0
    none = next(row for row in tree["batchsz"] if row["batchsz"] == 30)
    assert none["limit_seconds"] is None and none["communication_share_low"] < none["communication_share"]
    assert [row.devices for row in study.scaling] == [1, 2, 4] * 2 and len(study.checked) == 2
    scaling = tree["scaling"]
    assert scaling["hidden"] == pytest.approx(0.75) and scaling["contention"] == pytest.approx(1.05, rel=0.02)

    assert all(isinstance(value, float) and math.isfinite(value) for value in found.values())
    assert found["ddp.speedup"] == ddp["speedup"]
    assert found["test_accuracy"] == tree["evaluate"]["test_accuracy"]
    packed = next(row for row in study.loading if row.way.way == "packed-0")
    assert packed.speedup and found["loader.speedup"] == packed.speedup.value
    assert found["loader.workers"] == 0 and found["gain.speedup"] > 1
    assert found["batchsz60.speedup"] > 1 and len(found) < 30
    in_equal_time = {f"batchsz{row.batchsz}.val_accuracy": row.val_accuracy for row in study.sizes}
    assert in_equal_time
    assert {key: each.value for key, each in in_equal_time.items() if each}.items() <= found.items()


def test_an_empty_study_has_an_export() -> None:
    study = analyse(StudyResults(missing={"loader": "no file"}), build.params())
    tree = export(study)
    json.dumps(tree, allow_nan=False)
    assert tree["missing"] == {"loader": "no file"} and tree["hardware"] is None
    assert tree["answer"] == "Nothing was measured yet: run `dvc repro`."
    found = metrics(study)
    verdicts = ("holds", "does_not_hold", "undecided", "cannot_be_tested_here")
    assert set(found) == {f"claims.{each}" for each in verdicts} and sum(found.values()) == len(CLAIMS)


def test_a_number_that_is_not_finite_is_named() -> None:
    results = build.study(training={"dp": build.training("dp", seconds=1.0, val_accuracy=float("nan"))})
    with pytest.raises(RecordError, match=r"summary\.strategies\.dp\.val_accuracy is nan"):
        export(analyse(results, build.params()))
