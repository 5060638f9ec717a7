"""Loaders: the same bytes with any number of workers and any backend, and equal work for every rank."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import time
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Timer

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_data import IMAGES, tiny_params

from parashot.data.episode_dataset import Backend, EpisodeDataset
from parashot.data.loaders import _naming_lost_workers, step_loader
from parashot.data.packed import PackedSplit, resident_images
from parashot.data.pixels import prepare
from parashot.errors import DeviceError
from parashot.parallel.context import Context, Placement
from parashot.params import EpisodeSpec
from parashot.task import Batch, Plan
from parashot.tasks.relation import RelationTask

CPU = torch.device("cpu")
SPEC = EpisodeSpec(2, 1, 2)


def dataset(packed: Path, plan: Plan, backend: Backend = "packed", image_size: int = 16) -> EpisodeDataset:
    return EpisodeDataset(PackedSplit(packed, "train"), SPEC, plan, 3, backend, image_size)


def as_bytes(batches: list[Batch]) -> list[bytes]:
    return [b"".join(tensor.numpy().tobytes() for tensor in each.tensors) for each in batches]


@pytest.mark.parametrize("backend", ["packed", "jpeg"])
def test_workers_read_the_same_bytes_and_end_with_their_loader(tiny_packed: Path, backend: Backend) -> None:
    data = dataset(tiny_packed, Plan(11, 3), backend)
    alone = as_bytes(list(step_loader(data, range(4), 0, 2, CPU)))
    assert as_bytes(list(step_loader(data, range(4), 3, 2, CPU))) == alone
    before = family()
    later = step_loader(data, range(2, 4), 2, 2, CPU)
    assert as_bytes([next(later)]) == alone[2:3]
    workers = family() - before
    assert len(workers) >= 2
    del later
    gc.collect()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive


def test_ranks_with_workers_of_their_own_read_what_they_read_without(tiny_packed: Path) -> None:
    """All of them together read the episodes of one process."""

    def read(workers: int, rank: int = 0, world_size: int = 1) -> list[Batch]:
        task = RelationTask(tiny_params({"loader.workers": workers}), tiny_packed)
        context = Context(rank, world_size, rank, world_size, Placement("cpu", world_size, 1, 2))
        return list(task.batches(Plan(11, 3, rank, world_size), context))

    with_workers, without = ([read(workers, rank, 2) for rank in (0, 1)] for workers in (3, 0))
    assert [as_bytes(each) for each in with_workers] == [as_bytes(each) for each in without]
    for whole, *shares in zip(read(0), *without, strict=True):
        for place in (0, 1):
            parts = [each.data[place] for each in shares if each.weight]
            assert torch.equal(torch.cat(parts), whole.data[place])


def test_a_resident_split_gives_the_same_batches(tiny_packed: Path) -> None:
    split = PackedSplit(tiny_packed, "train")
    images = resident_images(split, CPU)
    for rank in range(3):  # the last batch has no share for the last rank
        plan = Plan(11, 3, rank, 3)
        data = dataset(tiny_packed, plan)
        gathered = [data[step] for step in range(4)]
        resident = list(data.resident_batches(images, range(4)))
        assert as_bytes(resident) == as_bytes(gathered)
        for ours, theirs in zip(resident, gathered, strict=True):
            assert (ours.total, ours.weight) == (theirs.total, theirs.weight)


def test_a_resident_split_that_does_not_fit_is_refused(
    tiny_packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parashot.data.packed._free_bytes", lambda device: 100)
    with pytest.raises(DeviceError, match=r"^loader\.backend: resident needs .* set it to packed$"):
        resident_images(PackedSplit(tiny_packed, "train"), CPU)


def test_rows_do_not_depend_on_how_many_steps_are_drawn_at_once(
    tiny_packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = dataset(tiny_packed, Plan(50, 3, 1, 2))
    unused = len(pickle.dumps(data))
    at_once = as_bytes([data[step] for step in range(17)])
    assert len(pickle.dumps(data)) == unused  # no rows go along to workers
    monkeypatch.setattr("parashot.data.episode_dataset.DRAWN_AT_ONCE", 1)
    one_by_one = dataset(tiny_packed, Plan(50, 3, 1, 2))
    assert as_bytes([one_by_one[step] for step in reversed(range(17))]) == at_once[::-1]


def test_batches_of_any_shape_come_apart_in_order() -> None:
    batch = Batch({"x": torch.arange(5), "more": [torch.arange(10).view(5, 2), "a name"]}, total=9)
    parts = list(batch.parts(2))
    assert [each.data["x"].tolist() for each in parts] == [[0, 1, 2], [3, 4]]
    assert [(each.data["more"][1], each.total) for each in parts] == [("a name", 9)] * 2
    assert len(list(batch.parts(9))) == 5


@pytest.mark.parametrize("size", [16, 28])
def test_both_backends_give_the_same_pixels(tiny_packed: Path, size: int) -> None:
    """Where the stored size is not the network's, each is resized in its own way."""
    plan = Plan(4, 4)
    gathered, decoded = (dataset(tiny_packed, plan, backend, size)[0] for backend in ("packed", "jpeg"))
    for ours, theirs, images in zip(gathered.data[:2], decoded.data[:2], ((2, 1), (4,)), strict=True):
        assert (ours.dtype, theirs.dtype) == (torch.uint8, torch.float32)
        prepared = prepare(ours, size)
        assert prepared.shape == theirs.shape == (4, *images, 3, size, size)
        assert size != 16 or torch.equal(prepared, theirs)
        assert prepared.flatten(0, -4).is_contiguous(memory_format=torch.channels_last)


