"""Synthetic records that force every verdict of every claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import study_builder as build

from parashot.questions.accuracy.records import WarmupRun
from parashot.questions.claim import Claim
from parashot.questions.ledger import CLAIMS
from parashot.questions.results import StudyResults
from parashot.questions.strategies.records import StepShares
from parashot.questions.study import analyse

MIB = build.MIB
CANNOT = "cannot be tested here"
UNDECIDED_NOISE = 0.3


def judge(claim: str, results: StudyResults, **sections: object) -> Claim:
    study = analyse(results, replace(build.params(), **sections))  # type: ignore[arg-type]
    return next(each for each in study.claims if each.id == claim)


def jpeg(seconds: dict[int, float], **options: float) -> StudyResults:
    return build.study(loader=build.loader_results({"jpeg": seconds}, **options))  # type: ignore[arg-type]


def steps(own: float = 0.01, **seconds: float) -> StudyResults:
    return build.study(strategies=build.strategy_results({**build.STEPS, **seconds}, own=own))


def trainings(**changes: dict[str, object]) -> StudyResults:
    names = ("serial", "dp", "ddp")
    return build.study(training={name: build.training(name, **changes.get(name, {})) for name in names})  # type: ignore[arg-type]


def shifted(by: float, gradient_difference: float = 0.1) -> StudyResults:
    shift = by + 0.004 * np.random.default_rng(1).standard_normal(600)
    strategies = build.strategy_results(gradient_difference=gradient_difference)
    return replace(trainings(ddp={"shift": shift}), strategies=strategies)


def on_40_threads(results: StudyResults) -> StudyResults:
    return replace(results, hardware=replace(build.HARDWARE, threads=40))


def on_gpus(*names: str) -> StudyResults:
    """A machine with these GPUs, on which nothing was trained."""
    return build.study(hardware=replace(build.HARDWARE, gpus=names), training={})


def gpus(dp: tuple[int, ...], ddp: tuple[int, ...] = (300, 300)) -> StudyResults:
    """Trainings on GPUs that allocated so many MiB."""
    memory: dict[str, dict[str, object]] = {
        name: {"device": "cuda", "memory_by_device": tuple(each * MIB for each in own)}
        for name, own in (("dp", dp), ("ddp", ddp))
    }
    return trainings(**memory)


def batchsz(small: float = 0.05, large: float = 0.0105, **options: object) -> StudyResults:
    sizes = {2: small, 30: 0.0125, 60: large}
    return build.study(batchsz=build.batchsz_results(sizes, **options))  # type: ignore[arg-type]


def without_ddp() -> StudyResults:
    reason = "gloo is not available"
    return build.study(
        strategies=build.strategy_results(skipped={"ddp": reason}),
        training={"dp": build.training("dp"), "ddp": build.skipped_training("ddp", reason)},
    )


def hidden(*shares: float) -> StudyResults:
    """DDP's steps, of which messages take a fifth; of that time `shares`, one per step, are hidden."""
    results = build.strategy_results()
    seen = [
        StepShares("ddp", rank, step, 0.2, 0.2 * (1 - share), 0.2 * share, 0.0)
        for rank in range(2)
        for step, share in enumerate(shares)
    ]
    return build.study(strategies=replace(results, shares=tuple(seen)))


def warmed(usual: float, large: float, spread: float = 0.002) -> StudyResults:
    """Accuracy that warm-up brings at batchsz 8 and at 64, in three trainings each."""
    return build.study(
        warmup=tuple(
            WarmupRun(size, seed, steps, 20, 0.003, 0.4 + (gain + luck if steps else 0))
            for size, gain in ((8, usual), (64, large))
            for seed, luck in enumerate((-spread, 0.0, spread))
            for steps in (0, 4)
        )
    )


def seeded(difference: float, spread: float) -> StudyResults:
    """DDP's accuracy against DP's over three seeds, 50 episodes each."""
    whole = build.study()
    luck = (0.0, 0.05, -0.03)
    ddp = (each + difference + wide for each, wide in zip(luck, (-spread, 0, spread), strict=True))
    found = {
        name: build.with_seeds(whole.training[name], gains, episodes=50)
        for name, gains in (("dp", luck), ("ddp", [*ddp]))
    }
    return replace(whole, training={**whole.training, **found})


