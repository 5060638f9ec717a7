"""Advice by measurements whose answer is known."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import study_builder as build

from parashot.params import Params
from parashot.questions.accuracy.records import Training
from parashot.questions.advice import Advice
from parashot.questions.gain.claims import two_ways
from parashot.questions.gain.records import GainResults
from parashot.questions.results import StudyResults
from parashot.questions.study import analyse
from parashot.train.records import Choices


def advice(topic: str, results: StudyResults | None = None, params: Params | None = None) -> Advice:
    study = analyse(results or build.study(), params or build.params())
    return next(each for each in study.advice if each.topic == topic)


def strategy(steps: dict[str, float], own: float = 0.01) -> Advice:
    return advice("strategy", build.study(strategies=build.strategy_results(steps, own=own)))


def trainings(*gains: float) -> dict[str, Training]:
    """Those of a study, ddp better by so much with each seed, the same on each of 4 episodes."""
    even = (0.0,) * len(gains)
    return {
        name: build.with_seeds(build.training(name, shift=np.full(600, own[0])), own)
        for name, own in (("serial", even), ("dp", even), ("ddp", gains))
    }


def test_the_fastest_strategy() -> None:
    found = advice("strategy")
    assert (found.choice, found.decided) == ("ddp", True)
    over_one_process, over_one_replica = found.buys.split(";")
    assert "1.1" in over_one_process and "one process on all cores" in over_one_process
    assert "2.1" in over_one_replica and "serial" in over_one_replica
    all_cores = strategy({**build.STEPS, "serial-all-cores": 0.15})
    assert all_cores.settings["parallel.replicas"] == 1


@pytest.mark.parametrize(
    ("seconds", "own", "choice", "decided", "words"),
    [
        ((0.4, 0.2, 0.199, 0.2), 0.01, "serial-all-cores", True, "nothing was shown"),
        ((0.2, 0.2, 0.199, 0.2), 0.01, "serial-all-cores", True, ""),
        ((0.4, 0.4, 0.199, 0.2), 0.01, "ddp", True, "2.0"),
        ((0.4, 0.4, 0.2, 0.2), 0.1, "ddp", False, "undecided"),
        # one process stays unless another strategy is shown to be faster
        ((0.1, None, 0.2, 0.2), 0.01, "serial", True, "nothing was shown to be more than 5% faster"),
        ((0.4, 0.2, 0.19, 0.198), 0.1, "serial-all-cores", False, "nothing was shown"),
        ((0.4, 0.2, 0.13, 0.131), 0.04, "ddp", False, "dp may be as good"),
        # no setting gives one process the threads of a replica
        ((0.2, 0.3, 0.3, 0.3), 0.01, "serial-all-cores", True, "nothing was shown"),
        ((0.2, 0.2, None, None), 0.1, "serial-all-cores", True, "no strategy was timed on two or more"),
    ],
)
def test_the_simplest_strategy_of_those_that_are_as_good_as_the_fastest(
    seconds: tuple[float | None, ...], own: float, choice: str, decided: bool, words: str
) -> None:
    """`Choice` itself is tested with the statistics."""
    timed = {name: each for name, each in zip(build.STEPS, seconds, strict=True) if each is not None}
    found = strategy(timed, own)
    assert (found.choice, found.decided) == (choice, decided)
    assert words in f"{found.buys}; {found.sure}" and bool(found.changes) is not decided


def test_a_strategy_that_seeds_show_to_be_less_accurate_is_left_out() -> None:
    """A single training, however much worse, is luck; several are not."""
    assert advice("strategy", build.study(training=trainings(-0.1, -0.11, -0.12))).choice == "dp"
    assert advice("strategy", build.study(training=trainings(-0.1))).choice == "ddp"


@pytest.mark.parametrize(
    ("gains", "choice", "phrase"),
    [
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
    assert ("seeds_study.enabled" in found.changes) is (len(gains) == 1)
    *_, last = sentences = analyse(results, build.params()).answer.split(". ")
    assert f"{phrase[0].upper()}{phrase[1:]}" in [each.rstrip(".") for each in sentences]
    assert (last == "Undecided: accuracy.") is (choice == "open"), "nothing else is undecided"


def test_the_same_algorithm_does_not_affect_the_accuracy() -> None:
    """Whatever two trainings reach: rounding sets them apart."""
    strategies = build.strategy_results(gradient_difference=3e-15)
    found = advice("accuracy", build.study(training=trainings(-0.1), strategies=strategies))
    assert (found.choice, found.decided) == ("same algorithm", True)
    assert "10.0 points apart (one training each)" in found.phrase
    assert "3e-15" in found.sure and "ddp minus serial, one training each: -10.0 points" in found.buys
    several = advice("accuracy", build.study(training=trainings(0.1, 0.11, 0.12), strategies=strategies))
    assert several.buys.startswith("ddp minus serial, 3 seeds: ") and "trainings, 3 of each" in several.sure
    per_rank = {
        "serial": build.training("serial"),
        "ddp": build.training("ddp", batchsz=32, batch_per="rank"),
    }
    found = advice("accuracy", build.study(training=per_rank, strategies=strategies))
    assert found.choice == "open", "ranks had batches of their own"


def test_where_one_process_is_advised_the_fastest_other_strategy_shows_what_it_would_change() -> None:
    steps = {"serial": 0.1, "dp": 0.3, "ddp": 0.2}
    results = build.study(strategies=build.strategy_results(steps, gradient_difference=3e-15))
    assert advice("strategy", results).choice == "serial"
    found = advice("accuracy", results)
    assert found.choice == "same algorithm" and found.buys.startswith("ddp minus serial")
    alone = build.study(strategies=build.strategy_results({"serial": 0.2, "serial-all-cores": 0.1}))
    found = advice("accuracy", alone)
    assert (found.choice, found.decided) == ("not affected", True)


@pytest.mark.parametrize(
    ("in_fp32", "choice", "changes"),
    [
        ((0.001, 0.0, -0.001, 0.002, -0.002), "survives", ""),
        ((0.03, 0.031, 0.032, 0.03, 0.029), "suffers", ""),
        ((-0.03, -0.031, -0.032, -0.03, -0.029), "gains", ""),
        ((0.04, -0.04, 0.04, -0.04, 0.0), "open", "more seeds"),
    ],
)
def test_what_bf16_does_to_the_accuracy(in_fp32: tuple[float, ...], choice: str, changes: str) -> None:
    """Over trainings in both precisions, paired by seed."""
    results = build.study(batchsz=build.batchsz_results(in_fp32=in_fp32))
    found = advice("accuracy in bf16", results)
    assert (found.choice, found.decided) == (choice, choice != "open")
    assert found.changes.startswith(changes) and bool(found.changes) is bool(changes)
    lost = 100 * float(np.mean(in_fp32))
    assert f"bf16 minus fp32: {-lost + 0.0:+.1f} points" in found.buys and "5 pairs" in found.sure
    assert ("90% interval" in found.sure) is (choice == "survives"), "the one that the verdict rests on"
    study = analyse(results, build.params())
    assert found.phrase[1:] in study.answer
    assert study.settings["train.precision"] == ("fp32" if choice == "suffers" else "bf16")


def test_bf16_is_judged_only_where_it_is_used_and_was_repeated_in_fp32() -> None:
    none = build.study(batchsz=replace(build.skipped_batchsz(), trainings=(), in_fp32=()))
    assert "skipped" in advice("accuracy in bf16", none).sure
    tune = replace(build.tune_results(), choices=Choices("split", "fp32", "none"))
    found = advice("accuracy in bf16", build.study(tune=tune))
    assert (found.choice, found.phrase) == ("not used", "")


def test_one_replica_has_nothing_to_share_out() -> None:
    """On one GPU all strategies are one process in other words: none of them may be as good."""
    timed = build.strategy_results({"serial": 0.2, "dp": 0.2, "ddp": 0.199}, own=0.1)
    alone = tuple(replace(each, replicas=1) for each in timed.variants)
    found = advice("strategy", build.study(strategies=replace(timed, variants=alone)))
    assert (found.choice, found.decided) == ("serial", True)
    assert found.sure == "no strategy was timed on two or more replicas"


def loader(seconds: dict[tuple[str, int], float], own: float = 0.01) -> Advice:
    return advice("loader", build.study(loader=build.loader_results(loading=seconds, own=own)))


def test_the_way_of_loading_with_which_a_step_is_fastest() -> None:
    """Whatever loading alone says: there, jpeg is 25 times as slow as packed."""
    found = advice("loader")
    assert (found.choice, found.decided) == ("packed with no workers", True)
    assert "1.3" in found.buys and "jpeg with no workers" in found.buys
    assert "waits 2.5%" in found.sure
    assert "jpeg with 2 workers" in found.changes and "1.1" in found.changes
    with_workers = loader({("jpeg", 0): 0.3, ("jpeg", 2): 0.2, ("packed", 0): 0.29})
    assert (with_workers.choice, with_workers.changes) == ("jpeg with 2 workers", "")
    without_the_usual = loader({("packed", 0): 0.3, ("packed", 2): 0.2})
    assert without_the_usual.buys.startswith("nothing to compare it with")


@pytest.mark.parametrize(
    ("seconds", "simplest"),
    [
        ({("jpeg", 0): 0.201, ("packed", 0): 0.2, ("resident", 0): 0.199}, "jpeg with no workers"),
        ({("jpeg", 0): 0.3, ("packed", 2): 0.2, ("resident", 0): 0.201}, "resident with no workers"),
    ],
)
def test_the_simplest_of_the_ways_of_loading_that_are_as_good(
    seconds: dict[tuple[str, int], float], simplest: str
) -> None:
    found = loader(seconds)
    assert (found.choice, found.decided) == (simplest, True)
    assert not loader(seconds, own=0.2).decided


def test_what_params_refuse_is_not_advised() -> None:
    """No decoding of augmented images, and no more parts of a step than it has episodes."""
    settings, own = build.loader_results(loading={("jpeg", 0): 0.2, ("packed", 0): 0.2}), build.params()
    augmented = replace(own, augment=replace(own.augment, flip=True))
    assert advice("loader", build.study(loader=settings), augmented).choice == "packed with no workers"
    ways = {("jpeg", 0): 0.2, ("packed", 0): 0.2, ("packed", 2): 0.199}
    noisy = build.loader_results(loading=ways, own=0.2)
    found = advice("loader", build.study(loader=noisy), augmented)
    assert (found.choice, found.decided) == ("packed with no workers", False)  # the simplest, by no luck
    small = build.study(batchsz=build.batchsz_results(reached={2: 0.42, 30: 0.36, 60: 0.39}))
    in_parts = replace(own, train=replace(own.train, accumulate=4))
    assert advice("batch size", small, in_parts).settings["train.accumulate"] == 2
    assert "train.accumulate" not in advice("batch size", small).settings


def test_all_of_it_is_what_was_measured_of_both_ways() -> None:
    assert two_ways(analyse(build.study(), build.params()), 2) == build.gain_results().ways
    assert two_ways(analyse(build.study(strategies=None), build.params()), 2) == ()
    found = advice("all of it")
    assert found.decided and "4.0" in found.buys and "576 episodes" in found.buys
    assert "ddp on 2 replicas, packed with no workers, bf16 with pairing split" in found.sure
    assert "one process with 2 threads, jpeg with no workers, fp32 with pairing concat" in found.buys
    even = build.gain_results({"default": 0.19, "advised": 0.19})
    assert not advice("all of it", build.study(gain=even)).decided
    assert advice("all of it", build.study(gain=None, missing={"gain": "run it"})).sure == "run it"
    assert "dvc repro" in advice("all of it", build.study(gain=GainResults((), ()))).sure
    worse = build.study(training=trainings(-0.1, -0.11, -0.12))  # ddp was measured before seeds showed that
    assert "not what is advised now" in advice("all of it", worse).sure
    assert analyse(worse, build.params()).gain == () and analyse(build.study(), build.params()).gain
    assert "left out for its accuracy, over seeds: ddp" in advice("strategy", worse).sure


def test_where_bf16_costs_accuracy_fp32_is_advised_and_no_gain_of_bf16() -> None:
    lossy = build.study(batchsz=build.batchsz_results(in_fp32=(0.05, 0.051, 0.049, 0.05, 0.052)))
    found = advice("computing", lossy)
    assert found.choice == "fp32 with pairing split" and "left out for its accuracy" in found.sure
    assert "bf16 is left out for its accuracy" in advice("all of it", lossy).sure
    assert analyse(lossy, build.params()).settings["train.precision"] == "fp32"


def test_settings_follow_all_of_the_advice_that_is_decided() -> None:
    study = analyse(build.study(), build.params())
    assert study.settings == {
        "parallel.ddp.enabled": True,
        "parallel.dp.enabled": False,
        "loader.backend": "packed",
        "loader.workers": 0,
        "train.precision": "bf16",
        "model.pairing": "split",
        "train.compile": "none",
        "train.batchsz": 30,
        "train.lr_scaling": "sqrt",
        "train.schedule": "cosine",
    }
    undecided = build.batchsz_results(reached={2: 0.36, 30: 0.40, 60: 0.42})
    settings = analyse(build.study(batchsz=undecided), build.params()).settings
    assert not any(key in settings for key in ("train.batchsz", "train.lr_scaling", "train.schedule"))


@pytest.mark.parametrize(
    ("reached", "choice", "decided", "words"),
    [
        ({2: 0.42, 30: 0.36, 60: 0.39}, "2", True, "60 lacks"),
        ({2: 0.36, 30: 0.415, 60: 0.42}, "30", True, "within 2 points of the best"),
        ({2: 0.36, 30: 0.40, 60: 0.42}, "30", False, "60 may be as good; .*60 minus with 30: [+]2.0 points"),
    ],
)
def test_the_batch_size_that_learns_most_in_the_same_time(
    reached: dict[int, float], choice: str, decided: bool, words: str
) -> None:
    """The baseline where it is as good, and while luck may explain the difference."""
    found = advice("batch size", build.study(batchsz=build.batchsz_results(reached=reached)))
    assert (found.choice, found.decided) == (choice, decided)
    assert re.search(f"{words}.*gradient noise scale", found.sure)
    assert found.phrase == f"take {choice} episodes per step", "16 are in use, which nothing was measured of"


def test_a_step_is_computed_as_it_was_chosen() -> None:
    found = advice("computing")
    assert (found.choice, found.decided) == ("bf16 with pairing split", True)
    assert "2.6" in found.buys and "fp32 with pairing concat" in found.buys
    plain = build.tune_results({("concat", "fp32"): 0.3, ("concat", "bf16"): 0.3})
    plain = replace(plain, choices=Choices("concat", "fp32", "none"))
    found_plain = advice("computing", build.study(tune=plain))
    assert (found_plain.buys, found_plain.decided) == ("nothing was shown to be more than 5% faster", True)
    in_bf16 = build.tune_results({("concat", "bf16"): 0.3, ("split", "bf16"): 0.1})  # fp32 was not open
    assert "as fast as bf16 with pairing concat" in advice("computing", build.study(tune=in_bf16)).buys
    noisy = build.tune_results({("split", "fp32"): 0.28, ("concat", "fp32"): 0.3}, own=0.3)
    found = advice("computing", build.study(tune=replace(noisy, choices=Choices("split", "fp32", "none"))))
    assert not found.decided and found.sure.startswith("undecided")
    compiled = (replace(each, compile="default", seconds=each.seconds / 2) for each in plain.blocks)
    not_repaid = replace(plain, blocks=(*plain.blocks, *compiled))
    told = advice("computing", build.study(tune=not_repaid)).sure
    assert told.startswith(found_plain.sure) and "does not repay compiling" in told
    fixed = replace(plain, blocks=())
    assert "auto" in advice("computing", build.study(tune=fixed)).sure
