"""The numbers of the machine are numbers, and what they stand for was really done."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed as dist
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import limits, machine, machine_cuda, machine_memory, probes, scratch
from benchmarks.limits import Way
from benchmarks.machine_allreduce import Plan, check_sum
from benchmarks.machine_disk import Sequential, sync_seconds
from benchmarks.machine_messages import SIZES, WAYS, peer
from benchmarks.outcome import Outcome, Table, save, show
from benchmarks.probes import Probe, bytes_said, in_turn, listing, seconds_per_call
from parashot.errors import DeviceError
from parashot.parallel.context import Context, Placement
from parashot.questions.statistics import Interval

SMALL = limits.Shapes(squares=(32, 16), images=2, channels=4, pixels=6)
TWO_RANKS = Context(0, 2, 0, 2, Placement("cpu", 2, 1, 2))


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return machine.run(quick=True)


def intervals(tables: list[Table]) -> list[Interval]:
    return [cell for table in tables for row in table.rows for cell in row if isinstance(cell, Interval)]


# --- all of it ----------------------------------------------------------------------------------------


def test_every_number_is_positive_and_lies_in_its_interval(outcome: Outcome) -> None:
    found = intervals(list(outcome.tables))
    assert len(found) >= 30
    for each in found:
        assert 0 < each.low <= each.value <= each.high < math.inf


def test_every_section_has_its_tables_and_its_rounds(outcome: Outcome) -> None:
    assert list(outcome.raw) == list(machine.SECTIONS)
    lengths = {len(values) for section in outcome.raw.values() for values in section.values()}
    assert lengths == {outcome.settings["rounds"]} == {probes.QUICK_ROUNDS}
    for table in outcome.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_a_row_is_the_median_of_its_rounds(outcome: Outcome) -> None:
    disk = next(table for table in outcome.tables if table.title == "Disk")
    for name, interval, _, _ in disk.rows:
        assert isinstance(interval, Interval)
        assert interval.value == median(outcome.raw["disk"][name])


def test_bandwidth_of_an_all_reduce_is_its_bytes_over_its_time(outcome: Outcome) -> None:
    table = next(table for table in outcome.tables if table.title.startswith("All-reduce"))
    for (_, milliseconds, gigabytes), length in zip(table.rows, (4096, 65536), strict=True):
        assert milliseconds.value * gigabytes.value * 1e6 == pytest.approx(length)


def test_the_tables_can_be_read_and_saved(outcome: Outcome, tmp_path: Path) -> None:
    text = show(outcome)
    for title in ("Memory", "Disk", "Between two processes", "Matrix work", "All-reduce over gloo", "CUDA"):
        assert title in text
    save(outcome, tmp_path / "machine.json")
    saved = json.loads((tmp_path / "machine.json").read_text())
    assert saved["raw"] == {name: dict(section) for name, section in outcome.raw.items()}


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_without_a_device_one_line_says_so(outcome: Outcome) -> None:
    tables = [table for table in outcome.tables if table.title.startswith("CUDA")]
    assert [list(table.rows) for table in tables] == [[("CUDA device", "not here")]]
    assert outcome.raw["cuda"] == {}


def test_nothing_is_left_in_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "ROOT", tmp_path)
    with pytest.raises(RuntimeError), scratch.scratch_folder() as folder:
        (folder / "large").write_bytes(b"1")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".scratch").mkdir()
    (tmp_path / ".scratch" / "of-a-stage").touch()
    with scratch.scratch_folder():
        pass
    assert [each.name for each in (tmp_path / ".scratch").iterdir()] == ["of-a-stage"]


# --- rounds -------------------------------------------------------------------------------------------


def test_probes_take_turns_and_a_first_round_warms_up() -> None:
    order: list[str] = []

    def probe(name: str) -> Probe:
        def measure() -> float:
            order.append(name)
            return float(len(order))

        return Probe(name, "s", measure)

    both = [probe("a"), probe("b")]
    measured = in_turn(both, quick=False)
    assert order == ["a", "b"] * (1 + probes.rounds(quick=False))
    assert measured["a"] == [3, 5, 7, 9, 11, 13, 15]
    assert listing("Title", both, measured).rows[1][1].value == 10  # type: ignore[union-attr]


def test_calls_are_repeated_until_the_clock_can_tell_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(probes.time, "perf_counter", lambda: now[0])
    calls, waits = [0], [0]

    def call() -> None:
        calls[0] += 1
        now[0] += 1

    def wait() -> None:
        waits[0] += 1
        now[0] += 4

    assert seconds_per_call(call, at_least=10, finish=wait) == (8 + 4) / 8  # the device's time counts
    assert calls[0] == 1 + 2 + 4 + 8
    assert waits[0] == 2 * 4


def test_bytes_in_words() -> None:
    assert [bytes_said(count) for count in (4096, 2**20, 3 * 2**29)] == ["4 KiB", "1 MiB", "1,536 MiB"]


# --- limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_flops_are_those_that_torch_counts(dtype: torch.dtype) -> None:
    ways = limits.matrix_ways(dtype, shapes=SMALL)
    for way in ways:
        with FlopCounterMode(display=False) as counter:
            result = way.call()
        assert isinstance(result, torch.Tensor)
        assert result.dtype == dtype
        assert way.amount == counter.get_total_flops()
    assert [way.amount for way in ways] == sorted(way.amount for way in ways)


def test_a_convolution_keeps_its_layout_and_shape() -> None:
    result = limits.convolution(3, SMALL, torch.float32).call()
    assert isinstance(result, torch.Tensor)
    assert result.shape == (2, 4, 6, 6)
    assert result.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("threads", [1, 3])
def test_every_way_copies_every_byte(threads: int) -> None:
    with limits.copy_ways(threads, "cpu", 10_001) as (by_torch, by_thread):
        target = by_torch.call()
        assert isinstance(target, torch.Tensor)
        expected = target.clone()
        assert expected.unique().numel() > 200
        target.zero_()
        by_thread.call()
        assert torch.equal(target, expected)
        assert by_torch.amount == by_thread.amount == 2 * 10_001


def test_limits_are_positive_and_leave_torch_as_it_was() -> None:
    before = torch.get_num_threads()
    assert 0 < limits.matrix_peak_flops(torch.float32, before + 1, seconds=0.01) < math.inf
    assert 0 < limits.copy_bandwidth(before + 1, array_bytes=2**20, seconds=0.01) < math.inf
    assert torch.get_num_threads() == before


def test_what_would_take_too_long_is_not_called() -> None:
    called: list[str] = []

    def way(name: str, amount: float) -> Way:
        return Way(name, "", amount, lambda: called.append(name))

    ways = [way("small", 1.0), way("alike", 1.0), way("huge", 1e30), way("after", 1.0)]
    kept = limits.affordable(ways, "cpu", seconds=10.0)
    assert [each.kind for each in kept] == ["small", "alike"]
    assert called == ["small", "small", "alike", "alike"]
    assert limits.affordable(ways[2:], "cpu", seconds=0.0) == ways[2:3]


def test_the_fastest_way_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {"slow": 0.04, "fast": 0.02}
    monkeypatch.setattr(limits, "_seconds", lambda way, _: taken[way.kind])
    ways = [Way("slow", "", 8.0, lambda: None), Way("fast", "", 8.0, lambda: None)]
    assert limits._fastest(ways, "cpu", seconds=0.0) == 8.0 / 0.04  # no time for a second way
    assert limits._fastest(ways, "cpu", seconds=0.1) == 8.0 / 0.02


def test_float32_stays_float32_meanwhile() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        with limits.full_float32():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def cache(folder: Path, level: int, size: str, sharers: str) -> None:
    folder.mkdir(parents=True)
    for name, text in {"level": level, "size": size, "shared_cpu_list": sharers}.items():
        (folder / name).write_text(f"{text}\n")


def test_last_caches_are_counted_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 8})
    assert limits.last_cache_bytes(tmp_path) == 64 * 2**20  # not told
    for processor, sharers in {0: "0-3", 1: "0-3", 8: "8-11", 9: "9"}.items():
        cache(tmp_path / f"cpu{processor}/cache/index2", 2, "1024K", str(processor))
        cache(tmp_path / f"cpu{processor}/cache/index3", 3, "32768K", sharers)
    assert limits.last_cache_bytes(tmp_path) == 2 * 32 * 2**20


# --- memory -------------------------------------------------------------------------------------------


def test_a_walk_goes_through_every_place() -> None:
    successors = machine_memory.cycle(500, np.random.default_rng(1))
    places = np.zeros(501, np.intp)
    assert machine_memory.walk(successors, places) > 0
    place, way = 0, [0]
    for _ in range(500):
        place = int(successors[place])
        way.append(place)
    assert places.tolist() == way
    assert sorted(way[1:]) == list(range(500))


def test_a_numpy_that_reads_ahead_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def buffered(successors: np.ndarray, places: np.ndarray, out: np.ndarray, mode: str) -> None:
        out[:] = successors[places.copy()]

    successors = machine_memory.cycle(50, np.random.default_rng(1))
    monkeypatch.setattr(machine_memory.np, "take", buffered)
    with pytest.raises(DeviceError, match=r"latency of memory cannot be measured; install") as error:
        machine_memory.walk(successors, np.zeros(20, np.intp))
    assert "\n" not in str(error.value)


def test_new_pages_cost_time_twice() -> None:
    touched, returned = machine_memory.fresh_seconds(2**20)
    assert touched > 0
    assert returned > 0


# --- disk ---------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_and_anew(tmp_path: Path) -> None:
    large = Sequential(tmp_path / "large", 2 * 2**20)
    assert large.write() > 0
    before = large.path.read_bytes()
    assert len(before) == large.length
    assert large.write() > 0
    assert large.path.read_bytes() != before
    assert large.read_from_disk() > 0
    assert large.read() > 0


def test_a_small_file_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "small"
    assert min(sync_seconds(path), sync_seconds(path)) > 0
    assert path.stat().st_size == 4096


# --- between processes --------------------------------------------------------------------------------


def test_every_way_brings_every_page_across_and_a_dead_peer_is_one_line() -> None:
    source = np.arange(2**18, dtype=np.uint32).view(np.uint8)
    expected = int(source[::4096].sum())
    with pytest.raises(DeviceError, match="has died") as error, peer(max(SIZES)) as other:
        other.echo()
        for way in WAYS:
            assert getattr(other, way)(source) == expected
            assert getattr(other, way)(np.zeros(8192, np.uint8)) == 0
        other.pipe.send("no message that it knows")
        other.echo()
    assert "\n" not in str(error.value)


def test_a_sum_is_checked_and_leaves_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    message = torch.empty(6)
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor.add_(2))  # the other rank's
    check_sum(message, TWO_RANKS)
    assert message.tolist() == [0.0] * 6
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor[:-1].add_(2))
    with pytest.raises(DeviceError, match=r"all-reduce of .* between 2 ranks gave a wrong sum"):
        check_sum(message, TWO_RANKS)


def test_calls_follow_from_the_size_alone() -> None:
    plan = Plan((4096, 2**26, 2**30), rounds=7)
    assert [plan.calls(length) for length in plan.sizes] == [200, 2, 2]


# --- CUDA ---------------------------------------------------------------------------------------------


def unpinned(
    ones: Callable[..., torch.Tensor], *size: int, pin_memory: bool = False, **rest: Any
) -> torch.Tensor:
    """Memory is pinned for a card only."""
    return ones(*size, **rest)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The CPU stands in for a card: what is computed is the same, and there is one stream."""
    monkeypatch.setattr(machine_cuda, "_CUDA", "cpu")
    monkeypatch.setattr(machine_cuda.torch, "ones", partial(unpinned, torch.ones))
    for name, stand_in in {
        "is_available": lambda: True,
        "synchronize": lambda *_: None,
        "Stream": lambda: None,
        "stream": lambda _: nullcontext(),
        "device_count": lambda: 1,
        "is_bf16_supported": lambda including_emulation: False,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return monkeypatch


def test_every_number_of_a_card_is_taken(card: pytest.MonkeyPatch) -> None:
    section = machine_cuda.measure(quick=True)
    titles = [table.title.removeprefix("CUDA: ") for table in section.tables]
    assert titles == [
        "copies, queued one after the other",
        "launches",
        "a copy beside products",
        "limits",
        "all-reduce",
    ]
    for each in intervals(list(section.tables)):
        assert 0 < each.low <= each.value <= each.high < math.inf
    beside = {row[0]: row[1].value for row in section.tables[2].rows}  # type: ignore[union-attr]
    assert set(beside) == {"copy alone", "products alone", "both at once", "sum of the two", "larger"}
    assert max(beside["copy alone"], beside["products alone"]) <= beside["larger"] < beside["sum of the two"]
    assert section.tables[3].rows[-1] == [
        "matrix work, bfloat16",
        "not here",
        "",
        "the device computes no such type",
    ]
    assert "there is 1" in str(section.tables[4].rows)


def test_a_card_of_this_decade_computes_bfloat16(card: pytest.MonkeyPatch) -> None:
    card.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    section = machine_cuda.measure(quick=True)
    assert any(name.endswith("bfloat16") for name in section.raw)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_real_card() -> None:
    section = machine_cuda.measure(quick=True)
    assert intervals(list(section.tables))
    assert 0 < limits.copy_bandwidth(1, "cuda", array_bytes=2**24, seconds=0.1) < math.inf
    assert 0 < limits.matrix_peak_flops(torch.float32, 1, "cuda", seconds=0.1) < math.inf
