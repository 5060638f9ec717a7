"""Numbers of the machine and of leaks: what they stand for was really done."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import distributed as dist
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import leaks, limits, machine, machine_cuda, pipeline
from benchmarks.footprint import QUANTITIES
from benchmarks.leaks import WORKS, Growth, Watched, Work, growing, watch
from benchmarks.leaks_work import PROGRAM, RESTARTS, SERIAL, prepare
from benchmarks.machine_processes import WAYS, exchange, peer
from benchmarks.outcome import show
from benchmarks.workload import tree_of
from parashot.errors import DeviceError
from parashot.params import load_params
from parashot.questions.statistics import Interval
from parashot.recipes import apply

# --- limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_flops_are_those_that_torch_counts(dtype: torch.dtype) -> None:
    for flops, call in (limits.matrix_product(16, dtype), limits.convolution(3, 2, dtype, "cpu", 4, 6)):
        with FlopCounterMode(display=False) as counter:
            result = call()
        assert isinstance(result, torch.Tensor)
        assert result.dtype == dtype
        assert flops == counter.get_total_flops()
    assert result.shape == (2, 4, 6, 6)
    assert result.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("threads", [1, 3])
def test_every_way_copies_every_byte(threads: int) -> None:
    (moved, by_torch), (_, by_thread) = limits.copy_ways(threads, "cpu", 10_001)
    target = by_torch()
    assert isinstance(target, torch.Tensor)
    assert (moved, int(target.sum())) == (2 * 10_001, 10_001)
    target.zero_()
    by_thread()
    assert int(target.sum()) == 10_001


def test_the_fastest_way_counts_and_what_takes_too_long_is_not_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[str] = []
    taken = {"slow": 0.04, "fast": 0.02, "huge": 1e9}

    def seconds_of(call: Callable[[], str], count: int, finish: object) -> float:
        return taken[call()]

    def way(name: str, amount: float) -> limits.Way:
        return amount, lambda: called.append(name) or name  # type: ignore[func-returns-value]

    monkeypatch.setattr(limits, "seconds_of", seconds_of)
    ways = [way("huge", 1e30), way("fast", 9.0), way("slow", 8.0)]
    assert limits.fastest(ways, "cpu", seconds=0.1) == 9.0 / 0.02
    assert set(called) == {"slow", "fast"}


def test_limits_are_positive_and_leave_torch_as_it_was() -> None:
    before = torch.get_num_threads()
    assert 0 < limits.matrix_peak(["product"], torch.float32, before + 1, seconds=0.01) < math.inf
    assert torch.get_num_threads() == before


# --- machine ------------------------------------------------------------------------------------------


def test_a_walk_goes_through_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    successors = machine.cycle(500, np.random.default_rng(1))
    places = np.zeros(501, np.intp)
    assert machine.walk(successors, places) > 0
    assert sorted(places[1:].tolist()) == list(range(500))
    assert (successors[places[:-1]] == places[1:]).all()

    def buffered(successors: Any, places: Any, out: Any, mode: str) -> None:
        out[:] = successors[places.copy()]

    monkeypatch.setattr(machine.np, "take", buffered)
    with pytest.raises(DeviceError, match=r"latency of memory cannot be measured; install"):
        machine.walk(successors, np.zeros(20, np.intp))


def test_memory_and_disk_are_really_used(tmp_path: Path) -> None:
    assert min(machine.fresh_seconds(2**20)) > 0
    machine.write(tmp_path / "file", 2 * 2**20)
    before = (tmp_path / "file").read_bytes()
    machine.write(tmp_path / "file", 2 * 2**20)
    assert len(before) == 2 * 2**20 and (tmp_path / "file").read_bytes() != before
    machine.drop_pages(tmp_path / "file")
    machine.read(tmp_path / "file")


@pytest.mark.slow
def test_every_way_brings_every_page_across_and_a_dead_peer_is_one_line() -> None:
    source = np.arange(2**18, dtype=np.uint32).view(np.uint8)
    with pytest.raises(DeviceError, match="has died") as error, peer(2**20) as other:
        for way in WAYS:
            assert other.send(way, source) == int(source[::4096].sum())
        other.pipe.send("no message that it knows")
        other.ask(None)
    assert "\n" not in str(error.value)


def test_a_sum_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor.add_(2 * (tensor > 0)))  # the other rank's
    measured = exchange(0, 2, torch.device("cpu"), (16, 64), 2)
    assert {key: len(series) for key, series in measured.items()} == {"16": 2, "64": 2}
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor[:-1].add_(2))
    with pytest.raises(DeviceError, match=r"all-reduce of 16 bytes gave a wrong sum"):
        exchange(0, 2, torch.device("cpu"), (16,), 1)


@pytest.mark.slow
def test_quick_machine_run() -> None:
    outcome = machine.run(quick=True)
    assert list(outcome.raw) == [table.title for table in outcome.tables] == list(machine.SECTIONS)
    cells = [
        cell for table in outcome.tables for row in table.rows for cell in row if isinstance(cell, Interval)
    ]
    assert len(cells) >= 30
    assert all(0 < each.low <= each.value <= each.high < math.inf for each in cells)
    assert "all-reduce of 4 KiB, gloo, 2 processes" in show(outcome)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU stands in for a card: what is computed is the same, and there is one stream."""

    def unpinned(ones: Callable[..., torch.Tensor], *size: int, pin_memory: bool = False, **rest: Any) -> Any:
        return ones(*size, **rest)

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


