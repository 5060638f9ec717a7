"""Ways of one training in blocks in turn, on real processes; which ways of loading are tried."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from weakref import ref

import pytest
import torch
from own_file import edited
from small_tasks import VectorTask, alone
from standing_ranks import StandingRanks
from tiny_data import tiny_params
from torch import Tensor, nn

from parashot.errors import DeviceError
from parashot.parallel import context as parallel_context
from parashot.parallel.allreduce import Allreduce
from parashot.parallel.context import Context, Placement
from parashot.parallel.launch import launch_apart
from parashot.parallel.registry import build_strategy
from parashot.parallel.strategy import StepOptions, Strategy
from parashot.params import StrategyBenchParams
from parashot.questions.gain.measure import bench_gain
from parashot.questions.loader import measure as loader_bench
from parashot.questions.loader.measure import loadings, who_trains, worker_counts
from parashot.questions.own.candidates import plain_way
from parashot.questions.own.measure import OwnTrainings
from parashot.questions.timed import MOST_STEPS, steps_with_loading
from parashot.questions.ways import measure
from parashot.questions.ways.episodes import read_by
from parashot.questions.ways.measure import Training
from parashot.questions.ways.records import EpisodeWay, SkippedWay, Way, WayBlock
from parashot.records import Provenance, read_rows
from parashot.task import Batch
from parashot.tasks.own import OwnTask


def test_without_advice_there_is_nothing_to_measure(tmp_path: Path) -> None:
    bench_gain(tiny_params(), tmp_path, (), tmp_path / "gain", Provenance())
    assert read_rows(EpisodeWay, tmp_path / "gain/ways.csv") == []
    assert read_rows(WayBlock, tmp_path / "gain/blocks.csv") == []


def test_what_workers_had_ready_is_not_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the batches of a long training, the first, two that lay ready and one to warm up come before."""
    task = VectorTask()
    strategy = build_strategy("serial", task, StepOptions(), alone(), tiny_params().parallel)
    trained = batches_trained(monkeypatch)
    found = steps_with_loading(strategy, task, 3, threads=1, in_advance=2, first=4)
    every = list(task.batches(strategy.plan(8 * task.batchsz, task.batchsz, alone()), alone()))
    assert [each.data["x"].tolist() for each in trained] == [each.data["x"].tolist() for each in every[3:7]]
    assert 0 < found.waiting_seconds < found.seconds


