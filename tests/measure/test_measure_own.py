"""The search over ways to train a user's file; what is said of it is tested with its report."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from own_file import advised, blocks, own_trainings, results, way, write_own
from small_tasks import alone

from parashot.cli import main
from parashot.errors import DeviceError, ParashotError, TaskError
from parashot.hardware import inspect_hardware
from parashot.parallel.launch import launch
from parashot.params import ParallelParams
from parashot.questions.own import measure
from parashot.questions.own.candidates import candidates, refined, refinements
from parashot.questions.own.checks import Checked
from parashot.questions.own.closer import measure_sizes, parts_rank
from parashot.questions.own.measure import Measurement, OwnTrainings, measure_own, own_parallel
from parashot.questions.own.records import PLAIN, OwnWay, SizeRow
from parashot.questions.own.search import Found, better_half, simplest_of_the_best
from parashot.questions.timed import steps_of_block
from parashot.questions.ways.records import SkippedWay, WayBlock
from parashot.records import append_row, read_rows
from parashot.report.own import write_own_report
from parashot.tasks.own import OwnTask, own_task


def test_halving_ends_with_the_fastest() -> None:
    seconds = {"0": 0.3, "1": 0.1, "2": 0.5, "3": 0.2, "4": 0.4, "5": 0.15}
    left = [way(name) for name in seconds]
    measured = [block for name, step in seconds.items() for block in blocks(name, step, 0)]
    for _ in range(2):
        left = better_half(left, measured, 2)
    assert [each.way for each in left] == ["1", "5"]
    # a block lasts a quarter of a second unless that are too many steps
    bench = own_parallel().bench
    assert [steps_of_block(each, bench) for each in (1.0, 0.1, 0.01, 1e-6)] == [1, 3, 25, 200]


@pytest.mark.parametrize(("by_ddp", "refined"), [(0.104, "ddp"), (0.106, "allreduce")])
def test_of_ways_about_as_fast_the_simplest_is_refined(by_ddp: float, refined: str) -> None:
    ddp = way("ddp", replicas=2)
    best = (replace(ddp, way="allreduce", strategy="allreduce"), ddp)
    timed = (*blocks("allreduce", 0.1, 0), *blocks("ddp", by_ddp, 0))
    assert simplest_of_the_best(Found(timed, best, 0.0, 0.0)).way == refined


def test_what_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every strategy that shares items out, with workers for each rank; on one replica only one process."""
    monkeypatch.setattr("parashot.parallel.context.usable_cores", lambda: 2)
    monkeypatch.setattr("parashot.questions.own.candidates.usable_threads", lambda: 4)
    monkeypatch.setattr("parashot.questions.own.candidates.precisions", lambda device: ["fp32", "bf16"])
    task, parallel = own_task(write_own(tmp_path, "own_tried")), replace(own_parallel(), device="cpu")
    found = candidates(task, parallel)
    assert found.ways[0] == OwnWay(PLAIN, "serial", 1, 2, 6, 0, "fp32", "none", "cpu")
    assert {(each.strategy, each.workers) for each in found.ways} == {
        *(("serial", count) for count in (0, 1, 2, 4)),
        *((name, count) for name in ("ddp", "allreduce", "fsdp") for count in (0, 2, 4)),
    }
    assert [each.what for each in found.skipped] == ["dp"] and "GPUs only" in found.skipped[0].reason
    lone = candidates(replace(task, batchsz=1), parallel)
    assert {each.strategy for each in lone.ways} == {"serial"}
    assert {each.what for each in lone.skipped} == {"dp", "ddp", "allreduce", "fsdp"}

    said = 'default = {"strategy": "ddp", "workers": 2, "precision": "bf16"}\nbatchsz = 6'
    own = candidates(own_task(write_own(tmp_path, "own_default", "batchsz = 6", said)), parallel)
    assert own.ways[0] == OwnWay(PLAIN, "ddp", 2, 1, 6, 2, "bf16", "none", "cpu")
    assert len(own.ways) == len(found.ways)  # with the plain one, and the default but once
    alone_without = [each.way for each in own.ways if (each.strategy, each.workers) == ("serial", 0)]
    assert alone_without == ["serial-0-fp32", "serial-0-bf16"]
    said = said.replace("{", '{"prefetch": 4, ')
    other = candidates(own_task(write_own(tmp_path, "own_prefetch", "batchsz = 6", said)), parallel)
    assert {each.prefetch for each in other.ways} == {4} and len(other.ways) == len(found.ways)


