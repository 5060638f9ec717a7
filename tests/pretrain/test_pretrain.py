"""Training: every image once an epoch, the same weights whatever happens; trainings begin with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_data import CLASSES, IMAGES, SEED, tiny_params

from parashot.data.labelled import LabelledImages, image_order
from parashot.data.packed import PackedSplit
from parashot.errors import DataError, NonfiniteError, ParashotError
from parashot.model.network import build_network
from parashot.model.residual import ResidualHead
from parashot.model.weights import begin_with_embedding, load_network
from parashot.pretrain import run as pretraining
from parashot.pretrain.result import skip_pretraining
from parashot.pretrain.run import PretrainJob, one_cycle, pretrain
from parashot.recipes import Value
from parashot.records import Run, read_json, read_result, read_rows, read_runs
from parashot.train.job import Job
from parashot.train.records import TrainResult, HistoryRow
from parashot.train.run import train

pytestmark = pytest.mark.usefixtures("one_core")
CPU = torch.device("cpu")
SETTINGS: dict[str, Value] = {
    "model.head": "residual",
    "pretrain.epochs": 4,
    "pretrain.batchsz": 5,
    "pretrain.learning_rate": 0.05,
    "pretrain.validate_every": 2,
    "train.precision": "fp32",
    "train.checkpoint_every": 3,
    "augment.flip": True,
}
ALL = len(CLASSES["train"]) * IMAGES


@pytest.fixture
def split(tiny_packed: Path) -> PackedSplit:
    return PackedSplit(tiny_packed, "train")


def job(folder: Path, packed: Path, **settings: Value) -> PretrainJob:
    turned = {**SETTINGS, **{key.replace("__", "."): value for key, value in settings.items()}}
    files = (folder / "embedding.pt", folder / "pretrain")
    return PretrainJob(tiny_params(turned), packed, *files, {"why": "a test"}, scratch=folder / "scratch")


# --- images --------------------------------------------------------------------------------------------


def test_an_epoch_is_every_image_once_in_an_order_of_its_own(split: PackedSplit) -> None:
    orders = [image_order(seed, split, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert all(np.array_equal(np.sort(each), np.arange(ALL)) for each in orders)
    assert len({each.tobytes() for each in orders}) == 4
    assert image_order(0, split, 0)[:6].tolist() == [7, 4, 10, 13, 17, 15]  # what it is, it stays


def test_batches_are_whole_labelled_and_go_on_anywhere(split: PackedSplit) -> None:
    images = LabelledImages(split, SEED, 5, CPU)
    plan = images.plan(epochs=2)
    assert (plan.steps, plan.episodes) == (2 * (ALL // 5), 2 * (ALL // 5) * 5)
    batches = list(images.batches(plan))
    assert [each.step for each in batches] == list(range(plan.steps))
    for each in batches:
        assert each.images.shape == (5, 3, 16, 16)
        rows = [
            np.flatnonzero((split.images == image.movedim(0, -1).numpy()).all((1, 2, 3)))
            for image in each.images
        ]
        assert [row[0] // IMAGES for row in rows] == each.labels.tolist()
    for first in range(plan.steps):
        again = list(images.batches(plan, first))
        assert len(again) == plan.steps - first
        assert torch.equal(again[0].images, batches[first].images)


def test_a_batch_larger_than_the_split_is_one_line(split: PackedSplit) -> None:
    with pytest.raises(DataError, match=rf"^pretrain.batchsz: 99, but split train has {ALL} images; it must"):
        LabelledImages(split, SEED, 99, CPU)


def test_one_cycle_rises_once_and_ends_near_zero() -> None:
    rates = [one_cycle(0.4, 50)(step) for step in range(50)]
    peak = rates.index(max(rates))
    assert rates[peak] == pytest.approx(0.4)
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert 0 < rates[-1] < 0.01
    assert one_cycle(0.4, 1)(0) == 0.4


# --- the run -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classifier", ["linear", "cosine"])
def test_it_learns_and_tells_what_it_did(tiny_packed: Path, tmp_path: Path, classifier: str) -> None:
    told: list[Run] = []
    done = replace(
        job(
            tmp_path,
            tiny_packed,
            pretrain__epochs=12,
            pretrain__classifier=classifier,
            tracking__live_seconds=0,
        ),
        live=told.append,
    )
    result = pretrain(done)
    assert read_result(TrainResult, done.out / "result.json") == result
    rows = read_rows(HistoryRow, done.out / "history.csv")
    assert (result.status, result.classes, result.epochs) == ("ok", 4, 12)
    assert (result.steps, result.images) == (len(rows), rows[-1].images)
    assert result.train_accuracy is not None
    assert result.train_accuracy > 0.6  # one in four is chance
    assert np.mean([row.loss for row in rows[-4:]]) < np.mean([row.loss for row in rows[:4]])
    validated = [row.step for row in rows if row.val_accuracy is not None]
    assert validated == [8, 16, 24, 32, 40, 48]
    assert (rows[-1].val_accuracy, rows[-1].val_accuracy_ci95) == (
        result.val_accuracy,
        result.val_accuracy_ci95,
    )
    assert {each.status for each in told} == {"running"}
    [run] = read_runs(done.out / "records.jsonl")
    assert (run.status, run.uuid, run.params["pretrain.epochs"]) == ("ok", told[0].uuid, "12")
    assert run.tags["why"] == "a test"
    assert read_json(done.out / "metrics.json")["images"] == result.images
    assert not list((tmp_path / "scratch").iterdir())


def test_what_it_writes_is_a_network_that_compares_by_cosine(tiny_packed: Path, tmp_path: Path) -> None:
    done = job(tmp_path, tiny_packed)
    pretrain(done)
    network = load_network(done.weights)
    assert isinstance(network.relation, ResidualHead)
    assert network.relation.centre.abs().sum() > 0
    maps = torch.randn(1, 7, 64, 4, 4)
    scores, cosine, alone = network.judge(maps[:, :2, None], maps[:, 2:])[0]
    assert torch.count_nonzero(alone) == 0
    assert torch.equal(scores.argmax(-1), cosine.argmax(-1))
    fresh = build_network(done.params.model, SEED)
    assert all(
        not torch.equal(ours, first)
        for ours, first in zip(network.embedding.parameters(), fresh.embedding.parameters(), strict=True)
        if ours.dim() > 1
    )


@pytest.mark.parametrize("killed_after", [1, 4, 11])
def test_a_killed_one_goes_on_to_the_same_bytes(
    tiny_packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_after: int
) -> None:
    calm, disturbed = job(tmp_path / "calm", tiny_packed), job(tmp_path / "disturbed", tiny_packed)
    pretrain(calm)
    step = pretraining.Classification.step
    count = 0

    def killed(self: pretraining.Classification, batch: pretraining.ImageBatch) -> torch.Tensor:
        nonlocal count
        count += 1
        if count > killed_after:
            raise KeyboardInterrupt
        return step(self, batch)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pretraining.Classification, "step", killed)
        pretrain(disturbed)
    assert not disturbed.weights.exists()
    assert not disturbed.out.exists()
    result = pretrain(disturbed)
    saved = killed_after // 3 > 0  # after every third step
    assert (result.resumed, result.seconds is None) == (int(saved), saved)
    assert disturbed.weights.read_bytes() == calm.weights.read_bytes()


def test_who_watches_sees_it_fail(tiny_packed: Path, tmp_path: Path) -> None:
    told: list[Run] = []

    def watch(run: Run) -> None:
        told.append(run)
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(replace(job(tmp_path, tiny_packed, tracking__live_seconds=0), live=watch))
    assert [each.status for each in told] == ["running", "running", "failed"]
    assert len({each.uuid for each in told}) == 1


def test_small_images_come_first(tiny_packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    forward = pretraining.ImageClassifier.forward

    def watched(self: pretraining.ImageClassifier, images: torch.Tensor) -> torch.Tensor:
        seen.append(images.shape[-1])
        return forward(self, images)

    monkeypatch.setattr(pretraining.ImageClassifier, "forward", watched)
    pretrain(
        job(tmp_path, tiny_packed, model__image_size=20, pretrain__small_size=16, pretrain__small_share=0.5)
    )
    assert seen == [16] * 8 + [20] * 8


def test_nonfinite_stops_in_one_line(tiny_packed: Path, tmp_path: Path) -> None:
    broken = job(
        tmp_path, tiny_packed, pretrain__learning_rate=10, pretrain__weight_decay=1, pretrain__epochs=400
    )
    with pytest.raises(NonfiniteError) as error:
        pretrain(broken)
    assert str(error.value).startswith("pretrain: NaN or infinity in step ")
    assert str(error.value).endswith("; set a smaller pretrain.learning_rate")
    assert not broken.weights.exists()


# --- what begins with it -------------------------------------------------------------------------------


def test_without_pretraining_there_is_a_file_with_the_reason(tmp_path: Path) -> None:
    params, weights, out = tiny_params(), tmp_path / "embedding.pt", tmp_path / "pretrain"
    skip_pretraining(params, weights, out, {})
    assert weights.read_text() == "no weights: pretrain.epochs is 0\n"
    assert read_result(TrainResult, out / "result.json").reason == "pretrain.epochs is 0"
    [run] = read_runs(out / "records.jsonl")
    assert (run.status, run.tags["reason"]) == ("skipped", "pretrain.epochs is 0")


@pytest.mark.parametrize("strategy", ["serial", "dp"])
@pytest.mark.parametrize("head", ["relation", "residual"])
def test_a_training_begins_with_its_embedding(
    tiny_packed: Path, tmp_path: Path, strategy: str, head: str
) -> None:
    done = job(tmp_path, tiny_packed)
    pretrain(done)
    params = tiny_params(
        {**SETTINGS, "model.head": head, "train.learning_rate": 1e-9, "train.schedule": "constant"}
    )
    out = tmp_path / strategy
    train(Job(strategy, params, tiny_packed, out, pretrained=done.weights))
    theirs, ours = load_network(done.weights), load_network(out / "model.pt")
    for name, value in ours.embedding.named_parameters():
        torch.testing.assert_close(value, theirs.embedding.get_parameter(name), atol=1e-6, rtol=0)
    fresh = build_network(params.model, SEED)
    for name, value in ours.relation.named_parameters():
        torch.testing.assert_close(value, fresh.relation.get_parameter(name), atol=1e-6, rtol=0)


def test_a_missing_file_is_one_line(tiny_packed: Path, tmp_path: Path) -> None:
    with pytest.raises(ParashotError, match=r"embedding\.pt: cannot be read \(No such file or directory\); "):
        train(
            Job("serial", tiny_params(), tiny_packed, tmp_path / "out", pretrained=tmp_path / "embedding.pt")
        )


def test_another_architecture_is_one_line(tiny_packed: Path, tmp_path: Path) -> None:
    done = job(tmp_path, tiny_packed)
    pretrain(done)
    params = tiny_params({"model.embedding": "resnet12"})
    with pytest.raises(
        ParashotError, match=r"embedding\.pt: its embedding is of another kind; set model\.emb"
    ):
        begin_with_embedding(build_network(params.model, 0), done.weights)
    with pytest.raises(ParashotError, match="of another kind"):
        train(Job("serial", params, tiny_packed, tmp_path / "out", pretrained=done.weights))
