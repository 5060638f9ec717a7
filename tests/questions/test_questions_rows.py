"""Rows of the tables, against numbers computed by hand."""

from __future__ import annotations

from dataclasses import replace
from statistics import geometric_mean

import numpy as np
import pytest
import study_builder as build

from parashot.errors import RecordError
from parashot.questions.accuracy.rows import compare, comparisons
from parashot.questions.batchsz import records
from parashot.questions.batchsz.rows import batchsz_rows, noise_scale, size_rows
from parashot.questions.loader.records import LoaderBlock
from parashot.questions.loader.rows import loader_rows
from parashot.questions.statistics import CONFIDENCE
from parashot.questions.strategies.records import StrategyResults
from parashot.questions.strategies.rows import StrategyRow, strategy_rows
from parashot.questions.study import analyse


def loader_blocks(workers: int, seconds: list[float], backend: str = "jpeg") -> list[LoaderBlock]:
    return [
        LoaderBlock(number, backend, workers, 30, 10, each, 0.1 * (number + 1), 1000 + number)
        for number, each in enumerate(seconds)
    ]


def test_loader_row_by_hand() -> None:
    none, four, packed = loader_rows(
        loader_blocks(0, [4.0, 4.2, 4.4])
        + loader_blocks(4, [2.0, 2.1, 2.2])
        + loader_blocks(4, [1, 1, 1], "packed"),
        CONFIDENCE,
    )
    assert (none.backend, none.workers, four.workers, packed.backend) == ("jpeg", 0, 4, "packed")
    assert none.speedup and none.speedup.value == 1 and none.efficiency and none.efficiency.value == 1
    assert four.seconds_per_batch.value == pytest.approx(0.21)
    assert four.episodes_per_second.low == pytest.approx(30 / four.seconds_per_batch.high)
    assert four.speedup and four.efficiency
    assert (four.speedup.low, four.speedup.value, four.speedup.high) == pytest.approx((2, 2, 2))
    assert four.efficiency.value == pytest.approx(0.5)
    assert four.first_batch_seconds == pytest.approx(0.2) and four.memory_bytes == 1002 and four.blocks == 3
    assert packed.speedup is None and packed.efficiency is None, "its base case was not measured"


def test_a_lone_block_is_an_error_in_one_line() -> None:
    with pytest.raises(RecordError, match=r"at least 2 timed blocks .* run `dvc repro -f`"):
        loader_rows(loader_blocks(3, [1.0]), CONFIDENCE)


def rows(bench: StrategyResults | None, **trainings: object) -> dict[str, StrategyRow]:
    found = strategy_rows(bench, trainings or build.study().training, CONFIDENCE)  # type: ignore[arg-type]
    return {row.variant: row for row in found}


def test_strategy_rows_by_hand() -> None:
    bench = build.strategy_results()
    found = rows(bench)
    assert list(found) == ["serial", "serial-all-cores", "dp", "ddp"]

    def steps(name: str) -> list[float]:
        return [block.seconds / block.steps for block in bench.blocks if block.variant == name]

    ddp, speedup = np.median(steps("ddp")), geometric_mean(steps("serial")) / geometric_mean(steps("ddp"))
    row = found["ddp"]
    assert row.seconds_per_step and row.episodes_per_second and row.speedup and row.efficiency
    assert row.seconds_per_step.value == pytest.approx(ddp)
    assert row.episodes_per_second.value == pytest.approx(16 / ddp)
    assert row.speedup.value == pytest.approx(speedup)
    assert row.efficiency.value == pytest.approx(speedup / 2)
    assert row.blocks == build.ROUNDS
    shares = (row.communication_exposed, row.communication_hidden, row.idle)
    assert shares == pytest.approx((0.05, 0.15, 0.02))
    assert row.training_seconds == 20.1 and row.training_status == "ok"
    alone = found["serial-all-cores"]
    assert (alone.training_status, alone.val_accuracy, alone.threads_per_replica) == ("", None, 2)
    assert alone.speedup and alone.efficiency and alone.efficiency.value == alone.speedup.value / 2


def test_a_slower_strategy_says_where_the_time_goes() -> None:
    found = rows(build.strategy_results({"serial": 0.1, "dp": 0.2, "ddp": 0.09}))
    assert "20.0% in messages not hidden and 20.0% idle" in found["dp"].why_slow
    assert found["ddp"].why_slow == found["serial"].why_slow == ""


def test_skipped_strategies_keep_their_reason_and_no_numbers_but_those_of_a_training() -> None:
    skipped = build.skipped_training("ddp", "one GPU")
    row = rows(build.strategy_results(skipped={"ddp": "one GPU"}), ddp=skipped)["ddp"]
    assert (row.status, row.reason, row.training_status) == ("skipped", "one GPU", "skipped")
    assert {row.seconds_per_step, row.speedup, row.val_accuracy, row.training_seconds} == {None}
    ddp = rows(build.strategy_results(skipped={"serial": "switched off"}))["ddp"]
    assert ddp.seconds_per_step and ddp.speedup is None and ddp.efficiency is None
    [row] = rows(None, dp=build.training("dp")).values()
    assert (row.variant, row.status, row.training_status) == ("dp", "skipped", "ok")
    assert row.val_accuracy and "not timed" in row.reason