@pytest.mark.parametrize(
    ("default", "message"),
    [
        ({"worker": 2}, r"default\.worker: unknown key; did you mean workers\? known here: strategy, "),
        (["ddp"], r"default: \['ddp'\] found, a section with keys is needed"),
        ({"workers": True}, r"default\.workers: True is not allowed; it must be a whole number at least 0"),
        ({"strategy": "horovod"}, "default: strategy is 'horovod'; here it can be serial, dp, ddp, "),
        ({"precision": "fp8"}, "default: precision is 'fp8'; here it can be fp32"),
        ({"strategy": "dp"}, "default: dp is not possible here: torch.nn.DataParallel spreads"),
    ],
)
def test_a_wrong_default_is_one_line(default: object, message: str, tmp_path: Path) -> None:
    name = f"own_wrong_{abs(hash(str(default)))}"
    file = write_own(tmp_path, name, "batchsz = 6", f"default = {default!r}\nbatchsz = 6")
    with pytest.raises(ParashotError, match=f"{name}.py: {message}"):
        candidates(own_task(file), replace(own_parallel(), device="cpu", replicas=2))


def test_only_what_could_help_is_changed_and_what_helps_is_taken_together(tmp_path: Path) -> None:
    optimizer, layer = "RMSprop(parameters, lr=0.05)", "nn.Tanh()"

    def found(name: str, old: str, new: str, *, compiling: bool = False, **changes: Any) -> list[OwnWay]:
        task = own_task(write_own(tmp_path, f"own_{name}", old, new))
        return refinements(replace(way("best"), **changes), task, tried(0, 1, 2), compiling=compiling)

    best = way("best", workers=2)
    both = found("refined", optimizer, "SGD(parameters)", workers=2)
    assert [(each.fused, each.prefetch) for each in both] == [(True, 2), (False, 4)]
    (changed,) = found("images", layer, "nn.Tanh(), nn.Conv2d(2, 2, 3)")
    assert changed == replace(way("best-channels_last"), channels_last=True)
    there = "nn.Tanh(), nn.Conv2d(2, 2, 3).to(memory_format=torch.channels_last)"
    assert found("channels_last_there", layer, there) == []
    assert found("fused_there", optimizer, "SGD(parameters, fused=True)") == []
    assert found("foreach", optimizer, "SGD(parameters, foreach=True)") == []
    assert found("sharded", optimizer, "SGD(parameters)", strategy="fsdp", compiling=True) == []

    def taken(fused: float, prefetch: float) -> OwnWay:
        seconds = {"best": 0.1, both[0].way: fused, both[1].way: prefetch}
        return refined(best, both, [block for each in seconds.items() for block in blocks(*each)])

    assert taken(0.09, 0.0999) == both[0]
    assert taken(0.0999, 0.0999) == best
    together = taken(0.09, 0.09)
    assert (together.fused, together.prefetch, together.workers) == (True, 4, 2)


def tried(*workers: int) -> list[OwnWay]:
    return [way(f"serial-{count}", workers=count) for count in workers]


