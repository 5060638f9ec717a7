"""Loaders: the same bytes with any number of workers and any backend, and equal work for every rank."""

from __future__ import annotations

import gc
import pickle
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_packed import make_packed
from tiny_data import tiny_params

from parashot.data.episode_dataset import Backend, EpisodeDataset, resident_batches
from parashot.data.episodes import EpisodeSpec
from parashot.data.loaders import step_loader, workers_of_rank
from parashot.data.packed import PackedSplit, ResidentSplit
from parashot.data.pixels import normalise, prepare
from parashot.errors import DeviceError
from parashot.parallel.context import Context, Placement
from parashot.task import Batch, Plan
from parashot.tasks.relation import RelationTask

CPU = torch.device("cpu")
SPEC = EpisodeSpec(2, 1, 2)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_packed(tmp_path_factory.mktemp("data"))


def dataset(packed: Path, plan: Plan, backend: Backend = "packed", image_size: int = 20) -> EpisodeDataset:
    return EpisodeDataset(PackedSplit(packed, "train"), SPEC, plan, 3, backend, image_size)


def loaded(data: EpisodeDataset, workers: int) -> list[Batch]:
    return list(step_loader(data, range(len(data)), workers, 2, CPU))


def as_bytes(batches: list[Batch]) -> list[bytes]:
    return [b"".join(tensor.numpy().tobytes() for tensor in each.tensors) for each in batches]


@pytest.mark.parametrize("backend", ["packed", "jpeg"])
def test_any_number_of_workers_reads_the_same_bytes(packed: Path, backend: Backend) -> None:
    data = dataset(packed, Plan(11, 3), backend)
    alone = as_bytes(loaded(data, 0))
    assert len(alone) == 4
    for workers in (2, 4):
        assert as_bytes(loaded(data, workers)) == alone
    later = step_loader(data, range(2, 4), 2, 2, CPU)
    assert as_bytes(list(later)) == alone[2:]


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


def test_a_resident_split_gives_the_same_batches(packed: Path) -> None:
    split = ResidentSplit(PackedSplit(packed, "train"), CPU)
    for rank in range(3):  # the last batch has no share for the last rank
        plan = Plan(11, 3, rank, 3)
        gathered = loaded(dataset(packed, plan), 0)
        resident = list(resident_batches(split, SPEC, plan, 3, range(4)))
        assert as_bytes(resident) == as_bytes(gathered)
        for ours, theirs in zip(resident, gathered, strict=True):
            assert (ours.total, ours.weight) == (theirs.total, theirs.weight)


