"""Rows of the tables, against numbers computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import study_builder as build

from parashot.errors import RecordError
from parashot.questions.accuracy.compare import compare_accuracy, episode_accuracy
from parashot.questions.batchsz.records import BatchszBlock, BatchszRun
from parashot.questions.batchsz.rows import batchsz_rows
from parashot.questions.loader.records import LoaderBlock
from parashot.questions.loader.rows import loader_rows
from parashot.questions.results import BatchszResults, StudyResults
from parashot.questions.statistics import Resampling
from parashot.questions.strategies.comparison import comparison_rows
from parashot.questions.strategies.records import StrategyBlock
from parashot.questions.strategies.rows import strategy_rows

RESAMPLING = Resampling(0.95, 500)


def loader_blocks(workers: int, seconds: list[float], backend: str = "jpeg") -> list[LoaderBlock]:
    return [
        LoaderBlock(number, backend, workers, 30, 10, each, 0.1 * (number + 1), 1000 + number)
        for number, each in enumerate(seconds)
    ]


def test_loader_row_by_hand() -> None:
    rows = loader_rows(
        loader_blocks(0, [4.0, 4.2, 4.4])
        + loader_blocks(4, [2.0, 2.1, 2.2])
        + loader_blocks(4, [1, 1, 1], "packed"),
        RESAMPLING,
    )
    none, four, packed = rows
    assert (none.backend, none.workers, four.workers, packed.backend) == ("jpeg", 0, 4, "packed")
    assert none.speedup and none.speedup.value == 1 and none.efficiency and none.efficiency.value == 1
    assert four.seconds_per_batch.value == pytest.approx(0.21)
    assert four.episodes_per_second.value == pytest.approx(30 / 0.21)
    assert four.episodes_per_second.low == pytest.approx(30 / four.seconds_per_batch.high)
    assert four.speedup and four.efficiency
    assert (four.speedup.low, four.speedup.value, four.speedup.high) == pytest.approx((2, 2, 2))
    assert four.efficiency.value == pytest.approx(0.5)
    assert four.first_batch_seconds == pytest.approx(0.2) and four.memory_bytes == 1002 and four.blocks == 3
    assert packed.speedup is None and packed.efficiency is None, "its base case was not measured"


def test_a_lone_block_is_an_error_in_one_line() -> None:
    with pytest.raises(RecordError, match=r"one block of jpeg with 3 workers.*loader-bench") as error:
        loader_rows(loader_blocks(3, [1.0]), RESAMPLING)
    assert "\n" not in str(error.value)


def test_strategy_rows_by_hand() -> None:
    rows = {row.variant: row for row in strategy_rows(build.study(), RESAMPLING)}
    assert list(rows) == ["serial", "serial-all-cores", "dp", "ddp"]
    blocks = build.strategy_results().blocks
    ddp, serial = (
        np.median([block.seconds / block.steps for block in blocks if block.variant == name])
        for name in ("ddp", "serial")
    )
    row = rows["ddp"]
    assert row.seconds_per_step and row.episodes_per_second and row.speedup and row.efficiency
    assert row.seconds_per_step.value == pytest.approx(ddp)
    assert row.episodes_per_second.value == pytest.approx(16 / ddp)
    assert row.speedup.value == pytest.approx(serial / ddp)
    assert row.efficiency.value == pytest.approx(serial / ddp / 2)
    assert row.base == "serial" and row.blocks == build.ROUNDS
    assert row.training_seconds == 20.1 and row.training_status == "ok" and row.ranks_identical is True
    assert rows["serial"].speedup and rows["serial"].speedup.high == 1
    assert rows["serial-all-cores"].training_status == "" and rows["serial-all-cores"].val_accuracy is None
    assert rows["serial-all-cores"].threads_per_replica == 2


def test_skipped_strategies_keep_their_reason_and_no_numbers() -> None:
    results = build.study(
        strategies=build.strategy_results(skipped={"ddp": "one GPU"}),
        training={"serial": build.training("serial"), "ddp": build.skipped_training("ddp", "one GPU")},
    )
    row = next(row for row in strategy_rows(results, RESAMPLING) if row.variant == "ddp")
    assert (row.status, row.reason, row.training_status) == ("skipped", "one GPU", "skipped")
    assert row.seconds_per_step is row.speedup is row.val_accuracy is row.training_seconds is None


def test_without_the_base_case_there_is_no_speedup() -> None:
    rows = strategy_rows(
        build.study(strategies=build.strategy_results(skipped={"serial": "switched off"})), RESAMPLING
    )
    ddp = next(row for row in rows if row.variant == "ddp")
    assert ddp.seconds_per_step and ddp.speedup is None and ddp.efficiency is None


def test_trainings_without_a_timed_step_have_rows() -> None:
    rows = strategy_rows(StudyResults(training={"dp": build.training("dp")}), RESAMPLING)
    assert [(row.variant, row.status, row.training_status) for row in rows] == [("dp", "skipped", "ok")]
    assert rows[0].val_accuracy and "not timed" in rows[0].reason


def test_one_block_of_a_strategy_is_an_error() -> None:
    bench = replace(build.strategy_results(), blocks=(StrategyBlock(0, "dp", 4, 1.0),))
    with pytest.raises(RecordError, match="one block of dp"):
        strategy_rows(build.study(strategies=bench), RESAMPLING)


def batchsz_blocks(size: int, seconds: list[float], synchronised: bool = True) -> list[BatchszBlock]:
    return [
        BatchszBlock(number, size, synchronised, 60, 60 // size, each) for number, each in enumerate(seconds)
    ]


def test_batchsz_rows_by_hand() -> None:
    runs = (
        BatchszRun(30, "ok", "", 2, 8.0, None, 600, 600, 8.0, 0.4, 0.01),
        BatchszRun(2, "stopped", "over 8 s", 2, 8.0, 8.0, 150, 600, 32.0, None, None),
    )
    blocks = (
        batchsz_blocks(30, [0.60, 0.66, 0.72])
        + batchsz_blocks(30, [0.45, 0.495, 0.54], synchronised=False)
        + batchsz_blocks(2, [2.4, 2.64, 2.88])
    )
    small, base = batchsz_rows(BatchszResults(runs, tuple(blocks)), 30, RESAMPLING)
    assert (small.batchsz, base.batchsz) == (2, 30)
    assert base.seconds_per_episode and base.seconds_per_episode.value == pytest.approx(0.011)
    assert base.communication_share and base.communication_share.value == pytest.approx(0.25)
    assert base.speedup and base.speedup.value == 1 and base.run_speedup == 1
    assert small.speedup and small.speedup.value == pytest.approx(0.25)
    assert small.run_speedup == pytest.approx(0.25), "8 s of the baseline over 32 s projected"
    assert small.communication_share is None, "its blocks without exchange are missing"
    assert small.limit_seconds == 8.0 and small.reason == "over 8 s"


def test_a_negative_share_of_communication_is_kept() -> None:
    runs = (BatchszRun(30, "ok", "", 2, 8.0, None, 600, 600, 8.0, None, None),)
    blocks = batchsz_blocks(30, [0.60, 0.60]) + batchsz_blocks(30, [0.66, 0.66], synchronised=False)
    (row,) = batchsz_rows(BatchszResults(runs, tuple(blocks)), 30, RESAMPLING)
    assert row.communication_share and row.communication_share.value == pytest.approx(-0.1)


def test_skipped_batch_sizes_have_no_numbers() -> None:
    runs = tuple(
        BatchszRun(size, "skipped", "one GPU", 0, 0, None, 0, 600, 0, None, None) for size in (2, 30)
    )
    for row in batchsz_rows(BatchszResults(runs, ()), 30, RESAMPLING):
        assert (row.status, row.reason) == ("skipped", "one GPU")
        assert row.seconds is row.projected_seconds is row.run_speedup is row.speedup is None


def test_accuracy_is_compared_episode_by_episode() -> None:
    shifted = build.training("ddp", shift=np.full(600, 0.05))
    outcome = compare_accuracy(shifted, build.training("dp"), 0.02, 0.95)
    assert outcome and outcome.verdict == "different" and outcome.episodes == 600
    assert outcome.difference.value == pytest.approx(0.05)
    assert outcome.difference.high - outcome.difference.low < 1e-9, "what both share cancels out"


def test_accuracy_of_other_episodes_is_not_compared() -> None:
    others = replace(build.training("ddp"), val_episodes=())
    assert compare_accuracy(others, build.training("dp"), 0.02, 0.95) is None


def test_episode_accuracy_agrees_with_the_record() -> None:
    training = build.training("dp")
    interval = episode_accuracy(training.val_episodes)
    assert interval.value == pytest.approx(training.result.val_accuracy)
    assert interval.high - interval.value == pytest.approx(training.result.val_accuracy_ci95)


def test_table_1_counts_what_was_seen_and_cites_the_rest() -> None:
    rows = {row.aspect: row for row in comparison_rows(build.study())}
    assert list(rows) == [
        "machines",
        "model over several GPUs",
        "communication",
        "kind of parallelism",
        "processes and threads",
    ]
    communication, processes = rows["communication"], rows["processes and threads"]
    assert communication.dp.startswith("per step 2 scatters and 2 gathers")
    assert communication.ddp.startswith("per step 3 all-reduces and 1 broadcast;")
    assert processes.dp == "the forward pass ran in 1 process and 2 threads in all"
    assert processes.ddp == "the forward pass ran in 2 processes and 2 threads in all"
    assert {communication.dp_origin, processes.ddp_origin} == {"measured"}
    assert {rows["machines"].dp_origin, rows["kind of parallelism"].ddp_origin} == {"cited"}
    assert rows["communication"].study_ddp == "scatter inputs, all-reduce"


def test_table_1_says_why_a_cell_was_not_measured() -> None:
    skipped = build.study(strategies=build.strategy_results(skipped={"dp": "needs two GPUs"}))
    communication = comparison_rows(skipped)[2]
    assert (communication.dp, communication.dp_origin) == ("needs two GPUs", "not measured")
    assert communication.ddp_origin == "measured"
    nothing = comparison_rows(StudyResults(missing={"strategies": "no such file"}))[2]
    assert (nothing.ddp, nothing.ddp_origin) == ("no such file", "not measured")
