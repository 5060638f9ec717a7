"""All strategies in one interleaved measurement, in miniature, on real processes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from small_tasks import NOWHERE
from tiny_data import tiny_params

from parashot.parallel.context import Placement
from parashot.parallel.registry import STRATEGIES
from parashot.parallel.strategy import StepOptions
from parashot.questions.strategies.measure import (
    ALL_CORES,
    ONE_GPU,
    PER_PARAMETER,
    Benchmark,
    bench_strategies,
    list_variants,
)
from parashot.questions.strategies.records import StepShares, StepTrace, StrategyBlock, StrategyVariant
from parashot.recipes import Value
from parashot.records import Provenance, read_json, read_rows, read_runs
from parashot.tasks.relation import RelationTask

ENABLED: dict[str, Value] = {f"parallel.{name}.enabled": True for name in STRATEGIES}
SETTINGS: dict[str, Value] = {
    **ENABLED,
    "train.batchsz": 4,
    "parallel.bench.blocks": 7,
    "parallel.bench.steps": 1,
    "parallel.bench.warmup_steps": 1,
}


@pytest.mark.usefixtures("standing_launch", "one_core")
def test_every_strategy_is_timed_and_traced_beside_the_others(
    tiny_packed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    provenance = Provenance({"train.batchsz": "4"}, {"source": "tiny"})
    bench_strategies(tiny_params(SETTINGS), tiny_packed, tmp_path, provenance)
    variants = read_rows(StrategyVariant, tmp_path / "variants.csv")
    names = [each.variant for each in variants]
    assert set(names) == {*STRATEGIES, PER_PARAMETER}
    assert {each.status for each in variants} == {"ok"}
    blocks = read_rows(StrategyBlock, tmp_path / "blocks.csv")
    assert [(each.round, each.variant) for each in blocks] == [
        (number, name) for number in range(7) for name in names
    ]  # interleaved: A B C A B C
    assert all(each.seconds > 0 for each in blocks)

    traces = {each.variant: each for each in read_rows(StepTrace, tmp_path / "anatomy.csv")}
    for name in STRATEGIES:
        assert traces[name].processes == (1 if name in {"serial", "dp"} else 2)
        assert (traces[name].bytes_sent > 0) is (name != "serial")
    dp, flat = traces["dp"], traces["allreduce"]
    assert (dp.threads, dp.broadcasts, dp.scatters, dp.gathers, dp.reduces) == (2, 1, 1, 1, 1)
    assert (flat.all_reduces, flat.bytes_sent) == (1, flat.gradient_bytes)
    assert traces[PER_PARAMETER].all_reduces > 20
    assert traces["layer_split"].sends == 2
    assert traces["fsdp"].reduce_scatters == 5 <= traces["fsdp"].all_gathers
    assert {each.gradient_bytes for each in traces.values()} == {flat.gradient_bytes}

    shares = read_rows(StepShares, tmp_path / "shares.csv")
    assert {(each.variant, each.rank) for each in shares} == {
        *((name, 0) for name in names),
        *((name, 1) for name in names if name not in {"serial", "dp"}),
    }
    metrics = read_json(tmp_path / "metrics.json")
    assert set(metrics) == set(names)
    assert metrics["serial"]["speedup"] == 1
    assert metrics["ddp"]["bytes_sent"] == traces["ddp"].bytes_sent
    parent, *children = read_runs(tmp_path / "records.jsonl")
    assert (parent.params, parent.stage) == ({"train.batchsz": "4"}, "strategy-bench")
    assert set(parent.artifacts) == {path.name for path in tmp_path.glob("*.csv")}
    assert [each.params["variant"] for each in children] == names
    assert {each.parent for each in children} == {parent.uuid}
    for child, name in zip(children, names, strict=True):
        series = [each.value for each in child.metrics if each.key == "seconds_per_step_block"]
        assert series == [each.seconds for each in blocks if each.variant == name]


def variants(device: str, replicas: int, threads: int, **settings: Value) -> dict[str, StrategyVariant]:
    params = tiny_params({**ENABLED, **{key.replace("__", "."): value for key, value in settings.items()}})
    bench = Benchmark(RelationTask(params, NOWHERE), StepOptions(), params.parallel)
    return {each.variant: each for each in list_variants(bench, Placement(device, replicas, threads, 4))}


def test_rows_of_the_comparison_say_what_is_left_out_and_why() -> None:
    cpu = variants("cpu", 4, 1, train__batchsz=3, parallel__fsdp__enabled=False)
    assert {name: each.replicas for name, each in cpu.items() if each.status == "ok"} == {
        "serial": 1,
        ALL_CORES: 1,
        "dp": 3,  # a step of 3 episodes feeds no more
        "ddp": 3,
        "allreduce": 3,
        PER_PARAMETER: 3,
        "channel_split": 4,
    }
    assert (cpu["serial"].threads_per_replica, cpu[ALL_CORES].threads_per_replica) == (1, 4)
    assert cpu["fsdp"].reason == "parallel.fsdp.enabled is false"
    assert "parallel.replicas=2" in cpu["layer_split"].reason
    assert PER_PARAMETER not in variants("cpu", 2, 2, parallel__allreduce__flat=False)


def test_on_one_gpu_two_replicas_are_left_out_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    gpu = variants("cuda", 1, 4)
    assert ALL_CORES not in gpu
    assert gpu["ddp"].status == "ok"
    assert (gpu["ddp-2"].status, gpu["ddp-2"].replicas, gpu["ddp-2"].reason) == ("skipped", 2, ONE_GPU)


@pytest.mark.usefixtures("one_core")
def test_with_nothing_to_time_every_row_says_why(tiny_packed: Path, tmp_path: Path) -> None:
    off: dict[str, Value] = {f"parallel.{name}.enabled": False for name in STRATEGIES}
    bench_strategies(tiny_params(off), tiny_packed, tmp_path, Provenance())
    assert read_rows(StrategyBlock, tmp_path / "blocks.csv") == []
    _, *children = read_runs(tmp_path / "records.jsonl")
    assert {(each.status, each.metrics) for each in children} == {("skipped", ())}
    assert [each.tags["reason"] for each in children] == [
        f"parallel.{name}.enabled is false" for name in STRATEGIES
    ]