def test_every_number_of_a_card_is_taken(card: None) -> None:
    with machine_cuda.cuda(quick=True) as probes:
        values = {probe.name: probe.measure() for probe in probes}
    assert {"launch of a kernel, queued", "copy alone", "both at once", "copy"} <= set(values)
    assert "matrix product, float32" in values and "matrix product, bfloat16" not in values
    assert all(0 < each < math.inf for each in values.values())


# --- leaks --------------------------------------------------------------------------------------------

LOOKS = 16
LEAKING = """
import os, pathlib, subprocess, sys, tempfile, threading, time
folder, kept = pathlib.Path(sys.argv[1]), []
def leak():
    kept.append(bytearray(os.urandom(2**20)))
    os.close(tempfile.mkstemp()[0])
    kept.append(os.open(f"/dev/shm/{sys.argv[3]}-{len(kept)}", os.O_CREAT))
    if len(kept) % 4 == 0:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        subprocess.Popen(["sleep", "30"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
(folder / "scratch/work").mkdir(parents=True)
for number in range(1, int(sys.argv[2]) + 1):
    if len(sys.argv) > 3:
        leak()
    (folder / f"scratch/work/step-{number}.pt").touch()
    while not (folder / "seen").exists() or (folder / "seen").read_text() != str(number):
        time.sleep(0.005)
"""
"""Work that leaks everything there is, if it is told a name."""

KEEPING_LOADERS = f"""
from benchmarks import leaks_work
kept, made = [], leaks_work.loader_batches
leaks_work.loader_batches = lambda *each, **more: kept.append(made(*each, **more)) or kept[-1]
{PROGRAM}
"""


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A prefix for files in shared memory, which go in the end."""
    monkeypatch.setattr(leaks, "_PATIENCE_SECONDS", 0.1)
    yield (prefix := "parashot-test-leaks")
    for path in Path("/dev/shm").glob(f"{prefix}-*"):
        path.unlink()


@pytest.mark.parametrize(
    ("values", "more"),
    [
        ([*range(10), *[10] * 30], 0),  # warming up
        ([5, 6, 4, 5] * 10, 0),
        ([5] * 35 + [900] + [5] * 4, 0),  # an odd look
        ([5] * 25 + [6] * 15, 1),  # a single step up
        ([5 + number / 10 for number in range(40)], 2.0),  # creeping
    ],
)
def test_growth_is_told_from_noise(values: list[float], more: float) -> None:
    growth = Growth.of(range(0, 400, 10), values)
    assert growth.distance == 200
    assert growth.more == pytest.approx(more, abs=1e-9)
    with pytest.raises(ValueError, match="7 looks"):
        Growth.of(range(7), [0.0] * 7)


def looked_at(folder: Path, *words: str) -> Watched:
    return watch([sys.executable, "-c", LEAKING, str(folder), str(LOOKS), *words], folder)


def test_whatever_leaks_is_found(tmp_path: Path, name: str) -> None:
    found = looked_at(tmp_path, name)
    assert growing(Work("", "", "looks", most_memory_mb=200.0), found) == list(QUANTITIES.values())
    assert found.left.processes == LOOKS // 2  # every other look started one
    assert found.left.shared_files == found.left.temporary_files == LOOKS


def test_what_does_not_leak_is_flat(tmp_path: Path) -> None:
    found = looked_at(tmp_path)
    assert growing(Work("", "", "looks", most_memory_mb=1.0), found) == []
    assert found.at == list(range(1, LOOKS + 1))
    with pytest.raises(DeviceError, match="exit code 3"):
        watch([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "count", "program", "grows"),
    [
        (SERIAL, 320, PROGRAM, set()),
        (RESTARTS, 12, PROGRAM, set()),
        (RESTARTS, 8, KEEPING_LOADERS, {"memory (MB)", "open descriptors", "threads", "processes"}),
    ],
)
def test_the_projects_own_work(tmp_path: Path, work: str, count: int, program: str, grows: set[str]) -> None:
    prepare(tmp_path)
    found = watch([sys.executable, "-c", program, str(tmp_path), work, str(count)], tmp_path)
    # a short work has not settled yet; a leak of a MB per unit is five times as much
    patient = next(replace(each, most_memory_mb=200.0) for each in WORKS if each.name == work)
    found_growing = set(growing(patient, found))
    assert grows <= found_growing if grows else not found_growing


# --- pipeline -----------------------------------------------------------------------------------------


def test_the_smallest_study_is_one(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(apply(tree_of(pipeline.ROOT / "params.yaml"), pipeline.TINY)))
    assert load_params(path).train.episodes == pipeline.TINY["train.episodes"]


@pytest.mark.slow
def test_every_command_takes_time() -> None:
    outcome = pipeline.run(quick=True)
    names = {row[0] for row in outcome.tables[0].rows}
    assert {*pipeline.STATEMENTS, "python -m parashot.cli --help", "dvc --version"} <= names
    assert not any(str(name).startswith("dvc repro") for name in names)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_study_that_is_done_has_nothing_to_do(tmp_path: Path) -> None:
    pipeline.finished_study(tmp_path)
    output = pipeline.run_command("dvc", "repro", at=tmp_path)
    running = {line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage")}
    assert running == {"hardware", "source", "publish"}