def test_other_numbers_of_workers_refine_a_way_and_the_fastest_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those that the search has not tried, by choice or for want of time."""
    monkeypatch.setattr("parashot.questions.own.candidates.usable_threads", lambda: 16)
    rows = own_task(write_own(tmp_path, "own_tanh_workers", "nn.Tanh()", "nn.Tanh()"))

    def counts(workers: int, *before: int) -> list[int]:
        found = refinements(way("best", workers=workers), rows, tried(*before), compiling=False)
        return [each.workers for each in found if each.workers != workers]

    assert [counts(each, 0, 1, 8, 16) for each in (0, 1, 8, 16)] == [[], [2], [4], []]
    assert counts(4, 0, 1, 8, 16) == [2]
    assert counts(16, 0, 16) == [8]
    others = [replace(each, precision="bf16") for each in tried(8)]
    found = refinements(way("best", workers=16), rows, others, compiling=False)
    assert [each.workers for each in found if each.workers != 16] == [8]
    best = way("best", workers=4)
    fewer, more = replace(best, way="fewer", workers=2), replace(best, way="more", workers=6)
    timed = [*blocks("best", 0.1), *blocks("fewer", 0.08), *blocks("more", 0.09)]
    assert refined(best, [fewer, more], timed).workers == 2


def test_a_step_has_its_parts_and_a_batch_grows_as_far_as_there_are_samples(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("parashot.questions.own.closer.launch_apart", launch)
    file = write_own(tmp_path, "own_parts", "batchsz = 6", "batchsz = 3")
    trainings = OwnTrainings(own_task(file), own_parallel())
    three = replace(way("serial"), batchsz=3)
    (parts,) = parts_rank(alone(), trainings, [three])
    shares = [parts.forward, parts.backward, parts.optimizer, parts.exchange, parts.idle]
    assert sum(shares) == pytest.approx(1) and min(shares[:3]) > 0 and parts.exchange == 0
    sizes: list[SizeRow] = []
    reason = measure_sizes(trainings, three, 10, alone().placement, time.monotonic() + 600, sizes)
    assert [each.batchsz for each in sizes] == [3, 6] and "10 samples" in reason
    assert all(each.seconds_per_step > 0 and each.memory_bytes > 2**20 for each in sizes)
    none: list[SizeRow] = []
    late = measure_sizes(trainings, three, 10, alone().placement, time.monotonic(), none)
    assert none == [] and "no time" in late


def test_a_default_that_cannot_train_this_network_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = write_own(tmp_path, "own_unable", "batchsz = 6", 'default = {"strategy": "ddp"}\nbatchsz = 6')
    parallel = replace(own_parallel(), device="cpu", replicas=2)
    failed = Checked({}, [SkippedWay("ddp", "it has a hook")], [], parallel)
    monkeypatch.setattr(measure, "own_parallel", lambda: parallel)
    monkeypatch.setattr(measure, "check_own", lambda *_: failed)
    with pytest.raises(TaskError, match=r"own_unable\.py: default: ddp cannot train it: it has a hook"):
        measure_own(file, 0)


@pytest.fixture
def four_ways(monkeypatch: pytest.MonkeyPatch, standing_launch: None, one_core: None) -> ParallelParams:
    """Two replicas, no workers, fp32, and blocks that are over at once."""
    monkeypatch.setattr("parashot.questions.own.candidates.worker_counts", lambda ranks: [0])
    monkeypatch.setattr("parashot.questions.own.candidates.precisions", lambda device: ["fp32"])
    parallel = replace(own_parallel(), device="cpu", replicas=2)
    parallel = replace(parallel, bench=replace(parallel.bench, seconds=0.001))
    monkeypatch.setattr(measure, "own_parallel", lambda: parallel)
    return parallel


def test_all_ways_are_searched_where_there_is_time(four_ways: ParallelParams, tmp_path: Path) -> None:
    task = own_task(write_own(tmp_path, "own_searched", "RMSprop(parameters, lr=0.05)", "SGD(parameters)"))
    ways, trainings = candidates(task, four_ways).ways, OwnTrainings(task, four_ways)
    measurement = Measurement(trainings, 0.0, time.monotonic(), 200.0, tmp_path, ways)
    found = measurement.search()
    assert {each.way for each in found.blocks} == {each.way for each in ways} and measurement.ways == ways
    finalists = measurement.refine(found)
    assert {*finalists} >= {ways[0], *found.best} and measurement.warnings == []
    kept = [each.way for each in finalists if each.keep_memory]
    assert len(kept) in (1, 2) and kept[-1] == "default-keep_memory"
    unkept = [each.way.removesuffix("-keep_memory") for each in finalists if each.keep_memory]
    assert {*unkept} <= {each.way for each in finalists}


def test_a_budget_for_all_ways_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Half of the search's time has to make all of them ready."""
    ways = [way(PLAIN), *(way(str(number), workers=number) for number in (1, 2, 3))]
    tried = tuple(block for each in ways[:2] for block in blocks(each.way, 0.1))
    found = Found(tried, (ways[1],), block_seconds=1.0, ready_seconds=12.0)
    monkeypatch.setattr(measure, "launch_apart", lambda *_: found)
    for budget, minutes in ((60, 5), (600, 12)):  # 10 s of checks, and 4 * 12 s / 0.5 / 0.35
        measurement = Measurement(own_trainings(), 10.0, time.monotonic(), budget, tmp_path, [*ways])
        assert measurement.search() == found and measurement.ways == ways[:2]
        (warning,) = measurement.warnings
        assert warning.startswith("2 of 4 ways were not tried") and f"--budget {minutes} " in warning


def test_a_file_is_measured_and_its_report_written(four_ways: ParallelParams, tmp_path: Path) -> None:
    """With no time at all: a round of two ways, and the least of the finals."""
    found = measure_own(write_own(tmp_path, "own_measured"), 0)
    assert {each.way for each in found.search} == {PLAIN, "ddp-0-fp32"}
    assert found.gradients.keys() == {"ddp", "allreduce", "fsdp"}
    assert max(found.gradients.values()) < 1e-10
    warning, *more = found.warnings
    assert warning.startswith("2 of 4 ways were not tried, for want of time: --budget ")
    plain, other = found.finalists  # the second is what the search found to be best, or the default once more
    not_kept = ["keeping freed memory was not tried, for want of time"]
    assert plain.way == PLAIN and more == {"default-keep_memory": [], "ddp-0-fp32": not_kept}[other.way]
    assert len(found.finals) == 9 * 2
    advice = advised(found)
    write_own_report(tmp_path / "report", Path("own.py"), found, advice, inspect_hardware())
    assert read_rows(WayBlock, tmp_path / "report/finals.csv") == [*found.finals]
    tree = json.loads((tmp_path / "report/advice.json").read_text(encoding="utf-8"))
    assert (tree["sentence"], tree["tried"]) == (advice.sentence, len(found.ways))
    assert {each.way for each in found.parts} == {PLAIN, advice.choice.choice} == {*tree["parts"]}
    assert tree["batch_sizes"] == [] and "no time" in tree["no_larger"]
    assert tree["finalists"][0]["speedup"] == 1
    assert "How to train own.py" in (tmp_path / "report/index.html").read_text(encoding="utf-8")


