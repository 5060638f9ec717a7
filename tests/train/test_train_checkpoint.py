"""Saved states: what is read back is what was there, and a killed training ends with the same bytes."""

from __future__ import annotations

from dataclasses import replace
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
from parashot.records import Provenance
from parashot.task import Batch
from parashot.tasks.relation import RelationTask
from parashot.train.checkpoint import Checkpoints, Progress, load_optimizer_state, optimizer_state
from parashot.train.job import episode_job, pretraining_job
from parashot.train.run import train, train_on_all_cores

pytestmark = pytest.mark.usefixtures("one_core")


def build(context: Context, name: str, packed: Path) -> Strategy:
    params = tiny_params({"train.learning_rate": 0.01})
    return build_strategy(name, RelationTask(params, packed), StepOptions(), context, params.parallel)


def save_and_resume(context: Context, name: str, packed: Path, folder: Path) -> bool:
    """Whether three steps end in the same bits as two, a save, a fresh start from it and one step."""
    whole = build(context, name, packed)
    batches = whole.task.ready_batches(whole.plan(12, 4, context), 3, context)
    checkpoints = Checkpoints(folder, context)
    for step, batch in enumerate(batches):
        if step == 2:
            checkpoints.save(whole, Progress(step=2))
        whole.step(batch)
    again = build(context, name, packed)
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
    assert on_ranks(ranks, name, save_and_resume, tiny_packed, tmp_path / "saved")
    assert not list(tmp_path.iterdir())


def test_a_damaged_state_gives_way_to_the_one_before(
    tiny_packed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy, checkpoints = build(alone(), "serial", tiny_packed), Checkpoints(tmp_path, alone())
    for step in (1, 2, 3):
        checkpoints.save(strategy, Progress(step=step))
    before, newest = sorted(tmp_path.glob("*.pt"))
    assert [before.name, newest.name] == ["step-000000000002.pt", "step-000000000003.pt"]
    newest.write_bytes(newest.read_bytes()[:1000])
    assert checkpoints.resume(strategy).step == 2
    assert f"{newest}: damaged" in caplog.text
    before.write_bytes(b"")
    assert checkpoints.resume(strategy).step == 0


def test_one_training_at_a_time_has_a_folder(tmp_path: Path) -> None:
    first = Checkpoints(tmp_path, alone())
    with pytest.raises(DeviceError, match="another process trains this already"):
        Checkpoints(tmp_path, alone())
    first.close()
    Checkpoints(tmp_path, alone()).clear()


def test_a_training_goes_on_only_from_its_own_state(tiny_packed: Path, tmp_path: Path) -> None:
    def folder(strategy: str = "serial", world_size: int = 1, **settings: str) -> Path | None:
        provenance = Provenance({"seed": "3", "train.on_nonfinite": "stop", **settings})
        job = episode_job(
            strategy, tiny_params(), tiny_packed, tmp_path / "out", provenance, scratch=tmp_path
        )
        return job.checkpoint_folder(world_size)

    assert folder() == folder(**{"train.on_nonfinite": "skip"})  # stopped by NaN, it may go on
    different = {folder(), folder(seed="4"), folder("dp"), folder("ddp", 2), folder("ddp", 3)}
    assert len(different) == 5


@pytest.mark.parametrize("optimizer", ["RMSprop", "Adam", "SGD"])
def test_the_state_of_any_optimizer_comes_back(optimizer: str) -> None:
    class Other(VectorTask):
        def optimizer(self, network: torch.nn.Module) -> torch.optim.Optimizer:
            settings: dict[str, Any] = {"momentum": 0.9} if optimizer == "SGD" else {}
            made: torch.optim.Optimizer = getattr(torch.optim, optimizer)(
                network.parameters(), lr=0.01, **settings
            )
            return made

    first, second = (
        build_strategy("serial", Other(), StepOptions(), alone(), tiny_params().parallel) for _ in range(2)
    )
    batches = first.task.ready_batches(first.plan(20, 6, alone()), 3, alone())
    for batch in batches[:2]:
        first.step(batch)
    moments, counts = optimizer_state(first)
    assert all(set(kind) == set(first.state_dict()) for kind in moments.values())
    assert counts == ({} if optimizer == "SGD" else {"step": 2.0})
    second.load_state_dict(first.state_dict())
    load_optimizer_state(second, moments, counts)
    for strategy in (first, second):
        strategy.step(batches[2])
    expected, found = first.state_dict(), second.state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize("killed_after", [2, 7])
@pytest.mark.parametrize("kind", ["serial", "dp", "pretrain"])
def test_a_killed_training_ends_with_the_same_bytes(
    tiny_packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, killed_after: int
) -> None:
    """Saved after every third step, of 8 or 9; three more at the start measure memory."""

    def run(name: str) -> Any:
        params = tiny_params(
            {
                "train.episodes": 24,
                "train.checkpoint_every": 3,
                "pretrain.epochs": 3,
                "pretrain.batchsz": 8,
                "augment.flip": True,
            }
        )
        out, scratch = tmp_path / name / "out", tmp_path / "scratch"
        if kind != "pretrain":
            return train(episode_job(kind, params, tiny_packed, out, scratch=scratch))
        job = pretraining_job(
            params, tiny_packed, tmp_path / name / "model.safetensors", out, scratch=scratch
        )
        return train_on_all_cores(job)

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
    result, calm = run("disturbed"), run("calm")
    saved = killed_after >= 3
    assert (result.resumed, result.seconds is None, calm.resumed) == (int(saved), saved, 0)
    disturbed_files, calm_files = (
        {
            path.name: path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.suffix in {".safetensors"}
        }
        for name in ("disturbed", "calm")
    )
    assert disturbed_files == calm_files and len(calm_files) == 1
    assert replace(result, resumed=0).val_accuracy == calm.val_accuracy
    assert list((tmp_path / "scratch").iterdir()) == []
