"""Ranks that are killed or stopped in the middle of a training, for real: it ends as if nothing had been."""

from __future__ import annotations

import dataclasses
import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import torch
from parashot.train.assemble import new_strategy, ready_batches
from standing_ranks import StandingRanks
from tiny_data import tiny_params

from parashot.errors import DeviceError
from parashot.parallel.context import Context, Placement
from parashot.parallel.registry import STRATEGIES
from parashot.params import Params
from parashot.recipes import Value
from parashot.records import read_result, read_rows
from parashot.train.checkpoint import Checkpoints, Progress, load_optimizer_state, optimizer_state
from parashot.train.job import Job
from parashot.train.records import HistoryRow, TrainResult
from parashot.train.run import train

pytestmark = pytest.mark.usefixtures("one_core")

SETTINGS: dict[str, Value] = {
    "train.episodes": 600,
    "train.batchsz": 3,
    "train.validate_every": 50,
    "train.checkpoint_every": 5,
    "parallel.max_restarts": 20,
}
STEPS = 200


def job(folder: Path, packed: Path, strategy: str = "ddp", **changes: Value) -> Job:
    settings = {**SETTINGS, f"parallel.{strategy}.enabled": True}
    params = tiny_params({**settings, **{key.replace("__", "."): value for key, value in changes.items()}})
    return Job(strategy, params, packed, folder / "out", scratch=folder / "scratch")


def living_ranks() -> dict[int, psutil.Process]:
    """This process's living ranks; they are started in the order of their numbers."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any("spawn_main" in word for word in child.cmdline()):
                found.append(child)
    return dict(enumerate(sorted(found, key=lambda child: child.pid)))


def newest_step(scratch: Path) -> int:
    return max((int(path.stem.split("-")[1]) for path in scratch.glob("*/step-*.pt")), default=0)


def still_there(before: dict[int, psutil.Process]) -> bool:
    """Whether any of those ranks lives; to wait for them is their launcher's part, and can be done once."""
    return bool({each.pid for each in before.values()} & {each.pid for each in living_ranks().values()})


@contextmanager
def killing(
    scratch: Path, times: int, seed: int, sent: signal.Signals = signal.SIGKILL, ranks: Sequence[int] = (0, 1)
) -> Iterator[list[int]]:
    """Kill one of `ranks` at random, `times` times, each time after the training has come further.

    Yields the ranks that were killed.
    """
    chance, killed, over = random.Random(seed), list[int](), threading.Event()

    def work() -> None:
        reached = 0
        while len(killed) < times and not over.is_set():
            living = living_ranks()
            if newest_step(scratch) > reached and len(living) == 2:
                over.wait(chance.uniform(0, 0.2))
                found = living_ranks() or living
                rank, process = chance.choice([each for each in sorted(found.items()) if each[0] in ranks])
                process.send_signal(sent)
                killed.append(rank)
                while sent == signal.SIGKILL and still_there(living) and not over.is_set():
                    over.wait(0.02)  # what is saved while ranks die is not what the next ones reach
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
    for name in ("model.pt", "val_episodes.csv"):
        assert (disturbed.out / name).read_bytes() == (calm.out / name).read_bytes()
    ours, theirs = (read_rows(HistoryRow, each.out / "history.csv") for each in (disturbed, calm))
    assert [(row.step, row.loss, row.val_accuracy) for row in ours] == [
        (row.step, row.loss, row.val_accuracy) for row in theirs
    ]
    assert living_ranks() == {}
    assert disturbed.scratch is not None
    assert list(disturbed.scratch.iterdir()) == []
    return read_result(TrainResult, disturbed.out / "result.json")


@pytest.mark.parametrize(
    ("times", "seed"),
    [
        pytest.param(1, 0, id="1 kill"),
        pytest.param(10, 1, marks=pytest.mark.slow, id="10 kills"),
    ],
)
def test_killed_ranks_change_nothing(
    tiny_packed: Path, tmp_path: Path, times: int, seed: int, record_property: Callable[[str, int], None]
) -> None:
    calm = job(tmp_path / "calm", tiny_packed)
    disturbed = job(tmp_path / "disturbed", tiny_packed)
    train(calm)
    assert disturbed.scratch is not None
    with killing(disturbed.scratch, times, seed) as killed:
        train(disturbed)
    assert len(killed) == times
    result = assert_undisturbed(disturbed, calm)
    assert result.resumed == times
    assert result.seconds is None  # no window of time is its wall time
    record_property("kills_survived", times)


