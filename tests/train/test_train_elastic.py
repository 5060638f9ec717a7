"""Ranks that are killed again and again within one training, for real: it ends as if nothing had been."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tiny_data import tiny_params

from parashot.parallel.context import Context
from parashot.records import read_result
from parashot.task import Batch, Plan
from parashot.tasks.relation import RelationTask
from parashot.train.job import episode_job
from parashot.train.records import TrainResult
from parashot.train.run import train

PARAMS = tiny_params(
    {"train.episodes": 600, "train.batchsz": 3, "train.validate_every": 50, "train.checkpoint_every": 5}
)
DEATHS = {37: 0, 74: 1, 100: 0, 131: 1, 168: 0}
"""Steps of 200, each after a further state is saved, and the ranks that end soon after; 100 is validated."""


@dataclass(frozen=True)
class MortalTask(RelationTask):
    """Soon after a step has begun, once, a rank kills itself where there is a file `STEP-RANK`."""

    deaths: Path = Path()

    def batches(
        self, plan: Plan, context: Context, first: int = 0, *, in_process: bool = False
    ) -> Iterator[Batch]:
        batches = super().batches(plan, context, first, in_process=in_process)
        for step, batch in enumerate(batches, first):
            death = self.deaths / f"{step}-{context.rank}"
            if death.exists():
                death.unlink()
                wait = random.Random(step).uniform(0, 0.05)  # so it may be saving a state
                threading.Timer(wait, os.kill, (os.getpid(), signal.SIGKILL)).start()
            yield batch


@pytest.mark.slow
@pytest.mark.usefixtures("one_core")
def test_ranks_killed_five_times_change_nothing(
    tiny_packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARASHOT_MAX_RESTARTS", str(len(DEATHS)))
    job = episode_job("ddp", PARAMS, tiny_packed, tmp_path / "calm", scratch=tmp_path / "scratch")
    train(job)
    for step, rank in DEATHS.items():
        (tmp_path / f"{step}-{rank}").touch()
    mortal = MortalTask(PARAMS, tiny_packed, deaths=tmp_path)
    disturbed = replace(job, out=tmp_path / "disturbed", task=mortal)
    train(disturbed)
    for name in ("model.safetensors", "val_episodes.csv"):
        assert (disturbed.out / name).read_bytes() == (job.out / name).read_bytes()
    assert read_result(TrainResult, disturbed.out / "result.json").resumed == len(DEATHS)