def test_a_resident_split_that_does_not_fit_is_refused(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parashot.data.packed._free_bytes", lambda device: 100)
    with pytest.raises(DeviceError, match=r"^loader\.backend: resident needs .* set it to packed$"):
        ResidentSplit(PackedSplit(packed, "train"), CPU)


def test_rows_do_not_depend_on_how_many_steps_are_drawn_at_once(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = dataset(packed, Plan(50, 3, 1, 2))
    unused = len(pickle.dumps(data))
    at_once = as_bytes([data[step] for step in range(17)])
    assert len(pickle.dumps(data)) == unused  # no rows go along to workers
    monkeypatch.setattr("parashot.data.episode_dataset.DRAWN_AT_ONCE", 1)
    one_by_one = dataset(packed, Plan(50, 3, 1, 2))
    assert as_bytes([one_by_one[step] for step in reversed(range(17))]) == at_once[::-1]


@pytest.mark.parametrize("workers", [0, 2])
def test_support_and_query_are_filled_by_one_gather(packed: Path, workers: int) -> None:
    for batch in loaded(dataset(packed, Plan(4, 2)), workers):
        support, query, _ = batch.data
        first, second = support.untyped_storage(), query.untyped_storage()
        assert support.is_shared() == query.is_shared() == (workers > 0)
        assert first.nbytes() == second.nbytes() == 2 * 6 * 20 * 20 * 3
        assert workers or first.data_ptr() == second.data_ptr()


def test_batches_name_their_episodes(packed: Path) -> None:
    assert dataset(packed, Plan(12, 6, 1, 2))[1].data[2].tolist() == [9, 10, 11]


def test_batches_of_any_shape_come_apart_in_order() -> None:
    data = {"x": torch.arange(5), "more": [torch.arange(10).view(5, 2), "a name"]}
    batch = Batch(data, total=9)
    parts = list(batch.parts(2))
    assert [each.data["x"].tolist() for each in parts] == [[0, 1, 2], [3, 4]]
    assert [(each.data["more"][1], each.total) for each in parts] == [("a name", 9)] * 2
    assert torch.equal(torch.cat([each.data["more"][0] for each in parts]), batch.data["more"][0])
    assert len(list(batch.parts(9))) == 5
    assert batch.map(lambda each: each + 1).data["x"].tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("size", [20, 28])
def test_both_backends_give_the_same_pixels(packed: Path, size: int) -> None:
    """Where the stored size is not the network's, each is resized in its own way."""
    gathered, decoded = (dataset(packed, Plan(4, 4), backend, size)[0] for backend in ("packed", "jpeg"))
    for ours, theirs, images in zip(gathered.data[:2], decoded.data[:2], ((2, 1), (4,)), strict=True):
        assert (ours.dtype, theirs.dtype) == (torch.uint8, torch.float32)
        prepared = prepare(ours, size)
        assert prepared.shape == theirs.shape == (4, *images, 3, size, size)
        assert size != 20 or torch.equal(prepared, theirs)
        assert prepared.flatten(0, -4).is_contiguous(memory_format=torch.channels_last)


def test_queries_are_grouped_by_class(packed: Path) -> None:
    split = PackedSplit(packed, "train")
    support, query, _ = dataset(packed, Plan(6, 6))[0].data
    owner = {split.images[row].tobytes(): row // 4 for row in range(12)}

    def owners(images: torch.Tensor) -> list[int]:
        return [owner[image.movedim(0, -1).contiguous().numpy().tobytes()] for image in images]

    for supports, queries in zip(support, query, strict=True):
        first, second = owners(supports[:, 0])
        assert owners(queries) == [first, first, second, second]


def test_normalising_centres_the_mean_of_imagenet() -> None:
    grey = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1).expand(3, 4, 4) * 255
    assert normalise(grey).abs().max() < 1e-6


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


@given(workers=st.integers(0, 50), world_size=st.integers(1, 8))
def test_a_machines_workers_are_shared_out(workers: int, world_size: int) -> None:
    shares = [workers_of_rank(workers, rank, world_size) for rank in range(world_size)]
    assert sum(shares) == workers
    assert max(shares) - min(shares) <= 1


# --- processes --------------------------------------------------------------------------------------------


def test_workers_keep_no_growing_copy_of_the_data_and_end_with_their_loader(packed: Path) -> None:
    """Reading on and on must not turn shared pages into private ones, as lists of objects do."""
    loader = step_loader(dataset(packed, Plan(4000, 2)), range(2000), 2, 2, CPU)
    for _ in range(200):
        next(loader)
    before = private_bytes()
    for _ in range(1200):
        next(loader)
    assert private_bytes() - before < 8 * 2**20
    workers = worker_processes()
    assert len(workers) >= 2
    del loader
    gc.collect()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive


def test_a_killed_worker_is_told_in_one_line(packed: Path) -> None:
    loader = step_loader(dataset(packed, Plan(4000, 2)), range(2000), 2, 2, CPU)
    next(loader)
    worker_processes()[-1].kill()
    with pytest.raises(DeviceError, match=r"^a loader worker was killed \(.+\); run again") as error:
        list(loader)
    assert "\n" not in str(error.value)


def test_a_killed_process_leaves_no_workers_behind(packed: Path) -> None:
    began, begin = get_context("spawn").Pipe(duplex=False)
    process = get_context("spawn").Process(target=read_on, args=(dataset(packed, Plan(400, 2)), begin))
    process.start()
    began.recv()
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 3  # a fork server and two workers
    process.kill()
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive


def read_on(data: EpisodeDataset, begin: Connection) -> None:
    """Read a batch, say so, and wait."""
    loader = step_loader(data, range(200), 2, 2, CPU)
    next(loader)
    begin.send(True)
    time.sleep(600)


def worker_processes() -> list[psutil.Process]:
    """Leaves of this process's tree but standing ranks: the workers, which the forkserver has forked."""
    children = psutil.Process().children(recursive=True)
    leaves = [child for child in children if not child.children() and child.parent() != psutil.Process()]

    def is_standing(child: psutil.Process) -> bool:
        return any("standing_ranks" in " ".join(each.cmdline()) for each in child.parents())

    return [child for child in leaves if not is_standing(child)]


def private_bytes() -> int:
    return sum(process.memory_full_info().uss for process in worker_processes())