# The machine of these records has 2 threads: 2 workers are "about as many", 4 and 7 are "far more".
CASES: list[tuple[str, str, Callable[[], StudyResults]]] = [
    ("loader-optimum", "holds", lambda: jpeg({0: 0.2, 1: 0.15, 2: 0.1, 4: 0.15})),
    ("loader-optimum", "does not hold", lambda: jpeg({0: 0.1, 1: 0.15, 2: 0.2, 4: 0.3})),
    ("loader-optimum", "undecided", lambda: jpeg({0: 0.2, 2: 0.1, 4: 0.1001})),
    ("loader-optimum", CANNOT, lambda: jpeg({0: 0.2, 1: 0.15, 4: 0.1})),
    ("loader-optimum", CANNOT, lambda: build.study(hardware=None)),
    ("loader-few", "holds", lambda: on_40_threads(jpeg({0: 0.1, 2: 0.2}))),
    ("loader-few", "does not hold", lambda: on_40_threads(jpeg({0: 0.2, 2: 0.1}))),
    ("loader-few", "undecided", lambda: on_40_threads(jpeg({0: 0.1, 2: 0.1}, own=UNDECIDED_NOISE))),
    ("loader-few", CANNOT, lambda: jpeg({0: 0.1, 2: 0.2})),  # of 2 threads
    ("loader-few", CANNOT, lambda: on_40_threads(jpeg({1: 0.1, 2: 0.1}))),
    ("loader-many", "holds", lambda: jpeg({0: 0.2, 2: 0.1, 7: 0.3})),
    ("loader-many", "does not hold", lambda: jpeg({0: 0.2, 2: 0.1, 7: 0.05})),
    ("loader-many", CANNOT, lambda: jpeg({0: 0.2, 2: 0.1, 3: 0.3})),
    ("loader-memory", "holds", lambda: jpeg({0: 0.2, 2: 0.1, 4: 0.1})),
    ("loader-memory", "does not hold", lambda: jpeg({0: 0.2, 2: 0.1, 4: 0.1}, memory_per_worker=-2 * MIB)),
    ("loader-memory", "undecided", lambda: jpeg({0: 0.2, 2: 0.1, 4: 0.1}, memory_per_worker=0)),
    ("loader-memory", CANNOT, lambda: jpeg({0: 0.2})),
    ("ddp-beats-dp", "holds", lambda: steps(dp=0.25, ddp=0.2)),
    ("ddp-beats-dp", "does not hold", lambda: steps(dp=0.2, ddp=0.25)),
    ("ddp-beats-dp", "undecided", lambda: steps(own=UNDECIDED_NOISE, dp=0.2, ddp=0.2)),
    ("ddp-beats-dp", CANNOT, without_ddp),
    ("ddp-beats-dp", CANNOT, lambda: build.study(strategies=build.strategy_results(replicas=1))),
    ("accuracy-parity", "holds", lambda: shifted(-0.05, gradient_difference=3e-15)),
    ("accuracy-parity", "undecided", lambda: shifted(-0.05)),  # of two networks, not of two strategies
    ("accuracy-parity", CANNOT, without_ddp),
    ("accuracy-parity", "holds", lambda: seeded(0.001, 0.002)),
    ("accuracy-parity", "does not hold", lambda: seeded(0.08, 0.002)),
    ("accuracy-parity", "undecided", lambda: seeded(0.001, 0.03)),
    ("small-batch", "holds", batchsz),
    ("small-batch", "does not hold", lambda: batchsz(small=0.010, stopped=())),
    ("small-batch", "undecided", lambda: batchsz(stopped=())),  # slower in blocks, yet it finished
    ("small-batch", CANNOT, lambda: build.study(batchsz=build.skipped_batchsz())),
    ("large-batch", "holds", batchsz),
    ("large-batch", "does not hold", lambda: batchsz(large=0.02)),
    ("large-batch", CANNOT, lambda: build.study(batchsz=None)),
    ("dp-imbalance", "holds", lambda: gpus((500, 300))),
    ("dp-imbalance", "does not hold", lambda: gpus((300, 300))),
    ("dp-imbalance", CANNOT, build.study),
    ("ddp-memory", "holds", lambda: gpus((300, 200))),
    ("ddp-memory", "does not hold", lambda: gpus((500, 400))),
    ("ddp-memory", "holds", lambda: trainings(ddp={"peak_memory_bytes": 1200 * MIB})),
    ("ddp-memory", "does not hold", lambda: trainings(ddp={"peak_memory_bytes": 600 * MIB})),
    ("ddp-memory", "undecided", lambda: trainings(ddp={"peak_memory_bytes": 810 * MIB})),
    ("ddp-memory", CANNOT, lambda: gpus((300,))),
    ("overlap", "holds", lambda: hidden(0.7, 0.8, 0.75)),
    ("overlap", "does not hold", lambda: hidden(0.0, 0.02, 0.01)),
    ("overlap", "undecided", lambda: hidden(0.0, 0.1, 0.3)),
    ("overlap", CANNOT, hidden),
    ("comm-share", "holds", lambda: batchsz(share={2: 0.5, 30: 0.2, 60: 0.1})),
    ("comm-share", "does not hold", lambda: batchsz(share={2: 0.1, 30: 0.2, 60: 0.5})),
    ("comm-share", CANNOT, lambda: build.study(batchsz=build.skipped_batchsz())),
    ("layer-split-sync", "holds", lambda: steps(layer_split=0.4)),
    ("layer-split-sync", "does not hold", lambda: steps(layer_split=0.1)),
    ("layer-split-sync", CANNOT, build.study),
    ("channel-split-sync", "holds", lambda: steps(channel_split=0.4)),
    ("channel-split-sync", CANNOT, build.study),
    ("warmup-large-only", "holds", lambda: warmed(0.0, 0.1)),
    ("warmup-large-only", "does not hold", lambda: warmed(0.0, 0.0)),
    ("warmup-large-only", "does not hold", lambda: warmed(0.1, 0.1)),
    ("warmup-large-only", "undecided", lambda: warmed(0.0, 0.1, spread=0.1)),
    ("warmup-large-only", "undecided", lambda: warmed(0.015, 0.1, spread=0.01)),
    ("warmup-large-only", CANNOT, build.study),
    ("threads-gil", "holds", lambda: steps(dp=0.5)),
    ("threads-gil", "does not hold", lambda: steps(dp=0.25)),
    ("threads-gil", CANNOT, lambda: gpus((300, 300))),
    ("threads-gil", "does not hold", lambda: build.study(training={})),
    ("threads-gil", CANNOT, lambda: on_gpus("A", "B")),
    ("copy-overlap", "holds", lambda: on_gpus("A card")),
    ("copy-overlap", CANNOT, build.study),
    ("ddp-sync", "holds", build.study),
    ("ddp-sync", "does not hold", lambda: trainings(ddp={"ranks_identical": False})),
    ("ddp-sync", CANNOT, lambda: trainings(ddp={"ranks_identical": None})),
]


