"""Saved states: what is read back is what was there, and a killed training ends with the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from small_tasks import VectorTask, alone, on_ranks
from standing_ranks import StandingRanks
from tiny_data import tiny_params

from parashot.errors import DeviceError
from parashot.parallel.context import Context
from parashot.parallel.registry import STRATEGIES, build_strategy
from parashot.parallel.strategy import StepOptions, Strategy
from parashot.records import Provenance, read_rows
from parashot.task import Batch, Task
from parashot.tasks.relation import RelationTask
from parashot.train.checkpoint import Checkpoints, TrainingProgress
from parashot.train.job import episode_job, pretraining_job
from parashot.train.records import HistoryRow
from parashot.train.run import train, train_on_all_cores

pytestmark = pytest.mark.usefixtures("one_core")


@dataclass(frozen=True)
class WithMomentum(VectorTask):
    """Its optimizer counts no steps."""

    def optimizer(self, network: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)


def build(context: Context, name: str, task: Task) -> Strategy:
    return build_strategy(name, task, StepOptions(), context, tiny_params().parallel)


def save_and_resume(context: Context, name: str, task: Task, folder: Path) -> bool:
    """Whether three steps end in the same bits as two, a save, a fresh start from it and one step."""
    whole = build(context, name, task)
    batches = whole.task.ready_batches(whole.plan(12, 4, context), 3, context)
    checkpoints = Checkpoints(folder, context)
    for step, batch in enumerate(batches):
        if step == 2:
            checkpoints.save(whole, TrainingProgress(step=2))
        whole.step(batch)
    again = build(context, name, task)
    for batch in reversed(batches):  # other steps come first, as when memory is measured; they leave nothing
        again.step(batch)
    progress = checkpoints.resume(again)
    again.step(batches[2])
    checkpoints.clear()
    expected, found = whole.state_dict(), again.state_dict()
    same = all(torch.equal(found[name], value) for name, value in expected.items())
    return same and progress is not None and (progress.step, progress.resumed) == (2, 1)


@pytest.mark.parametrize("name", [*STRATEGIES, "RMSprop", "momentum"])
def test_any_strategy_and_optimizer_goes_on_from_its_saved_state_bit_for_bit(
    name: str, ranks: StandingRanks, tiny_packed: Path, tmp_path: Path
) -> None:
    others: dict[str, Task] = {"RMSprop": VectorTask(), "momentum": WithMomentum()}
    task = others.get(name) or RelationTask(tiny_params({"train.learning_rate": 0.01}), tiny_packed)  # Adam
    strategy = name if name in STRATEGIES else "serial"
    assert on_ranks(ranks, strategy, save_and_resume, task, tmp_path / "saved")
    assert not list(tmp_path.iterdir())


def test_a_state_that_is_damaged_gives_way_to_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy, checkpoints = build(alone(), "serial", VectorTask()), Checkpoints(tmp_path, alone())
    for step in (1, 2, 3):
        checkpoints.save(strategy, TrainingProgress(step=step))
    before, newest = sorted(tmp_path.glob("*.pt"))
    assert [before.name, newest.name] == ["step-000000000002.pt", "step-000000000003.pt"]
    whole, weight = newest.read_bytes(), strategy.state_dict()["0.weight"].numpy().tobytes()
    for damaged in (b"", whole[:1000], whole.replace(weight, weight[::-1])):  # torch would load the last
        newest.write_bytes(damaged)
        progress = checkpoints.resume(strategy)
        assert progress is not None and progress.step == 2
    assert caplog.text.count(f"{newest}: damaged") == 3


def test_one_training_at_a_time_has_a_folder(tmp_path: Path) -> None:
    first = Checkpoints(tmp_path, alone())
    with pytest.raises(DeviceError, match="another process trains this already"):
        Checkpoints(tmp_path, alone())
    first.close()
    Checkpoints(tmp_path, alone()).clear()


def test_a_training_goes_on_only_from_its_own_state_by_the_same_code(
    tiny_packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folder(
        strategy: str = "serial", world_size: int = 1, seed: str = "3", nonfinite: str = "stop"
    ) -> Path | None:
        params, out = tiny_params({"pretrain.epochs": 1, "pretrain.batchsz": 8}), tmp_path / "out"
        if strategy == "pretrain":
            return pretraining_job(params, tiny_packed, out, out, scratch=tmp_path).checkpoint_folder(1)
        provenance = Provenance({"seed": seed, "train.on_nonfinite": nonfinite})
        job = episode_job(strategy, params, tiny_packed, out, provenance, scratch=tmp_path)
        return job.checkpoint_folder(world_size)

    assert folder() == folder(nonfinite="skip")  # stopped by NaN, it may go on
    assert folder("pretrain") == folder("pretrain")
    different = [folder(), folder(seed="4"), folder("dp"), folder("ddp", 2), folder("ddp", 3)]
    different.append(folder("pretrain"))
    monkeypatch.setattr("parashot.train.job.code_digest", lambda: "other code")
    different += [folder(), folder("pretrain")]
    assert len({*different}) == len(different)


def history(out: Path) -> list[tuple[int, float, float | None]]:
    rows = read_rows(HistoryRow, next(out.rglob("history.csv")))
    return [(row.step, row.loss, row.val_accuracy) for row in rows]


@pytest.mark.parametrize(("kind", "killed_after"), [("serial", 2), ("dp", 7), ("pretrain", 7)])
def test_a_killed_training_ends_with_the_same_bytes(
    tiny_packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, killed_after: int
) -> None:
    """Saved after every third step, of 8 or 9; three more at the start measure memory."""

    def run(name: str) -> Any:
        settings = {"train.episodes": 24, "train.checkpoint_every": 3, "augment.flip": True}
        pretrain = {"pretrain.epochs": 3, "pretrain.batchsz": 8}
        params = tiny_params({**settings, **pretrain}, pretrain__optimizer="muon")
        out, scratch = tmp_path / name / "out", tmp_path / "scratch"
        if kind != "pretrain":
            return train(episode_job(kind, params, tiny_packed, out, scratch=scratch))
        return train_on_all_cores(
            pretraining_job(params, tiny_packed, out / "model.safetensors", out / "records", scratch=scratch)
        )

    real, count = Strategy.step, 0

    def killed(self: Strategy, batch: Batch) -> torch.Tensor:
        nonlocal count
        count += 1
        if count > 3 + killed_after:
            raise KeyboardInterrupt
        return real(self, batch)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Strategy, "step", killed)
        run("disturbed")
    assert not (tmp_path / "disturbed").exists()
    disturbed, calm = run("disturbed"), run("calm")
    saved = killed_after >= 3
    assert (disturbed.resumed, disturbed.seconds is None, calm.resumed) == (int(saved), saved, 0)
    ours, theirs = (tmp_path / name / "out" for name in ("disturbed", "calm"))
    assert (ours / "model.safetensors").read_bytes() == (theirs / "model.safetensors").read_bytes()
    assert disturbed.val_accuracy == calm.val_accuracy
    assert history(ours) == history(theirs)
    assert list((tmp_path / "scratch").iterdir()) == []
