"""Ranks that are killed or stopped in the middle of a training, for real: it ends as if nothing had been."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from tiny_data import tiny_params

from parashot.errors import DeviceError
from parashot.records import read_result, read_rows
from parashot.train.job import Job, episode_job
from parashot.train.records import HistoryRow, TrainResult
from parashot.train.run import train

pytestmark = [pytest.mark.usefixtures("one_core"), pytest.mark.slow]

STEPS, KILLS = 200, 6
PARAMS = tiny_params(
    {
        "train.episodes": 3 * STEPS,
        "train.batchsz": 3,
        "train.validate_every": 50,
        "train.checkpoint_every": 5,
    }
)


@pytest.fixture(scope="module")
def calm(tiny_packed: Path, tmp_path_factory: pytest.TempPathFactory, one_core: None) -> Job:
    """A training that nothing disturbs."""
    described = job(tmp_path_factory.mktemp("calm"), tiny_packed)
    train(described)
    return described


def job(folder: Path, packed: Path) -> Job:
    return episode_job("ddp", PARAMS, packed, folder / "out", scratch=folder / "scratch")


def forked() -> dict[int, psutil.Process]:
    """Living processes that this process's fork server has started, by pid."""
    found = dict[int, psutil.Process]()
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any("forkserver" in word for word in child.cmdline()):
                found |= {each.pid: each for each in child.children()}
    return found


STANDING = set[int]()
"""Processes of earlier tests, which stay."""


@pytest.fixture(scope="module", autouse=True)
def standing_known() -> None:
    STANDING.update(forked())


def living_ranks() -> dict[int, psutil.Process]:
    """This process's living ranks; they are started in the order of their numbers."""
    return dict(enumerate(each for pid, each in sorted(forked().items()) if pid not in STANDING))


def newest_step(scratch: Path) -> int:
    return max((int(path.stem.split("-")[1]) for path in scratch.glob("*/step-*.pt")), default=0)


@contextmanager
def killing(scratch: Path, times: int, seed: int, sent: int = signal.SIGKILL) -> Iterator[list[int]]:
    """Signal a rank at random, `times` times, each after further steps are saved; yields those ranks."""
    chance, killed, over = random.Random(seed), list[int](), threading.Event()
    before_all = newest_step(scratch)

    def work() -> None:
        reached = before_all
        while len(killed) < times and not over.is_set():
            living = living_ranks()
            if newest_step(scratch) > reached and len(living) == 2:
                over.wait(chance.uniform(0, 0.2))
                found = living_ranks() or living
                rank, process = chance.choice(sorted(found.items()))
                process.send_signal(sent)
                killed.append(rank)
                before = {each.pid for each in living.values()}
                while sent == signal.SIGKILL and not over.is_set():
                    if not before & {each.pid for each in living_ranks().values()}:
                        break  # what is saved while ranks die is not what the next ones reach
                    over.wait(0.02)
                reached = newest_step(scratch)
            over.wait(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def assert_undisturbed(disturbed: Job, calm: Job) -> TrainResult:
    """Both ended with the same bytes, and nothing is left of the first but its results."""
    for name in ("model.safetensors", "val_episodes.csv"):
        assert (disturbed.out / name).read_bytes() == (calm.out / name).read_bytes()
    ours, theirs = (read_rows(HistoryRow, each.out / "history.csv") for each in (disturbed, calm))
    assert [(row.step, row.loss, row.val_accuracy) for row in ours] == [
        (row.step, row.loss, row.val_accuracy) for row in theirs
    ]
    assert living_ranks() == {}
    assert disturbed.scratch is not None
    assert list(disturbed.scratch.iterdir()) == []
    return read_result(TrainResult, disturbed.out / "result.json")


def test_killed_ranks_change_nothing_and_too_many_losses_end_in_one_line(
    tiny_packed: Path,
    tmp_path: Path,
    calm: Job,
    record_property: Callable[[str, int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disturbed, scratch = job(tmp_path, tiny_packed), tmp_path / "scratch"
    monkeypatch.setenv("PARASHOT_MAX_RESTARTS", "0")
    with killing(scratch, 1, 2), pytest.raises(DeviceError, match="rank"):
        train(disturbed)
    assert not disturbed.out.exists()
    assert living_ranks() == {}
    assert 0 < newest_step(scratch) < STEPS
    monkeypatch.setenv("PARASHOT_MAX_RESTARTS", "20")
    with killing(scratch, KILLS - 1, 1) as killed:
        train(disturbed)
    assert len(killed) == KILLS - 1
    result = assert_undisturbed(disturbed, calm)
    assert result.resumed == KILLS
    assert result.seconds is None  # no window of time is its wall time
    record_property("kills_survived", KILLS)


def test_a_rank_that_hangs_ends_the_training(
    tiny_packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARASHOT_MAX_RESTARTS", "0")
    monkeypatch.setenv("PARASHOT_TIMEOUT_SECONDS", "8")
    hung = job(tmp_path, tiny_packed)
    with killing(tmp_path / "scratch", 1, 3, signal.SIGSTOP) as stopped, pytest.raises(DeviceError) as error:
        train(hung)
    assert f"rank {1 - stopped[0]} lost a peer: " in str(error.value)
    assert "PARASHOT_TIMEOUT_SECONDS 8" in str(error.value)
    assert living_ranks() == {}