@pytest.mark.parametrize(
    ("claim", "verdict", "make"), CASES, ids=[f"{claim}={verdict}" for claim, verdict, _ in CASES]
)
def test_records_force_the_verdict(claim: str, verdict: str, make: Callable[[], StudyResults]) -> None:
    found = judge(claim, make())
    assert found.verdict == verdict, (found.measured, found.reason)
    assert found.reason and "\n" not in found.reason
    assert (found.measured == "not measured") == (verdict == CANNOT)


BY_TEST = {
    "ddp-workers-zero": "does not hold",
    "concat-serial": "does not hold",
    "accumulation-equals": "holds",
    "checkpointing-trades": "holds",
}
"""Claims that an equality settles, whatever was measured."""


def test_every_verdict_of_every_claim_is_tried() -> None:
    assert {claim for claim, _, _ in CASES} | BY_TEST.keys() == {claim.id for claim in CLAIMS}
    assert len({claim.id for claim in CLAIMS}) == 22


def test_without_any_results_only_tests_decide() -> None:
    claims = analyse(StudyResults(missing={"loader": "no file"}), build.params()).claims
    assert {claim.id: claim.verdict for claim in claims} == dict.fromkeys(
        (claim.id for claim in CLAIMS), CANNOT
    ) | BY_TEST
    assert claims[0].reason == "no file"
    tests = {claim.id: claim.reason.split(": ")[1] for claim in claims if "shown by a test" in claim.reason}
    assert tests.keys() == BY_TEST.keys()
    assert all((Path(__file__).parents[2] / path).is_file() for path in tests.values())


def test_params_decide_where_records_do_not() -> None:
    """By the groups of batch norm, and by the device where nothing was trained."""
    params = build.params()
    plain, cpu = replace(params.model, norm_episodes=0), replace(params.parallel, device="cpu")
    assert judge("accumulation-equals", StudyResults(), model=plain).verdict == "does not hold"
    assert judge("threads-gil", on_gpus("A", "B"), parallel=cpu).verdict == "does not hold"


def test_numbers_and_reasons_are_those_of_the_records() -> None:
    for claim in ("ddp-beats-dp", "ddp-sync"):
        assert "gloo is not available" in judge(claim, without_ddp()).reason
    found = judge("ddp-beats-dp", steps(own=0, dp=0.3, ddp=0.2))
    assert "1.50× (1.50 to 1.50)" in found.measured and "dp stands in" in found.reason


def test_sizes_other_than_the_study_s_are_named_and_a_single_one_has_nothing_to_compare() -> None:
    results = build.study(batchsz=build.batchsz_results({8: 0.02, 30: 0.0125, 120: 0.01}, stopped=(8,)))
    lone = build.study(batchsz=build.batchsz_results({30: 0.0125}, stopped=()))
    for claim, size, theirs in (("small-batch", 8, 2), ("large-batch", 120, 60)):
        found = judge(claim, results)
        assert found.measured.startswith(f"batchsz {size}:") and found.verdict == "holds"
        assert f"{size} and 30 stand in for {theirs} and 30" in found.reason
        assert judge(claim, lone).verdict == CANNOT
