"""Loaders: the same bytes with any number of workers and either backend, equal work for every rank."""

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
from parashot.data.batches import Batch, Plan
from test_packed import make_packed

from parashot.data.episodes import EpisodeSpec
from parashot.data.loaders import Backend, EpisodeDataset, episode_loader, workers_of_rank
from parashot.data.packed import PackedSplit
from parashot.data.pixels import normalise, prepare
from parashot.errors import DeviceError

CPU = torch.device("cpu")
SPEC = EpisodeSpec(2, 1, 2)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_packed(tmp_path_factory.mktemp("data"))


def dataset(packed: Path, plan: Plan, backend: Backend = "packed", image_size: int = 20) -> EpisodeDataset:
    return EpisodeDataset(PackedSplit(packed, "train"), SPEC, plan, 3, backend, image_size)


def as_bytes(batches: list[Batch]) -> list[bytes]:
    return [b"".join(tensor.numpy().tobytes() for tensor in each.tensors) for each in batches]


@pytest.mark.parametrize("backend", ["packed", "jpeg"])
def test_any_number_of_workers_reads_the_same_bytes(packed: Path, backend: Backend) -> None:
    data = dataset(packed, Plan(11, 3), backend)
    alone = as_bytes(list(episode_loader(data, 0, 2, CPU)))
    assert len(alone) == 4
    for workers in (2, 4):
        assert as_bytes(list(episode_loader(data, workers, 2, CPU))) == alone


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_resident_split_gives_the_same_batches(packed: Path, ranks: int) -> None:
    for rank in range(ranks):
        plan = Plan(11, 3, rank, ranks)
        gathered = list(episode_loader(dataset(packed, plan), 0, 2, CPU))
        resident = list(episode_loader(dataset(packed, plan, "resident"), 0, 2, CPU))
        assert as_bytes(resident) == as_bytes(gathered)
        assert [(each.total, each.weight) for each in resident] == [
            (each.total, each.weight) for each in gathered
        ]


