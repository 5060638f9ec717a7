"""Ranks that are killed or stopped in the middle of a training, for real: it ends as if nothing had been."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from tiny_data import tiny_params

from parashot.errors import DeviceError
from parashot.parallel.context import Context
from parashot.records import read_result, read_rows
from parashot.task import Batch, Plan
from parashot.tasks.relation import RelationTask
from parashot.train.job import Job, episode_job
from parashot.train.records import HistoryRow, TrainResult
from parashot.train.run import train

pytestmark = [pytest.mark.usefixtures("one_core"), pytest.mark.slow]

STEPS = 200
PARAMS = tiny_params(
    {"train.episodes": 3 * STEPS, "train.batchsz": 3, "train.validate_every": 50, "train.checkpoint_every": 5}
)
FIRST = 7
LATER = {37: 0, 74: 1, 100: 0, 131: 1, 168: 0}
"""Steps, each after a further state is saved, and the ranks that end soon after; 100 follows a validation."""


@dataclass(frozen=True)
class MortalTask(RelationTask):
    """Soon after a step has begun, once, a rank sends itself a signal where there is a file `STEP-RANK`."""

    deaths: Path = Path()
    sent: signal.Signals = signal.SIGKILL

    def batches(
        self, plan: Plan, context: Context, first: int = 0, *, in_process: bool = False
    ) -> Iterator[Batch]:
        batches = super().batches(plan, context, first, in_process=in_process)
        for step, batch in enumerate(batches, first):
            death = self.deaths / f"{step}-{context.rank}"
            if death.exists():
                death.unlink()
                wait = random.Random(step).uniform(0, 0.05)  # so it may be saving a state
                threading.Timer(wait, os.kill, (os.getpid(), self.sent)).start()
            yield batch


def job(folder: Path, packed: Path, deaths: dict[int, int], sent: signal.Signals = signal.SIGKILL) -> Job:
    """A training by DDP whose ranks end so."""
    planned = folder / "deaths"
    planned.mkdir(parents=True, exist_ok=True)
    for step, rank in deaths.items():
        (planned / f"{step}-{rank}").touch()
    described = episode_job("ddp", PARAMS, packed, folder / "out", scratch=folder / "scratch")
    return replace(described, task=MortalTask(PARAMS, packed, deaths=planned, sent=sent))


def test_killed_ranks_change_nothing_and_too_many_losses_end_in_one_line(
    tiny_packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = job(tmp_path / "calm", tiny_packed, {})
    train(calm)
    scratch = tmp_path / "disturbed/scratch"
    monkeypatch.setenv("PARASHOT_MAX_RESTARTS", "0")
    disturbed = job(scratch.parent, tiny_packed, {FIRST: 1})
    with pytest.raises(DeviceError, match="rank"):
        train(disturbed)
    assert not disturbed.out.exists()
    assert list(scratch.glob("*/*.pt"))
    monkeypatch.setenv("PARASHOT_MAX_RESTARTS", str(len(LATER)))
    train(job(scratch.parent, tiny_packed, LATER))

    for name in ("model.safetensors", "val_episodes.csv"):
        assert (disturbed.out / name).read_bytes() == (calm.out / name).read_bytes()
    ours, theirs = (
        [(row.step, row.loss, row.val_accuracy) for row in read_rows(HistoryRow, each.out / "history.csv")]
        for each in (disturbed, calm)
    )
    assert ours == theirs
    assert list(scratch.iterdir()) == []
    result = read_result(TrainResult, disturbed.out / "result.json")
    assert result.resumed == 1 + len(LATER)
    assert result.seconds is None  # no window of time is its wall time


def test_a_rank_that_hangs_ends_the_training(
    tiny_packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARASHOT_MAX_RESTARTS", "0")
    monkeypatch.setenv("PARASHOT_TIMEOUT_SECONDS", "8")
    said = "rank 1 lost a peer: .*PARASHOT_TIMEOUT_SECONDS 8"
    with pytest.raises(DeviceError, match=said):
        train(job(tmp_path, tiny_packed, {7: 0}, signal.SIGSTOP))
    living = psutil.Process().children(recursive=True)
    assert [each for each in living if each.status() == psutil.STATUS_STOPPED] == []
