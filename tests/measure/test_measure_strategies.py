"""Strategies beside each other on real processes: blocks, traces, shares of a step, and inputs of costs."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from small_tasks import NOWHERE
from tiny_data import tiny_params

from parashot.parallel.context import Placement
from parashot.parallel.registry import STRATEGIES
from parashot.parallel.strategy import StepOptions
from parashot.parsing import Value
from parashot.questions.scaling.measure import MESSAGE_BYTES, local_sizes
from parashot.questions.strategies import records
from parashot.questions.strategies.measure import ONE_GPU, Benchmark, bench_strategies, list_variants
from parashot.questions.strategies.rows import ALL_CORES, PER_PARAMETER, SMALL_BUCKETS
from parashot.questions.strategies.shares import Event, shares_of
from parashot.records import Provenance, read_json, read_rows, read_runs
from parashot.tasks.relation import RelationTask

ENABLED: dict[str, Value] = {f"parallel.{name}.enabled": True for name in STRATEGIES}
BEFORE = Event("parashot:step", -100, 0)  # the first profiled step, which is left out
SETTINGS = {**ENABLED, "train.batchsz": 4, "parallel.bench.blocks": 7, "parallel.bench.launches": 2}


@pytest.mark.usefixtures("standing_launch", "one_core")
def test_every_strategy_is_timed_and_traced_beside_the_others(tiny_packed: Path, tmp_path: Path) -> None:
    provenance = Provenance({"train.batchsz": "4"}, {"source": "tiny"})
    bench_strategies(tiny_params(SETTINGS), tiny_packed, tmp_path, provenance)
    variants = read_rows(records.StrategyVariant, tmp_path / "variants.csv")
    names = [each.variant for each in variants]
    assert set(names) == {*STRATEGIES, PER_PARAMETER, SMALL_BUCKETS}
    assert {each.status for each in variants} == {"ok"}
    blocks = read_rows(records.StrategyBlock, tmp_path / "blocks.csv")
    assert [each.round for each in blocks] == [number for number in range(7) for _ in names]
    assert all({each.variant for each in blocks if each.round == number} == {*names} for number in range(7))
    assert {each.launch for each in blocks if each.round < 4} == {0}
    assert {each.launch for each in blocks if each.round > 3} == {1}
    orders = {tuple(each.variant for each in blocks if each.round == number) for number in range(7)}
    assert len(orders) > 1  # random within a round
    assert all(each.seconds > 0 for each in blocks)
    equal = read_rows(records.StepEquality, tmp_path / "equality.csv")
    assert {each.variant for each in equal} == {*STRATEGIES}
    assert max(each.gradient_difference for each in equal) < 1e-10

    traces = {each.variant: each for each in read_rows(records.StepTrace, tmp_path / "anatomy.csv")}
    for name in STRATEGIES:
        assert traces[name].processes == (1 if name in {"serial", "dp"} else 2)
        assert (traces[name].bytes_sent > 0) is (name != "serial")
    flat = traces["allreduce"]
    statistics = 6 * 2 * 64 * 4  # mean and variance of 64 channels, of six batch norms
    assert (flat.all_reduces, flat.bytes_sent) == (2, flat.gradient_bytes + statistics)
    assert traces[PER_PARAMETER].all_reduces > 20
    assert traces[SMALL_BUCKETS].all_reduces > traces["ddp"].all_reduces
    assert traces[PER_PARAMETER].bytes_sent == flat.bytes_sent
    assert {each.gradient_bytes for each in traces.values()} == {flat.gradient_bytes}

    assert_shares_add_up(read_rows(records.StepShares, tmp_path / "shares.csv"), names)
    metrics = read_json(tmp_path / "metrics.json")
    assert set(metrics) == set(names)
    assert metrics["serial"]["speedup"] == 1
    assert metrics["ddp"]["bytes_sent"] == traces["ddp"].bytes_sent
    costs = read_rows(records.CostStep, tmp_path / "cost_steps.csv")
    measured = [(each.round, each.episodes, each.busy) for each in costs]
    assert measured == [*product(range(0, 7, 2), local_sizes(4), (1, 2))]
    messages = read_rows(records.CostMessage, tmp_path / "cost_messages.csv")
    sent = [(each.round, each.bytes, each.ranks) for each in messages]
    assert sent == [*product(range(0, 7, 2), MESSAGE_BYTES, [2])]
    assert min(each.seconds for each in costs) > 0 and min(each.seconds for each in messages) > 0

    parent, *children = read_runs(tmp_path / "records.jsonl")
    assert (parent.params, parent.stage) == ({"train.batchsz": "4"}, "strategy-bench")
    assert set(parent.artifacts) == {path.name for path in tmp_path.glob("*.csv")}
    assert [each.params["variant"] for each in children] == names
    assert {each.parent for each in children} == {parent.uuid}
    for child, name in zip(children, names, strict=True):
        series = [each.value for each in child.metrics if each.key == "seconds_per_step_block"]
        assert series == [each.seconds for each in blocks if each.variant == name]


def assert_shares_add_up(shares: list[records.StepShares], names: list[str]) -> None:
    steps = Counter((each.variant, each.rank) for each in shares)
    assert steps == {
        **{(name, 0): 7 for name in names},
        **{(name, 1): 7 for name in names if name not in {"serial", "dp"}},
    }
    for each in shares:
        assert each.seconds > 0
        assert 0 < 1 - each.exposed - each.idle <= 1  # computing
        assert min(each.exposed, each.hidden, each.idle) >= 0
        assert (each.exposed + each.hidden > 0) is (each.variant != "serial")


def variants(
    device: str, replicas: int, threads: int, settings: dict[str, Value] | None = None
) -> dict[str, records.StrategyVariant]:
    params = tiny_params({**ENABLED, **(settings or {})})
    bench = Benchmark(RelationTask(params, NOWHERE), StepOptions(), params.parallel)
    return {each.variant: each for each in list_variants(bench, Placement(device, replicas, threads, 4))}


def test_rows_of_the_comparison_say_what_is_left_out_and_why() -> None:
    cpu = variants("cpu", 4, 1, {"train.batchsz": 3, "parallel.fsdp.enabled": False})
    shared_out = ("dp", "ddp", "allreduce", PER_PARAMETER, SMALL_BUCKETS)  # over the 3 episodes of a step
    replicas = {"serial": 1, ALL_CORES: 1, **dict.fromkeys(shared_out, 3), "channel_split": 4}
    assert {name: each.replicas for name, each in cpu.items() if each.status == "ok"} == replicas
    assert (cpu["serial"].threads_per_replica, cpu[ALL_CORES].threads_per_replica) == (1, 4)
    assert cpu["fsdp"].reason == "parallel.fsdp.enabled is false"
    assert "parallel.replicas=2" in cpu["layer_split"].reason
    assert PER_PARAMETER not in variants("cpu", 2, 2, {"parallel.allreduce.flat": False})


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
    assert read_rows(records.StrategyBlock, tmp_path / "blocks.csv") == []
    _, *children = read_runs(tmp_path / "records.jsonl")
    assert [(each.status, each.metrics, each.tags["reason"]) for each in children] == [
        ("skipped", (), f"parallel.{name}.enabled is false") for name in STRATEGIES
    ]


def test_work_that_overlaps_counts_once() -> None:
    """Operators hold others and run in several threads; what a message needs of them is not computing."""
    seen = [
        Event("parashot:step", 0, 100),
        Event("aten::convolution", 10, 40),
        Event("aten::mm", 20, 30),
        Event("aten::mul", 35, 60),
        Event("gloo:all_reduce", 50, 70),
        Event("exchange:gradients", 80, 90),
        Event("aten::copy_", 82, 88),
        Event("parashot:step", 100, 200),
    ]
    first, second = shares_of("ddp", 0, [BEFORE, *seen])
    assert (first.hidden, first.exposed, first.idle) == pytest.approx((0.1, 0.2, 0.3))
    assert (second.hidden, second.exposed, second.idle) == pytest.approx((0, 0, 1))


def test_shares_are_of_the_work_of_each_gpu() -> None:
    """On the device an annotation reaches from its first kernel to its last, with all gaps between.

    What one GPU of a process waits for is not hidden behind what another computes.
    """
    seen = [
        Event("parashot:step", 0, 100, is_annotation=True),
        Event("parashot:step", 10, 90, gpu=0, is_annotation=True),
        Event("convolution", 10, 40, gpu=0),
        Event("nccl:all_reduce", 30, 90, gpu=0, is_annotation=True),
        Event("ncclDevKernel_AllReduce", 30, 70, gpu=0),
        Event("multi_tensor_apply", 70, 90, gpu=0),
    ]
    (share,) = shares_of("ddp", 0, [BEFORE, *seen])
    assert (share.hidden, share.exposed, share.idle) == pytest.approx((0.1, 0.3, 0.2))
    seen = [
        Event("parashot:step", 0, 100),
        Event("convolution", 0, 100, gpu=0),
        Event("convolution", 0, 20, gpu=1),
        Event("Memcpy PtoP (Device -> Device)", 20, 60, gpu=1),
    ]
    (share,) = shares_of("dp", 0, [BEFORE, *seen])
    assert (share.hidden, share.exposed, share.idle) == pytest.approx((0, 0.2, 0.2))
    assert share.seconds == pytest.approx(1e-4)


def test_a_line_needs_three_sizes() -> None:
    assert local_sizes(1) == local_sizes(3) == [1, 2, 3]
    assert (local_sizes(8), local_sizes(30)) == ([1, 2, 4, 8], [4, 8, 15, 30])