def test_a_resident_split_that_does_not_fit_is_refused(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parashot.data.resident._free_bytes", lambda device: 100)
    with pytest.raises(DeviceError, match=r"^loader\.backend: resident needs .* set it to packed$"):
        episode_loader(dataset(packed, Plan(2, 2), "resident"), 0, 2, CPU)


def test_rows_do_not_depend_on_how_many_steps_are_drawn_at_once(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = dataset(packed, Plan(50, 3, 1, 2))
    at_once = as_bytes([data[step] for step in range(17)])
    monkeypatch.setattr("parashot.data.step_rows.DRAWN_AT_ONCE", 1)
    one_by_one = dataset(packed, Plan(50, 3, 1, 2))
    assert as_bytes([one_by_one[step] for step in reversed(range(17))]) == at_once[::-1]


@pytest.mark.parametrize("workers", [0, 2])
def test_support_and_query_are_filled_by_one_gather(packed: Path, workers: int) -> None:
    for batch in episode_loader(dataset(packed, Plan(4, 2)), workers, 2, CPU):
        first, second = batch.support.untyped_storage(), batch.query.untyped_storage()
        assert batch.support.is_shared() == batch.query.is_shared() == (workers > 0)
        assert first.nbytes() == second.nbytes() == 2 * 6 * 20 * 20 * 3
        assert workers or first.data_ptr() == second.data_ptr()


def test_batches_name_their_episodes_and_come_apart_in_order(packed: Path) -> None:
    batch = dataset(packed, Plan(12, 6, 1, 2))[1]
    assert batch.episodes.tolist() == [9, 10, 11]
    parts = list(batch.parts(2))
    assert [part.episodes.tolist() for part in parts] == [[9, 10], [11]]
    assert torch.equal(torch.cat([part.query for part in parts]), batch.query)
    assert {part.total for part in parts} == {6}
    assert len(list(batch.parts(5))) == 3


def test_a_dataset_takes_no_rows_along_to_its_workers(packed: Path) -> None:
    data = dataset(packed, Plan(1000, 2))
    unused = len(pickle.dumps(data))
    data[3]
    assert len(pickle.dumps(data)) == unused


def test_both_backends_give_the_same_pixels(packed: Path) -> None:
    gathered, decoded = (dataset(packed, Plan(4, 4), backend)[0] for backend in ("packed", "jpeg"))
    assert gathered.support.dtype == torch.uint8
    assert decoded.support.dtype == torch.float32
    assert gathered.support.shape == decoded.support.shape == (4, 2, 1, 3, 20, 20)
    assert gathered.query.shape == decoded.query.shape == (4, 4, 3, 20, 20)
    assert torch.equal(prepare(gathered.support, 20), decoded.support)
    assert torch.equal(prepare(gathered.query, 20), decoded.query)


def test_queries_are_grouped_by_class(packed: Path) -> None:
    split = PackedSplit(packed, "train")
    batch = dataset(packed, Plan(6, 6))[0]
    owner = {split.images[row].tobytes(): row // 4 for row in range(12)}

    def owners(images: torch.Tensor) -> list[int]:
        return [owner[image.movedim(0, -1).contiguous().numpy().tobytes()] for image in images]

    for support, query in zip(batch.support, batch.query, strict=True):
        first, second = owners(support[:, 0])
        assert owners(query) == [first, first, second, second]


def test_images_keep_their_channels_last_memory(packed: Path) -> None:
    batch = dataset(packed, Plan(2, 2))[0]
    assert prepare(batch.query, 20).flatten(0, 1).is_contiguous(memory_format=torch.channels_last)


def test_other_sizes_are_resized(packed: Path) -> None:
    gathered, decoded = (dataset(packed, Plan(2, 2), backend, 28)[0] for backend in ("packed", "jpeg"))
    assert prepare(gathered.query, 28).shape == decoded.query.shape == (2, 4, 3, 28, 28)


def test_normalising_centres_the_mean_of_imagenet() -> None:
    grey = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1).expand(3, 4, 4) * 255
    assert normalise(grey).abs().max() < 1e-6


@given(episodes=st.integers(1, 200), batchsz=st.integers(1, 40), ranks=st.integers(1, 7))
def test_ranks_share_every_episode_once_and_evenly(episodes: int, batchsz: int, ranks: int) -> None:
    plans = [Plan(episodes, batchsz, rank, ranks) for rank in range(ranks)]
    seen = []
    for step in range(plans[0].steps):
        shares = [list(plan.share(step)) for plan in plans]
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert sum(map(len, shares)) == plans[0].total(step)
        seen += [episode for share in shares for episode in share]
    assert seen == list(range(episodes))


def test_a_rank_without_a_share_takes_part_with_weight_0(packed: Path) -> None:
    batch = dataset(packed, Plan(1, 1, rank=1, ranks=2))[0]
    assert (batch.weight, batch.total, len(batch.support)) == (0, 1, 1)


@given(workers=st.integers(0, 50), ranks=st.integers(1, 8))
def test_a_machines_workers_are_shared_out(workers: int, ranks: int) -> None:
    shares = [workers_of_rank(workers, rank, ranks) for rank in range(ranks)]
    assert sum(shares) == workers
    assert max(shares) - min(shares) <= 1


def test_workers_hold_no_growing_copy_of_the_data(packed: Path) -> None:
    """Reading on and on must not turn shared pages into private ones, as lists of objects do."""
    loader = episode_loader(dataset(packed, Plan(4000, 2)), 2, 2, CPU)
    for _ in range(200):
        next(loader)
    before = private_bytes()
    for _ in range(1200):
        next(loader)
    assert private_bytes() - before < 8 * 2**20


def test_ended_loaders_leave_no_process(packed: Path) -> None:
    loader = episode_loader(dataset(packed, Plan(400, 2)), 2, 2, CPU)
    next(loader)
    workers = worker_processes()
    assert len(workers) >= 2
    del loader
    gc.collect()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive


def test_a_killed_worker_is_told_in_one_line(packed: Path) -> None:
    loader = episode_loader(dataset(packed, Plan(4000, 2)), 2, 2, CPU)
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
    """Reads a batch, says so, and waits."""
    loader = episode_loader(data, 2, 2, CPU)
    next(loader)
    begin.send(True)
    time.sleep(600)


def worker_processes() -> list[psutil.Process]:
    """Leaves of this process's tree but standing ranks: the workers, which the forkserver has forked."""
    children = psutil.Process().children(recursive=True)
    leaves = [child for child in children if not child.children() and child.parent() != psutil.Process()]
    return [child for child in leaves if not any("standing_ranks" in told(each) for each in child.parents())]


def told(process: psutil.Process) -> str:
    """How a process was started."""
    return " ".join(process.cmdline())


def private_bytes() -> int:
    return sum(process.memory_full_info().uss for process in worker_processes())
