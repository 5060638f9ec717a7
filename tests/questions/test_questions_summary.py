"""The export of a study: plain, finite, complete; and its few metrics."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import study_builder as build

from parashot.errors import RecordError
from parashot.questions.ledger import CLAIMS
from parashot.questions.results import StudyResults
from parashot.questions.study import analyse
from parashot.questions.summary import export, metrics

PARTS = ("hardware", "params", "loader", "strategies", "batchsz", "evaluate", "claims", "advice", "step")


def test_an_export_is_plain_json_and_complete() -> None:
    tree = export(analyse(build.study(), build.params()))
    assert json.loads(json.dumps(tree, allow_nan=False)) == tree
    assert all(tree[part] for part in PARTS) and len(tree["claims"]) == len(CLAIMS)
    assert (tree["synthetic"], tree["short_run"], tree["missing"]) == (True, True, {})
    ddp = tree["strategies"]["ddp"]
    assert ddp["speedup_low"] <= ddp["speedup"] <= ddp["speedup_high"]
    assert ddp["efficiency"] == pytest.approx(ddp["speedup"] / 2) and ddp["val_accuracy_ci95"] > 0
    none = next(row for row in tree["batchsz"] if row["batchsz"] == 30)
    assert none["limit_seconds"] is None and none["communication_share_low"] < none["communication_share"]


def test_real_images_and_a_long_run_are_told() -> None:
    params = build.params()
    data, train = replace(params.data, source="miniimagenet"), replace(params.train, episodes=400_000)
    study = analyse(build.study(), replace(params, data=data, train=train))
    assert (study.synthetic, study.short_run) == (False, False)


def test_scaling_is_predicted_and_checked() -> None:
    study = analyse(build.study(), build.params())
    assert len(study.scaling) == 3 * 2 * 5 and len(study.checked) == 2
    scaling = export(study)["scaling"]
    assert scaling["hidden"] == pytest.approx(0.75) and scaling["contention"] == pytest.approx(1.05, rel=0.02)


def test_an_empty_study_has_an_export() -> None:
    study = analyse(StudyResults(missing={"loader": "no file"}), build.params())
    tree = export(study)
    json.dumps(tree, allow_nan=False)
    assert tree["missing"] == {"loader": "no file"} and tree["hardware"] is None
    assert tree["answer"] == "Nothing was measured yet: run `dvc repro`."
    found = metrics(study)
    assert set(found) == {f"claims.{each}" for each in VERDICTS} and sum(found.values()) == len(CLAIMS)


VERDICTS = ("holds", "does_not_hold", "undecided", "cannot_be_tested_here")


def test_metrics_are_flat_finite_numbers() -> None:
    study = analyse(build.study(), build.params())
    found = metrics(study)
    assert all(isinstance(value, float) and math.isfinite(value) for value in found.values())
    speedup = study.strategies["ddp"].speedup
    assert speedup and found["ddp.speedup"] == speedup.value
    assert study.evaluate and found["test_accuracy"] == study.evaluate.test_accuracy
    assert (found["loader.workers"], found["loader.speedup"]) == (0, 1)
    assert found["batchsz60.speedup"] > 1 and len(found) < 30


def test_a_number_that_is_not_finite_is_named() -> None:
    results = build.study(training={"dp": build.training("dp", seconds=1.0, data_share=float("nan"))})
    with pytest.raises(RecordError, match=r"summary\.strategies\.dp\.data_share is nan"):
        export(analyse(results, build.params()))