def batches_trained(monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """What is trained on from now on, in a list that grows."""
    trained, step = list[Batch](), Strategy.step

    def noted(self: Strategy, batch: Batch) -> torch.Tensor:
        trained.append(batch)
        return step(self, batch)

    monkeypatch.setattr(Strategy, "step", noted)
    return trained


def test_every_way_trains_on_the_same_samples_and_no_block_on_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_prefetch(way: Way) -> Training:
        return replace(vectors(way), prefetch=3)

    trained = batches_trained(monkeypatch)
    ways = (WAYS[0], replace(WAYS[0], way="workers", workers=2))
    blocks: dict[str, list[list[Any]]] = {each.way: [] for each in ways}
    for way in ways:  # as in processes of their own
        ready = measure.ReadyWays(alone(), with_prefetch, (way,), among=ways)
        for number in range(2):
            trained.clear()
            ready.block(way, 4, 0, number)
            blocks[way.way].append([each.data["x"].tolist() for each in trained[1:]])
        ready.close()
    first, second = blocks["serial"]
    assert blocks["workers"] == [first, second] and len(first) == len(second) == 4
    assert not [each for each in first if each in second]


def vectors(way: Way) -> Training:
    """The same training in every way."""
    return Training(VectorTask(batchsz=way.batchsz), StepOptions(), tiny_params().parallel, 0)


WAYS = tuple(
    Way(name, name, replicas, 1, 4, 0, "fp32", "none")
    for name, replicas in (("serial", 1), ("ddp", 2), ("fsdp", 2), ("allreduce", 2))
)
BENCH = StrategyBenchParams(blocks=7, launches=1, seconds=0.03)


def test_of_ways_that_share_a_strategy_a_later_launch_makes_one_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ways = (WAYS[0], replace(WAYS[0], way="workers", workers=2))
    before = [
        WayBlock(0, number, way.way, 4, 0.4, 0.3 * way.workers / 2, 0) for number, way in enumerate(ways)
    ]
    trained = batches_trained(monkeypatch)
    ready = measure.ReadyWays(alone(), vectors, ways, before=before)
    assert len(trained) == 2  # one before the clock, and one that is timed
    assert (ready.step_seconds["workers"], ready.turns) == (0.1, {"serial": 1, "workers": 2})
    block = ready.block(ways[1], 3, 1, 2)
    assert block is not None and (block.launch, block.way, block.steps) == (1, "workers", 3)
    ready.close()


def held_while_timed(context: Context, fit: bool) -> tuple[list[int], set[str]]:
    """How many networks are held after each block, and what was timed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "_fit_together", lambda *_: fit)
        ready = measure.ReadyWays(context, vectors, WAYS)
        held, timed = [], set()
        for way in (*WAYS, *reversed(WAYS)):
            timed |= {each.way for each in [ready.block(way, 2, 0, 0)] if each}
            held.append(len(ready.strategies))
        ready.close()
    return held, timed


@pytest.mark.parametrize(("fit", "held"), [(True, 4), (False, 1)])
def test_networks_that_do_not_fit_together_are_built_one_by_one(
    fit: bool, held: int, ranks: StandingRanks
) -> None:
    found, timed = ranks(2, held_while_timed, fit)
    assert set(found) == {held}
    assert timed == {"serial", "ddp", "fsdp", "allreduce"}


def test_few_workers_are_what_is_left_out_where_there_is_no_time() -> None:
    counts = {"default": 0, "one": 1, "two": 2, "none": 0, "four": 4}
    ways = [replace(WAYS[0], way=name, workers=workers) for name, workers in counts.items()]
    order = [each.way for each in measure.order_of_making_ready(ways)]
    assert order == ["default", "none", "four", "two", "one"]


def timed_in_little_memory(context: Context) -> tuple[int, WayBlock | None]:
    """How many networks are held after a block that memory suffices for without other networks, and it."""
    ready, step, failed = measure.ReadyWays(context, vectors, WAYS), Allreduce.step, list[Any]()

    def full(self: Allreduce, batch: Batch) -> Tensor:
        if len(ready.strategies) > 1 or any(each() for each in failed):
            failed.append(ref(self.network))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return step(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Allreduce, "step", full)
        block = ready.block(WAYS[-1], 2, 0, 0)
    ready.close()
    return ready.held, block


def test_networks_that_wait_make_room_for_the_one_that_is_trained(ranks: StandingRanks) -> None:
    held, block = ranks(2, timed_in_little_memory)
    assert held == 1 and block is not None and block.way == "allreduce"


def fails(context: Context, journal: Path | None) -> tuple[set[str], list[SkippedWay]]:
    """Of what blocks there are where steps by allreduce fail, and what is written of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Allreduce, "step", Mock(side_effect=KeyError("x")))
        blocks = measure.ways_rank(context, vectors, WAYS, BENCH, 0, "ways", journal)
    failed = read_rows(SkippedWay, journal.with_name(measure.FAILED)) if journal and context.is_main else []
    return {each.way for each in blocks}, failed


def test_a_way_whose_step_fails_is_left_out_where_that_is_wanted(
    ranks: StandingRanks, tmp_path: Path
) -> None:
    timed, failed = ranks(2, fails, tmp_path / "blocks.csv")
    assert timed == {"serial", "ddp", "fsdp"}
    assert failed == [SkippedWay("allreduce", "KeyError: 'x'")]
    with pytest.raises(AssertionError, match="KeyError: 'x'"):
        ranks(2, fails, None)


class BrokenOnRank1(VectorTask):
    """A training of which one rank cannot take a step."""

    def forward(self, network: nn.Module, data: Any) -> Tensor:
        if os.environ["RANK"] == "1":
            raise ValueError("a broken sample")
        return super().forward(network, data)


def broken_on_rank_1(way: Way) -> Training:
    return Training(BrokenOnRank1(batchsz=way.batchsz), StepOptions(), tiny_params().parallel, 0)