@pytest.mark.slow
def test_too_many_losses_end_in_one_line_and_the_next_run_goes_on(tiny_packed: Path, tmp_path: Path) -> None:
    calm = job(tmp_path / "calm", tiny_packed)
    train(calm)
    lost = job(tmp_path / "lost", tiny_packed, parallel__max_restarts=0)
    assert lost.scratch is not None
    with killing(lost.scratch, 1, 2), pytest.raises(DeviceError) as error:
        train(lost)
    assert "\n" not in str(error.value)
    assert "rank" in str(error.value)
    assert not lost.out.exists()
    assert living_ranks() == {}
    reached = newest_step(lost.scratch)
    assert 0 < reached < STEPS
    train(lost)
    result = assert_undisturbed(lost, calm)
    assert result.resumed == 1


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_hangs_is_named(tiny_packed: Path, tmp_path: Path, rank: int) -> None:
    hung = job(tmp_path, tiny_packed, parallel__max_restarts=0, parallel__timeout_seconds=8)
    assert hung.scratch is not None
    with killing(hung.scratch, 1, 3, signal.SIGSTOP, [rank]), pytest.raises(DeviceError) as error:
        train(hung)
    assert f"rank {1 - rank} lost rank {rank}: " in str(error.value)
    assert "parallel.timeout_seconds" in str(error.value)
    assert living_ranks() == {}


# --- the saved state itself ---------------------------------------------------------------------------------


def save_and_resume(context: Context, strategy_name: str, params: Params, packed: Path, folder: Path) -> bool:
    """Whether three steps end in the same bits as two, a save, a fresh start from it and one step."""
    whole = new_strategy(strategy_name, params, context)
    batches = ready_batches(params, packed, whole, 4, 3)
    checkpoints = Checkpoints(folder, context)
    for step, batch in enumerate(batches):
        if step == 2:
            checkpoints.save(whole, Progress(step=2))
        whole.step(batch)
    again = new_strategy(strategy_name, params, context)
    for batch in batches[:2]:  # other steps come first, as when memory is measured; they leave nothing
        again.step(batch)
    progress = checkpoints.resume(again)
    again.step(batches[2])
    checkpoints.clear()
    expected, found = whole.state_dict(), again.state_dict()
    same = all(torch.equal(found[name], value) for name, value in expected.items())
    return same and (progress.step, progress.resumed) == (2, 1)


@pytest.mark.parametrize("name", STRATEGIES)
def test_any_strategy_goes_on_from_its_saved_state_bit_for_bit(
    name: str, ranks: StandingRanks, tiny_packed: Path, tmp_path: Path
) -> None:
    args = (name, tiny_params({"train.learning_rate": 0.01}), tiny_packed, tmp_path / "saved")
    if STRATEGIES[name].processes(2) == 1:
        assert save_and_resume(Context(0, 1, 0, 1, Placement("cpu", 2, 1, 2)), *args)
    else:
        assert ranks(2, save_and_resume, *args)
    assert not list(tmp_path.iterdir())


def alone() -> Context:
    return Context(0, 1, 0, 1, Placement("cpu", 1, 1, 1))


def test_a_damaged_state_gives_way_to_the_one_before(
    tiny_packed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    params = tiny_params()
    strategy = new_strategy("serial", params, alone())
    checkpoints = Checkpoints(tmp_path, alone())
    for step in (1, 2, 3):
        checkpoints.save(strategy, Progress(step=step))
    assert [path.name for path in sorted(tmp_path.glob("*.pt"))] == [
        "step-000000000002.pt",
        "step-000000000003.pt",
    ]
    newest = tmp_path / "step-000000000003.pt"
    newest.write_bytes(newest.read_bytes()[:1000])
    assert checkpoints.resume(strategy).step == 2
    assert "damaged" in caplog.text
    (tmp_path / "step-000000000002.pt").write_bytes(b"")
    assert checkpoints.resume(strategy).step == 0


def test_one_training_at_a_time_has_a_folder(tmp_path: Path) -> None:
    first = Checkpoints(tmp_path, alone())
    with pytest.raises(DeviceError, match="another process trains this already"):
        Checkpoints(tmp_path, alone())
    first.close()
    Checkpoints(tmp_path, alone()).clear()


def test_other_params_never_go_on_from_here(tiny_packed: Path, tmp_path: Path) -> None:
    first = dataclasses.replace(job(tmp_path, tiny_packed, "serial"), out=tmp_path / "first")
    assert first.scratch is not None
    state = new_strategy("serial", first.params, alone())
    from parashot.train.run import _folder_of

    folder = _folder_of(first, alone())
    other = _folder_of(dataclasses.replace(first, params=tiny_params({**SETTINGS, "seed": 4})), alone())
    assert folder is not None
    assert folder != other
    checkpoints = Checkpoints(folder, alone())
    checkpoints.save(state, Progress(step=STEPS - 1))
    checkpoints.close()
    same = train(first)
    assert same is not None
    assert same.resumed == 1
    assert list(first.scratch.iterdir()) == []


def test_the_moments_of_adam_come_back(tiny_packed: Path) -> None:
    params = tiny_params()
    strategy = new_strategy("serial", params, alone())
    for batch in ready_batches(params, tiny_packed, strategy, 3, 2):
        strategy.step(batch)
    moments, counts = optimizer_state(strategy)
    assert set(moments) == {"exp_avg", "exp_avg_sq"}
    assert counts == {"step": 2.0}
    names = {name for name, _ in strategy.network.named_parameters()}
    assert set(moments["exp_avg"]) == names
    other = new_strategy("serial", params, alone())
    load_optimizer_state(other, moments, counts)
    again, _ = optimizer_state(other)
    for kind, tensors in moments.items():
        for name, value in tensors.items():
            assert torch.equal(again[kind][name], value)
