"""The summary: plain, finite, complete; and the advice that it gives."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import study_builder as build

from parashot.errors import RecordError
from parashot.params import Params
from parashot.questions.accuracy.tasks import task_rows
from parashot.questions.results import StudyResults, Training
from parashot.questions.study2020 import CLAIMS
from parashot.questions.summary import summarize, summary_metrics
from parashot.train.records import SeedAccuracy


def advice(results: StudyResults, topic: str, params: Params | None = None) -> dict[str, object]:
    summary = summarize(results, params or build.params())
    return next(each for each in summary["advice"] if each["topic"] == topic)


def test_summary_is_plain_json_and_complete() -> None:
    summary = summarize(build.study(), build.params())
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    for key in (
        "hardware",
        "loader",
        "strategies",
        "batchsz",
        "evaluate",
        "claims",
        "advice",
        "table1",
        "scaling",
    ):
        assert summary[key], key
    assert summary["synthetic"] is True and summary["short_run"] is True and summary["source"] == "synthetic"
    assert len(summary["claims"]) == len(CLAIMS) and len(summary["table1"]) == 5 and summary["missing"] == {}
    ddp = summary["strategies"]["ddp"]
    assert ddp["speedup_low"] <= ddp["speedup"] <= ddp["speedup_high"]
    assert ddp["efficiency"] == pytest.approx(ddp["speedup"] / 2)
    assert {
        "status",
        "reason",
        "seconds_per_step",
        "val_accuracy",
        "val_accuracy_ci95",
        "peak_memory_bytes",
    } <= set(ddp)


def test_summary_of_real_images_and_a_long_run_says_so() -> None:
    params = build.params()
    params = replace(
        params,
        data=replace(params.data, source="miniimagenet"),
        train=replace(params.train, episodes=400_000),
    )
    summary = summarize(build.study(), params)
    assert (summary["synthetic"], summary["short_run"], summary["source"]) == (False, False, "miniimagenet")


def test_accuracy_is_compared_against_serial_and_between_dp_and_ddp() -> None:
    rows = summarize(build.study(), build.params())["accuracy"]
    assert [(row["first"], row["second"]) for row in rows] == [
        ("dp", "serial"),
        ("ddp", "serial"),
        ("ddp", "dp"),
    ]
    assert all(row["verdict"] == "equivalent" and row["episodes"] == 600 for row in rows)


def test_scaling_is_predicted_checked_and_set_beside_published_ones() -> None:
    scaling = summarize(build.study(), build.params())["scaling"]
    assert (
        len(scaling["rows"]) == 3 * 2 * 5 and len(scaling["checked"]) == 2 and len(scaling["published"]) == 3
    )
    for row in scaling["rows"]:
        assert row["seconds_per_step_low"] <= row["seconds_per_step"] <= row["seconds_per_step_high"]
        assert row["efficiency"] == pytest.approx(row["speedup"] / row["devices"])
    assert scaling["hidden"] == pytest.approx(0.75) and scaling["contention"] == pytest.approx(1.05, rel=0.02)


def test_an_empty_study_has_a_summary() -> None:
    summary = summarize(StudyResults(missing={"loader": "no file"}), build.params())
    json.dumps(summary, allow_nan=False)
    assert summary["missing"] == {"loader": "no file"} and summary["hardware"] is None
    assert summary["answer"] == "Nothing was measured yet: run `dvc repro`."
    assert summary_metrics(summary) == {
        "claims.holds": 0,
        "claims.does_not_hold": 0,
        "claims.undecided": 0,
        "claims.cannot_be_tested_here": len(CLAIMS),
    }


def test_metrics_are_flat_finite_numbers_of_the_summary() -> None:
    summary = summarize(build.study(), build.params())
    metrics = summary_metrics(summary)
    assert all(isinstance(value, float) and math.isfinite(value) for value in metrics.values())
    assert metrics["ddp.speedup"] == summary["strategies"]["ddp"]["speedup"]
    assert metrics["test_accuracy"] == summary["evaluate"]["test_accuracy"]
    assert metrics["batchsz60.speedup"] == summary["batchsz"][2]["speedup"]
    assert (metrics["loader.workers"], metrics["loader.speedup"]) == (0, 1)
    assert len(metrics) < 30
    assert sum(value for key, value in metrics.items() if key.startswith("claims.")) == len(CLAIMS)


def test_a_number_that_is_not_finite_is_named() -> None:
    broken = build.training("dp", seconds=1.0, data_share=float("nan"))
    results = build.study(training={"dp": broken})
    with pytest.raises(RecordError, match=r"summary\.strategies\.dp\.data_share is nan"):
        summarize(results, build.params())


def test_advice_takes_the_fastest_strategy() -> None:
    found = advice(build.study(), "strategy")
    assert found["choice"] == "ddp" and found["decided"] is True
    assert "2.0" in str(found["buys"])
    accuracy = advice(build.study(), "accuracy")
    assert accuracy["choice"] == "survives" and "shown to lie within ± 2 points" in str(accuracy["sure"])


def test_advice_counts_one_replica_with_all_cores_as_a_choice() -> None:
    steps = {**build.STEPS, "serial-all-cores": 0.15}
    assert (
        advice(build.study(strategies=build.strategy_results(steps)), "strategy")["choice"]
        == "serial-all-cores"
    )


def seeded(strategy: str, *gains: float, base: float = 0.4) -> Training:
    """A training whose seeds reach `base` plus `gains`, the same on each of 4 episodes."""
    seeds = tuple(
        SeedAccuracy(seed, episode, base + gain) for seed, gain in enumerate(gains) for episode in range(4)
    )
    return replace(build.training(strategy, shift=np.full(600, gains[0])), seeds=seeds)


def trainings(*gains: float) -> dict[str, Training]:
    """Those of a study, ddp better by so much with each seed."""
    others = {name: seeded(name, *(0 for _ in gains)) for name in ("serial", "dp")}
    return {**others, "ddp": seeded("ddp", *gains)}


def test_advice_leaves_out_what_seeds_show_to_be_less_accurate() -> None:
    """A single training, however much worse, is luck; several are not."""
    worse = build.study(training=trainings(-0.1, -0.11, -0.12))
    assert advice(worse, "strategy")["choice"] == "dp"
    by_luck = build.study(training=trainings(-0.1))
    assert advice(by_luck, "strategy")["choice"] == "ddp"


@pytest.mark.parametrize(
    ("gains", "choice", "phrase"),
    [
        ((0.0,), "survives", "the accuracy survives (± 2 points, one training each)"),
        ((-0.1,), "open", "one training each cannot tell whether the accuracy survives"),
        ((0.001, 0.0, -0.001), "survives", "the accuracy survives (± 2 points, 3 seeds)"),
        ((0.2, 0.0, -0.2), "open", "3 seeds cannot tell whether the accuracy survives"),
        ((0.1, 0.11, 0.12), "gains", "the accuracy gains (+11.0 points (+8.5 to +13.5), 3 seeds)"),
    ],
)
def test_advice_says_whether_the_accuracy_survives(
    gains: tuple[float, ...], choice: str, phrase: str
) -> None:
    results = build.study(training=trainings(*gains))
    found = advice(results, "accuracy")
    assert (found["choice"], found["phrase"]) == (choice, phrase)
    assert found["setting"] == ("seeds_study.enabled=true" if len(gains) == 1 else "")
    assert phrase in summarize(results, build.params())["answer"]


@pytest.mark.parametrize("steps", [{"serial": 0.1, "ddp": 0.2}, {"serial": 0.2, "serial-all-cores": 0.1}])
def test_the_accuracy_of_one_replica_is_what_others_are_compared_with(steps: dict[str, float]) -> None:
    found = advice(build.study(strategies=build.strategy_results(steps)), "accuracy")
    assert found["choice"] == "survives" and "one replica" in str(found["phrase"])


@pytest.mark.parametrize(
    ("equal", "choice"),
    [
        (("serial", "serial-all-cores", "dp", "ddp"), "serial"),
        (("serial-all-cores", "dp", "ddp"), "serial-all-cores"),
        (("dp", "ddp"), "ddp"),
    ],
)
def test_advice_takes_the_simplest_of_what_cannot_be_told_from_the_fastest(
    equal: tuple[str, ...], choice: str
) -> None:
    steps = {name: 0.2 if name in equal else 0.4 for name in build.STEPS}
    for fastest in equal:
        results = build.strategy_results({**steps, fastest: 0.199}, own=0.05)
        found = advice(build.study(strategies=results), "strategy")
        assert found["choice"] == choice and found["decided"] is False
        others = [name for name in equal if name != choice]
        assert all(name in str(found["sure"]) for name in others)
        assert ("a tie with" in str(found["phrase"])) == (choice != "serial")


def test_advice_when_nothing_beats_one_replica() -> None:
    steps = {"serial": 0.1, "dp": 0.2, "ddp": 0.2}
    found = advice(build.study(strategies=build.strategy_results(steps)), "strategy")
    assert found["choice"] == "serial" and found["buys"] == "nothing was faster"


def test_advice_on_workers_is_for_the_backend_of_the_training() -> None:
    params = build.params()
    assert advice(build.study(), "loader workers")["choice"] == "0"
    jpeg = replace(params, loader=replace(params.loader, backend="jpeg"))
    found = advice(build.study(), "loader workers", jpeg)
    assert (found["choice"], found["setting"]) == ("2", "loader.workers=2")
    assert "1.8" in str(found["buys"])


def test_advice_takes_the_fewest_of_equal_workers() -> None:
    loader = build.loader_results({"packed": {0: 0.02, 2: 0.0101, 4: 0.01}}, own=0.03)
    found = advice(build.study(loader=loader), "loader workers")
    assert found["choice"] == "2" and found["decided"] is False and "as fast as 4" in str(found["sure"])


def test_advice_on_batch_size_needs_a_finished_run_that_is_not_less_accurate() -> None:
    assert advice(build.study(), "batch size")["choice"] == "60"
    less = build.batchsz_results(accuracies={60: 0.30})
    assert advice(build.study(batchsz=less), "batch size")["choice"] == "30"
    guesses = build.batchsz_results(stopped=(), accuracies={2: 0.22, 30: 0.2, 60: 0.18}, ci95=0.03)
    found = advice(build.study(batchsz=guesses), "batch size")
    assert found["choice"] == "60"
    assert "none learned more than chance" in found["sure"]
    hardly = build.batchsz_results(stopped=(), accuracies={2: 0.203, 30: 0.202, 60: 0.200}, ci95=0.0005)
    assert advice(build.study(batchsz=hardly), "batch size")["choice"] == "60"
    fast_but_stopped = build.batchsz_results({2: 0.001, 30: 0.0125, 60: 0.02})
    assert advice(build.study(batchsz=fast_but_stopped), "batch size")["choice"] == "30"


def test_advice_on_batch_size_follows_accuracy_before_speed() -> None:
    """What learns nothing in the budget is no advice, however fast.

    A size that learned more and was stopped is.
    """
    slow_learners = build.batchsz_results(accuracies={30: 0.2, 60: 0.2})
    found = advice(build.study(batchsz=slow_learners), "batch size")
    assert found["choice"] == "2"
    assert "stopped after" in str(found["sure"])
    assert "30%" in str(found["phrase"]) and "20%" in str(found["phrase"])


def test_advice_on_batch_size_does_not_compare_the_baseline_with_itself() -> None:
    slower = build.batchsz_results({2: 0.02, 30: 0.0125, 60: 0.02}, stopped=())
    found = advice(build.study(batchsz=slower), "batch size")
    assert found["phrase"] == "take 30 episodes per step: no other size was faster"


def test_what_is_mistaken_most_often_comes_first() -> None:
    summary = summarize(build.study(), build.params())
    (worst,) = summary["confusion"]
    assert (worst["actual"], worst["taken_for"], worst["share"]) == ("class 1", "class <2>", 0.5)
    assert summarize(build.study(evaluate=None), build.params())["confusion"] == []


def test_missing_parts_are_told_and_the_rest_is_advised() -> None:
    found = advice(build.study(loader=None, missing={"loader": "run it"}), "loader workers")
    assert (found["choice"], found["sure"]) == ("", "run it")
    summary = summarize(build.study(loader=None), build.params())
    assert "train with ddp" in summary["answer"] and "worker" not in summary["answer"]


def test_only_an_interval_above_zero_is_a_gain() -> None:
    one, five = summarize(build.study(), build.params())["tasks"]
    assert [one["k_shot"], one["margin"], one["verdict"]] == [1, 0.02, "gain"]
    assert [five["k_shot"], five["margin"], five["verdict"]] == [5, 0.004, "no gain"]
    (worse,) = task_rows([build.task(1, -0.02)])
    (untrained,) = task_rows([build.task(1, 0.0)])
    assert (worse.verdict, untrained.verdict) == ("loss", "no gain")
    assert summarize(build.study(evaluate=None), build.params())["tasks"] == []