def test_batches_name_their_episodes_and_queries_are_grouped_by_class(tiny_packed: Path) -> None:
    split = PackedSplit(tiny_packed, "train")
    support, query, episodes = dataset(tiny_packed, Plan(12, 6, 1, 2))[1].data
    assert episodes.tolist() == [9, 10, 11]
    owner = {image.tobytes(): row // IMAGES for row, image in enumerate(split.images)}

    def owners(images: torch.Tensor) -> list[int]:
        return [owner[image.movedim(0, -1).contiguous().numpy().tobytes()] for image in images]

    for supports, queries in zip(support, query, strict=True):
        first, second = owners(supports[:, 0])
        assert owners(queries) == [first, first, second, second]


@given(items=st.integers(1, 200), batchsz=st.integers(1, 40), world_size=st.integers(1, 7))
def test_ranks_share_every_item_once_and_evenly(items: int, batchsz: int, world_size: int) -> None:
    plans = [Plan(items, batchsz, rank, world_size) for rank in range(world_size)]
    seen = []
    for step in range(plans[0].steps):
        shares = [list(plan.share(step)) for plan in plans]
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert sum(map(len, shares)) == plans[0].total(step)
        seen += [item for share in shares for item in share]
        for plan in plans:  # one without a share takes part with the step's first item and weight 0
            assert len(plan.reads(step)) >= 1
            assert plan.weight(step) == (len(plan.share(step)) > 0)
    assert seen == list(range(items))


def test_a_killed_worker_is_told_in_one_line(tiny_packed: Path) -> None:
    before = family()
    loader = step_loader(dataset(tiny_packed, Plan(4000, 2)), range(2000), 2, 2, CPU)
    next(loader)
    (family() - before).pop().kill()
    with pytest.raises(DeviceError, match=r"^a loader worker was killed \(.+\); run again"):
        list(loader)


def test_the_signal_of_a_killed_worker_may_come_while_its_connection_fails() -> None:
    """PyTorch's handler raises wherever the program is."""

    def told(*_: object) -> None:
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")

    def failing() -> Iterator[int]:
        yield 1
        Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        raise ConnectionResetError("reset by peer")

    before = signal.signal(signal.SIGUSR1, told)
    try:
        with pytest.raises(DeviceError, match=r"^a loader worker was killed \(DataLoader worker \(pid 7\)"):
            list(_naming_lost_workers(failing()))
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_killed_process_leaves_no_workers_behind(tiny_packed: Path) -> None:
    began, begin = get_context("spawn").Pipe(duplex=False)
    process = get_context("spawn").Process(target=read_on, args=(dataset(tiny_packed, Plan(400, 2)), begin))
    process.start()
    began.recv()
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == 2  # the workers
    process.kill()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive


def read_on(data: EpisodeDataset, begin: Connection) -> None:
    """Read a batch, say so, and wait."""
    loader = step_loader(data, range(200), 2, 2, CPU)
    next(loader)
    begin.send(True)
    time.sleep(600)


def family() -> set[psutil.Process]:
    """All processes below this one, standing ranks of other tests included."""
    return set(psutil.Process().children(recursive=True))
