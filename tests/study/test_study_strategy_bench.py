"""All strategies in one interleaved measurement, in miniature, on real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_data import tiny_params

from parashot.parallel.registry import STRATEGIES
from parashot.questions.strategies.measure import ALL_CORES, PER_PARAMETER, bench_strategies
from parashot.questions.strategies.records import StepTrace, StepShares, StrategyBlock, StrategyVariant
from parashot.records import read_json, read_rows

pytestmark = pytest.mark.usefixtures("one_core")


def test_every_strategy_is_timed_and_watched_beside_the_others(tiny_packed: Path, tmp_path: Path) -> None:
    enabled = {f"parallel.{name}.enabled": True for name in STRATEGIES}
    params = tiny_params(
        {**enabled, "train.batchsz": 4, "parallel.bench.blocks": 7, "parallel.bench.steps": 1}
    )
    bench_strategies(params, tiny_packed, tmp_path / "out", {})
    variants = read_rows(StrategyVariant, tmp_path / "out/variants.csv")
    assert {each.variant for each in variants} - {ALL_CORES} == {*STRATEGIES, PER_PARAMETER}
    assert {each.status for each in variants} == {"ok"}
    blocks = read_rows(StrategyBlock, tmp_path / "out/blocks.csv")
    order = [each.variant for each in blocks if each.round == 0]
    assert [each.variant for each in blocks] == order * 7  # interleaved: A B C A B C
    assert set(order) == {each.variant for each in variants}
    seen = {each.variant: each for each in read_rows(StepTrace, tmp_path / "out/anatomy.csv")}
    processes = {"serial": 1, "dp": 1}
    for name in STRATEGIES:
        assert seen[name].processes == processes.get(name, 2)
        assert (seen[name].bytes_sent > 0) is (name != "serial")
    assert seen["allreduce"].all_reduces == 1
    assert seen[PER_PARAMETER].all_reduces > 20
    assert seen["layer_split"].sends == 2
    assert seen["fsdp"].reduce_scatters >= 5
    shares = read_rows(StepShares, tmp_path / "out/shares.csv")
    assert {(each.variant, each.rank) for each in shares} >= {(name, 0) for name in STRATEGIES}
    metrics = read_json(tmp_path / "out/metrics.json")
    assert metrics["accumulation_difference_fixed"] < 1e-8 < metrics["accumulation_difference_training"]
    assert 0 < metrics["recompute_kept_ratio"] < 1
    assert metrics["ddp_workers_ok"] == 1
