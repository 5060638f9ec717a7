"""Advice by measurements whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import study_builder as build

from parashot.params import Params
from parashot.questions.accuracy.records import Training
from parashot.questions.advice import Advice
from parashot.questions.results import StudyResults
from parashot.questions.study import analyse
from parashot.train.records import SeedAccuracy


def advice(topic: str, results: StudyResults | None = None, params: Params | None = None) -> Advice:
    study = analyse(results or build.study(), params or build.params())
    return next(each for each in study.advice if each.topic == topic)


def strategy(steps: dict[str, float], own: float = 0.01) -> Advice:
    return advice("strategy", build.study(strategies=build.strategy_results(steps, own=own)))


def trainings(*gains: float) -> dict[str, Training]:
    """Those of a study, ddp better by so much with each seed, the same on each of 4 episodes."""
    found = {}
    for name in ("serial", "dp", "ddp"):
        own = gains if name == "ddp" else (0.0,) * len(gains)
        seeds = tuple(
            SeedAccuracy(seed, episode, 0.4 + gain) for seed, gain in enumerate(own) for episode in range(4)
        )
        found[name] = replace(build.training(name, shift=np.full(600, own[0])), seeds=seeds)
    return found


def test_the_fastest_strategy() -> None:
    found = advice("strategy")
    assert (found.choice, found.decided) == ("ddp", True) and "2.0" in found.buys
    assert strategy({**build.STEPS, "serial-all-cores": 0.15}).choice == "serial-all-cores"
    slower = strategy({"serial": 0.1, "dp": 0.2, "ddp": 0.2})
    assert (slower.choice, slower.buys) == ("serial", "nothing was faster")


@pytest.mark.parametrize(
    ("equal", "choice"),
    [
        (("serial", "serial-all-cores", "dp", "ddp"), "serial"),
        (("serial-all-cores", "dp", "ddp"), "serial-all-cores"),
        (("dp", "ddp"), "ddp"),
    ],
)
def test_the_simplest_of_what_is_as_good_as_the_fastest(equal: tuple[str, ...], choice: str) -> None:
    steps = {name: 0.2 if name in equal else 0.4 for name in build.STEPS}
    for fastest in equal:
        found = strategy({**steps, fastest: 0.199})
        assert found.choice == choice and found.decided
    noisy = strategy(steps, own=0.1)
    assert not noisy.decided and "undecided" in noisy.sure
    assert "undecided" in noisy.phrase or noisy.choice == "serial"


def test_a_strategy_that_seeds_show_to_be_less_accurate_is_left_out() -> None:
    """A single training, however much worse, is luck; several are not."""
    assert advice("strategy", build.study(training=trainings(-0.1, -0.11, -0.12))).choice == "dp"
    assert advice("strategy", build.study(training=trainings(-0.1))).choice == "ddp"


@pytest.mark.parametrize(
    ("gains", "choice", "phrase"),
    [
        ((0.0,), "open", "one training each cannot tell whether the accuracy survives"),
        ((-0.1,), "open", "one training each cannot tell whether the accuracy survives"),
        ((0.001, 0.0, -0.001), "survives", "the accuracy survives (± 2 points, 3 seeds)"),
        ((0.2, 0.0, -0.2), "open", "3 seeds cannot tell whether the accuracy survives"),
        ((0.1, 0.11, 0.12), "gains", "the accuracy gains (+11.0 points (+8.5 to +13.5), 3 seeds)"),
    ],
)
def test_whether_the_accuracy_survives(gains: tuple[float, ...], choice: str, phrase: str) -> None:
    results = build.study(training=trainings(*gains))
    found = advice("accuracy", results)
    assert (found.choice, found.phrase) == (choice, phrase)
    assert found.setting == ("seeds_study.enabled=true" if len(gains) == 1 else "")
    assert phrase in analyse(results, build.params()).answer


def test_the_accuracy_survives_in_the_same_algorithm() -> None:
    """Whatever two trainings reach: rounding sets them apart."""
    strategies = build.strategy_results(gradient_difference=3e-15)
    found = advice("accuracy", build.study(training=trainings(-0.1), strategies=strategies))
    assert (found.choice, found.decided) == ("survives", True)
    assert "3e-15" in found.sure and "ddp minus serial: -10.0 points" in found.buys


def test_the_accuracy_of_one_replica_is_what_others_are_compared_with() -> None:
    alone = build.study(strategies=build.strategy_results({"serial": 0.2, "serial-all-cores": 0.1}))
    assert advice("accuracy", alone).phrase == "the accuracy survives: one replica splits nothing"


def test_workers_are_for_the_backend_of_the_training() -> None:
    assert advice("loader workers").choice == "0"
    params = build.params()
    jpeg = replace(params, loader=replace(params.loader, backend="jpeg"))
    found = advice("loader workers", params=jpeg)
    assert (found.choice, found.setting) == ("2", "loader.workers=2") and "1.8" in found.buys
    assert advice("loader backend", params=jpeg).setting == "loader.backend=packed"


def test_the_fewest_of_workers_that_are_as_good() -> None:
    loader = build.loader_results({"packed": {0: 0.02, 2: 0.0101, 4: 0.01}})
    found = advice("loader workers", build.study(loader=loader))
    assert (found.choice, found.decided) == ("2", True)
    noisy = build.loader_results({"packed": {0: 0.02, 2: 0.0101, 4: 0.01}}, own=0.1)
    assert not advice("loader workers", build.study(loader=noisy)).decided


@pytest.mark.parametrize(
    ("reached", "choice", "decided", "words"),
    [
        ({2: 0.36, 30: 0.42, 60: 0.39}, "30", True, "60 lacks +3.0 points"),
        ({2: 0.42, 30: 0.36, 60: 0.39}, "2", True, "60 lacks"),
        (
            {2: 0.36, 30: 0.415, 60: 0.42},
            "30",
            True,
            "within 2 points of the best",
        ),  # the baseline is as good
        ({2: 0.36, 30: 0.40, 60: 0.42}, "60", False, "30 may be as good"),
    ],
)
def test_the_batch_size_that_learns_most_in_the_same_time(
    reached: dict[int, float], choice: str, decided: bool, words: str
) -> None:
    found = advice("batch size", build.study(batchsz=build.batchsz_results(reached=reached)))
    assert (found.choice, found.decided) == (choice, decided)
    assert words in found.sure and "gradient noise scale" in found.sure
    assert ("undecided" in found.phrase) is not decided


@pytest.mark.parametrize(
    ("bf16", "choice", "decided"), [(0.15, "bf16", True), (0.6, "fp32", True), (0.3, "fp32", True)]
)
def test_bf16_must_be_shown_to_be_faster(bf16: float, choice: str, decided: bool) -> None:
    ways = {("split", "fp32"): 0.3, ("concat", "fp32"): 0.4, ("split", "bf16"): bf16}
    found = advice("precision", build.study(tune=build.tune_results(ways)))
    assert (found.choice, found.decided) == (choice, decided)


def test_missing_parts_are_told_and_the_rest_is_advised() -> None:
    results = build.study(loader=None, missing={"loader": "run it"})
    found = advice("loader workers", results)
    assert (found.choice, found.sure) == ("", "run it")
    answer = analyse(results, build.params()).answer
    assert "train with ddp" in answer and "worker" not in answer