def soon_lost(context: Context) -> list[WayBlock]:
    parallel_context.ALIKE = timedelta(seconds=1)
    return measure.ways_rank(context, broken_on_rank_1, WAYS[1:2], BENCH, 0, "ways")


def test_what_fails_on_one_rank_alone_ends_all_and_is_named() -> None:
    """Its peers would wait for it in their step for ten minutes."""
    with pytest.raises(DeviceError, match=r"^ValueError: a broken sample$"):
        launch_apart(soon_lost, Placement("cpu", 2, 1, 2), 2)


def test_a_round_has_as_many_steps_of_every_way(ranks: StandingRanks) -> None:
    """As many as last long enough in the fastest, so that totals of the ways can be compared."""
    bench = replace(BENCH, seconds=0.15)  # many steps, on a busy machine too
    ways = WAYS[1::2]  # about as fast as each other
    blocks = ranks(2, measure.ways_rank, vectors, ways, bench, 0, "ways")
    steps = {each.round: each.steps for each in blocks}
    assert all(each.steps == steps[each.round] for each in blocks) and len(blocks) == 7 * len(ways)
    assert 2 < min(steps.values()) <= max(steps.values()) <= MOST_STEPS


def test_a_block_has_whole_turns_of_workers_that_a_step_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three workers deliver three batches at once, then nothing until they have read the next three."""
    # much longer than a step, on a busy machine too
    slow = {"x = torch.sin": "time.sleep(0.03); x = torch.sin"}
    task = OwnTask(edited(tmp_path, "turns", slow, "import time"), batchsz=6, samples=10)
    plain = plain_way(task, alone().placement)
    ways = [plain, replace(plain, way="three", workers=3)]
    ready = measure.ReadyWays(alone(), OwnTrainings(task, tiny_params().parallel), ways)
    assert ready.turns == {plain.way: 1, "three": 3}
    monkeypatch.setattr(measure, "LEAST_STEPS_OF_WORKERS", 4)
    bench = replace(BENCH, seconds=0.0)
    assert [ready.steps_of_block([each], bench) for each in ways] == [4, 6]
    assert ready.steps_of_block(ways, bench) == 6
    ready.close()


# --- ways of loading ------------------------------------------------------------------------------------


def test_auto_follows_the_threads_with_workers_for_all_ranks_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    params = tiny_params({"loader.bench.workers": "auto"})
    for threads, counts in ((1, [0, 1, 2, 4]), (6, [0, 1, 2, 3, 6, 12, 21])):
        monkeypatch.setattr(loader_bench, "usable_threads", lambda count=threads: count)
        assert worker_counts(params, "jpeg") == counts
    assert worker_counts(params, "packed") == worker_counts(params, "resident") == [0]
    assert worker_counts(tiny_params({"loader.bench.workers": [5, 0, 3]}), "jpeg") == [0, 3, 5]
    for threads, ranks, counts in ((2, 2, [0, 2]), (6, 1, [0, 1, 3, 6]), (64, 4, [0, 4, 32, 64])):
        monkeypatch.setattr(loader_bench, "usable_threads", lambda count=threads: count)
        found = [*((name, each) for name in ("jpeg", "packed") for each in counts), ("resident", 0)]
        assert list(loadings(params, ranks)) == found


@pytest.mark.usefixtures("one_core")
def test_who_trains_while_batches_are_loaded(tiny_packed: Path) -> None:
    assert who_trains(tiny_params({"parallel.replicas": "auto"}), tiny_packed)[0] == "serial"  # one is here
    assert who_trains(tiny_params(), tiny_packed) == ("ddp", Placement("cpu", 2, 1, 1))
    off = who_trains(tiny_params({"parallel.ddp.enabled": False}), tiny_packed)
    assert off == ("serial", Placement("cpu", 1, 1, 1))


def test_augmentation_is_left_out_since_jpeg_has_none() -> None:
    varied = tiny_params({"augment.flip": True})
    assert read_by(varied, "jpeg", 2) == tiny_params({"loader.backend": "jpeg", "loader.workers": 2})