def test_a_size_that_fails_ends_the_search_for_larger_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured before stays."""
    for error, reason in (
        (DeviceError("CUDA out of memory. Tried to allocate 2 GiB"), "6 samples do not fit in memory"),
        (TaskError("train.py:9, in loss: the memory is full"), "6 samples do not fit in memory"),
        (DeviceError("no GPU is here"), "a step of 6 samples fails: no GPU is here"),
    ):
        monkeypatch.setattr("parashot.questions.own.closer.launch_apart", Mock(side_effect=error))
        sizes = list[SizeRow]()
        found = measure_sizes(own_trainings(), way("serial"), 100, alone().placement, math.inf, sizes)
        assert (found, sizes) == (reason, [])


def test_what_was_measured_before_an_error_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the search by `measure_own`; the answer of the blocks of the finals by the command."""
    file, gone = write_own(tmp_path, "own_failing"), DeviceError("rank 1 is gone")
    timed = blocks(PLAIN, 0.1)

    def searched(measurement: Measurement) -> None:
        for each in timed:
            append_row(measurement.folder / "search.csv", WayBlock, each)

    monkeypatch.setattr(measure, "check_own", lambda *_: Checked({}, [], [], own_parallel()))
    monkeypatch.setattr(Measurement, "search", searched)
    monkeypatch.setattr(Measurement, "refine", Mock(side_effect=gone))
    found = measure_own(file, 0)
    assert (found.error, [*found.search]) == (gone, timed)
    timed.clear()
    with pytest.raises(DeviceError, match="rank 1 is gone"):
        measure_own(file, 0)

    sizes = (SizeRow(12, 0.15, 2**31, 4.0),)
    found = replace(results({way(PLAIN): 0.2}), error=gone, sizes=sizes, no_larger="no time was left")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("parashot.cli.measure.measure_own", lambda *_: found)
    monkeypatch.setattr("parashot.cli.measure.publish_own", lambda *_: None)
    assert main(["measure", str(file)]) == 1
    printed = capsys.readouterr()
    assert printed.err == "error: rank 1 is gone\n"
    assert printed.out.startswith("Keep one process")
    assert "batches larger than 12 were not tried: no time was left" in printed.out
    assert (tmp_path / "parashot-report/index.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("journal", "blocks", "answered"), [("search.csv", 3, False), ("finals.csv", 14, True)]
)
def test_what_was_measured_before_ctrl_c_is_kept(
    journal: str, blocks: int, answered: bool, tmp_path: Path
) -> None:
    """Stopped in the search there is no answer; after two rounds of the finals there is one."""
    file = str(write_own(tmp_path, "own_stopped"))
    command = [sys.executable, "-m", "parashot.cli", "measure", file, "--budget", "2"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    running = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    until = time.monotonic() + 180
    while sum(1 for each in tmp_path.glob(f"parashot-measure-*/{journal}") for _ in each.open()) <= blocks:
        assert running.poll() is None and time.monotonic() < until
        time.sleep(0.1)
    os.killpg(running.pid, signal.SIGINT)
    _, said = running.communicate(timeout=60)
    # a worker that was just being started may say that the rank it was for is gone
    assert (running.returncode, "KeyboardInterrupt" in said) == (130, False), said
    report = tmp_path / "parashot-report"
    assert len(read_rows(WayBlock, report / journal)) >= blocks
    assert (report / "index.html").exists() == answered
    if answered:
        assert json.loads((report / "advice.json").read_text(encoding="utf-8"))["stopped"]


@pytest.mark.parametrize(
    ("said", "named"),
    [("CUDA out of memory", True), ("rank 1 ended with exit code -9", True), ("a worker was killed", False)],
)
def test_full_memory_comes_with_advice(said: str, named: bool, tmp_path: Path) -> None:
    with pytest.raises(DeviceError) as error, measure.full_memory_named(OwnTask(tmp_path / "own.py", 64)):
        raise DeviceError(said)
    assert ("64 samples per step: set a smaller batchsz in" in str(error.value)) == named