def batchsz_blocks(size: int, seconds: list[float], synchronised: bool = True) -> list[records.BatchszBlock]:
    of_size = (size, synchronised, 60, 60 // size)
    return [records.BatchszBlock(number, *of_size, each) for number, each in enumerate(seconds)]


def test_batchsz_rows_by_hand() -> None:
    runs = (
        records.BatchszRun(30, "ok", "", 2, 8.0, None, 600, 600, 8.0, 0.4, 0.01),
        records.BatchszRun(2, "stopped", "over 8 s", 2, 8.0, 8.0, 150, 600, 32.0, None, None),
        records.BatchszRun(60, "skipped", "one GPU", 0, None, None, 0, 600, None, None, None),
    )
    blocks = (
        batchsz_blocks(30, [0.60, 0.66, 0.72])
        + batchsz_blocks(30, [0.45, 0.495, 0.54], synchronised=False)
        + batchsz_blocks(2, [2.4, 2.64, 2.88])
    )
    small, base, skipped = batchsz_rows(records.BatchszResults(runs, tuple(blocks)), 30, CONFIDENCE)
    assert (small.batchsz, base.batchsz) == (2, 30)
    assert base.seconds_per_episode and base.seconds_per_episode.value == pytest.approx(0.011)
    assert base.communication_share and base.communication_share.value == pytest.approx(0.25)
    assert base.speedup and base.speedup.value == 1 and base.run_speedup == 1
    assert small.speedup and small.speedup.value == pytest.approx(0.25)
    assert small.run_speedup == pytest.approx(0.25), "8 s of the baseline over 32 s projected"
    assert small.communication_share is None, "its blocks without exchange are missing"
    assert small.limit_seconds == 8.0 and small.reason == "over 8 s"
    assert (skipped.status, skipped.reason) == ("skipped", "one GPU")
    assert {skipped.seconds, skipped.projected_seconds, skipped.run_speedup, skipped.speedup} == {None}
    blocks = batchsz_blocks(30, [0.60, 0.60]) + batchsz_blocks(30, [0.66, 0.66], synchronised=False)
    (base,) = batchsz_rows(records.BatchszResults(runs[:1], tuple(blocks)), 30, CONFIDENCE)
    share = base.communication_share
    assert share and share.value == pytest.approx(-0.1), "what is below nothing is kept"


def test_accuracy_is_compared_episode_by_episode_and_a_twin_tells_what_rounding_does() -> None:
    shifted, dp = build.training("ddp", shift=np.full(600, 0.05)), build.training("dp")
    outcome = compare(shifted, dp, build.params().claims)
    assert outcome and outcome.verdict == "undecided" and outcome.over == "episodes, of these two networks"
    assert outcome.episodes == 600 and outcome.seeds == 1
    assert outcome.difference.value == pytest.approx(0.05)
    assert outcome.difference.high - outcome.difference.low < 1e-9, "what both share cancels out"
    assert compare(replace(shifted, val_episodes=()), dp, build.params().claims) is None
    twin = replace(dp, twin=build.training("dp", shift=np.full(600, 0.01)).val_episodes)
    rounded = compare(shifted, twin, build.params().claims)
    assert outcome.rounding is None and rounded and rounded.rounding == pytest.approx(0.01)


def test_every_training_is_compared_with_serial_and_ddp_with_dp() -> None:
    *found, of_precision = analyse(build.study(), build.params()).accuracy
    assert (of_precision.first, of_precision.second, of_precision.seeds) == ("bf16", "fp32", 5)
    assert [(row.first, row.second) for row in found] == [("dp", "serial"), ("ddp", "serial"), ("ddp", "dp")]
    assert all(row.verdict == "undecided" and row.episodes == 600 for row in found)
    trainings = {name: build.training(name) for name in ("serial", "dp", "ddp")}
    by_gradient = comparisons(trainings, "serial", build.params().claims, ["dp"])  # in the same order
    assert [row.verdict for row in by_gradient] == ["one algorithm", "undecided", "undecided"]


def test_the_noise_scale_of_gradients_whose_noise_is_known() -> None:
    found = noise_scale(build.gradients(200), CONFIDENCE)
    assert found is not None
    assert found.low < 12 < found.high and found.value == pytest.approx(12, rel=0.25)
    pure = [records.GradientSample(number, 1.0, 1 / 40) for number in range(40)]  # orthogonal to each other
    assert noise_scale(pure, CONFIDENCE) is None


def test_the_time_to_a_target_is_that_of_the_median_seed_which_trained_again() -> None:
    """Accuracies of 3 seeds in 1, 2 and 4 s; equal time is the first."""
    accuracies = {2: [(0.3, 0.5), (0.2, 0.3, 0.5), (0.5,)], 8: [(0.5,), (0.1, 0.2, 0.3), (0.1, 0.2, 0.3)]}
    trainings = [
        records.BatchszTraining(size, seed, float(2**turn), 10, 80, 0.001, reached)
        for size, seeds in accuracies.items()
        for seed, turns in enumerate(seeds)
        for turn, reached in enumerate(turns)
    ]
    small, large = size_rows(trainings, 8, 0.4, CONFIDENCE)
    assert (small.seconds_to_target, large.seconds_to_target) == (2.0, None)
    assert small.seeds == 3 and small.val_accuracy and small.val_accuracy.value == pytest.approx(1 / 3)
    assert {each.seconds_to_target for each in size_rows(trainings, 8, None, CONFIDENCE)} == {None}
