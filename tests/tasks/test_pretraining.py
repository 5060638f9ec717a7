"""Pretraining: every image once an epoch, whatever happens, and trainings that begin with what it wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_tasks import alone
from tiny_data import CLASSES, IMAGES, SEED, pack_colours, tiny_params
from torch.nn import functional as F

from parashot.data.labelled import image_order, labelled_batches, steps_per_epoch
from parashot.data.packed import PackedSplit
from parashot.errors import DataError, DeviceError
from parashot.model.brownian import distances
from parashot.model.network import build_network
from parashot.model.weights import load_network
from parashot.parallel.abilities import compile_modes
from parashot.parsing import Value
from parashot.records import Provenance, Run, read_json, read_result, read_rows, read_runs
from parashot.task import Plan
from parashot.tasks.pretraining import PretrainingTask
from parashot.train.job import Job, episode_job, pretraining_job
from parashot.train.records import HistoryRow, TrainResult
from parashot.train.run import train_on_all_cores
from parashot.train.skipped import skip_pretraining

pytestmark = pytest.mark.usefixtures("one_core")
SETTINGS: dict[str, Value] = {
    "model.head": "residual",
    "pretrain.epochs": 4,
    "pretrain.batchsz": 5,
    "pretrain.learning_rate": 0.05,
    "pretrain.validate_every": 2,
    "train.precision": "fp32",
    "augment.flip": True,
    "tracking.live_seconds": 0,
}
SMALL: dict[str, Value] = {"model.image_size": 20, "pretrain.small_size": 16, "pretrain.small_share": 0.5}
ALL = len(CLASSES["train"]) * IMAGES
STEPS = ALL // 5


def job(folder: Path, packed: Path, **settings: Value) -> Job:
    params = tiny_params(SETTINGS, **settings)
    provenance = Provenance({"pretrain.epochs": "4"}, {"why": "a test"})
    weights = folder / "embedding.safetensors"
    return pretraining_job(
        params, packed, weights, folder / "pretrain", provenance, scratch=folder / "scratch"
    )


def model_of(described: Job) -> Path:
    assert described.model is not None
    return described.model


def learned(described: Job) -> float:
    """Train; return the accuracy in training, at its end."""
    result = train_on_all_cores(described)
    assert result is not None and result.train_accuracy is not None
    return result.train_accuracy


@pytest.fixture(scope="module")
def done(
    tiny_packed: Path, tmp_path_factory: pytest.TempPathFactory, one_core: None
) -> tuple[Job, list[Run]]:
    """A finished pretraining of a network with a residual head, and what was shown of it while it grew."""
    told: list[Run] = []
    described = job(tmp_path_factory.mktemp("pretrained"), tiny_packed, pretrain__epochs=12)
    train_on_all_cores(replace(described, live=told.append))
    return described, told


def test_an_epoch_is_every_image_once_in_an_order_of_its_own() -> None:
    orders = [image_order(seed, "train", ALL, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert all(sorted(each.tolist()) == list(range(ALL)) for each in orders)
    assert len({tuple(each.tolist()) for each in orders}) == 4
    assert image_order(0, "train", ALL, 0)[:6].tolist() == [7, 4, 10, 13, 17, 15]  # what it is, it stays


def test_batches_are_whole_labelled_and_go_on_anywhere(tiny_packed: Path) -> None:
    split, plan, cpu = PackedSplit(tiny_packed, "train"), Plan(2 * STEPS * 5, 5), torch.device("cpu")
    batches = list(labelled_batches(split, SEED, plan, cpu))
    assert [each.data[3] for each in batches] == list(range(plan.steps)) == list(range(2 * STEPS))
    seen = []
    for batch in batches:
        images, labels, _, _ = batch.data
        assert images.shape == (5, 3, 16, 16)
        for image, label in zip(images, labels.tolist(), strict=True):
            (row,) = np.flatnonzero((split.images == image.movedim(0, -1).numpy()).all((1, 2, 3)))
            assert row // IMAGES == label
            seen.append(row)
    assert len(set(seen[: len(seen) // 2])) == len(seen) // 2  # no image twice in an epoch
    for first in (3, plan.steps - 1):
        again = list(labelled_batches(split, SEED, plan, cpu, first))
        assert len(again) == plan.steps - first
        assert torch.equal(again[0].data[0], batches[first].data[0])
    shares = [next(labelled_batches(split, SEED, Plan(10, 5, rank, 2), cpu)) for rank in (0, 1)]
    assert torch.equal(torch.cat([each.data[0] for each in shares]), batches[0].data[0])


def test_a_batch_larger_than_the_split_is_one_line() -> None:
    with pytest.raises(DataError, match=rf"^pretrain.batchsz: 99, but the split has {ALL} images; lower it"):
        steps_per_epoch(np.array([ALL]), 99)


def test_one_cycle_rises_once_and_ends_near_zero(tiny_packed: Path) -> None:
    task = PretrainingTask(tiny_params({"pretrain.learning_rate": 0.4}), tiny_packed)
    rates = [task.learning_rates(50)(step) for step in range(50)]
    peak = rates.index(max(rates))
    assert rates[peak] == pytest.approx(0.4)
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert 0 < rates[-1] < 0.01
    assert task.learning_rates(1)(0) == 0.4


def test_augmentation_is_a_function_of_the_image_in_the_plan(tiny_packed: Path) -> None:
    settings = {**SETTINGS, "pretrain.small_size": 16, "pretrain.dropblock": 0.1}
    task = PretrainingTask(tiny_params(settings), tiny_packed)
    batch = next(task.batches(Plan(10, 10), alone()))
    images, labels, indices, step = batch.data
    whole, part = task.prepare(batch.data), task.prepare((images[3:], labels[3:], indices[3:], step))
    other = task.prepare((images, labels, indices + 10, step))
    for all_, few, others in zip(whole, part, other, strict=True):  # images, and keys
        assert all_ is not None and few is not None and others is not None
        assert torch.equal(all_[3:], few)
        assert not torch.equal(all_, others)


def test_a_share_of_the_images_is_rotated_and_the_rotation_is_learned(tiny_packed: Path) -> None:
    plain = PretrainingTask(tiny_params(SETTINGS), tiny_packed)
    task = PretrainingTask(tiny_params(SETTINGS, pretrain__rotated=0.5), tiny_packed)
    quarters = task.rotations(torch.arange(4000))
    shares = torch.bincount(quarters, minlength=4) / 4000
    assert shares.tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6], abs=0.03)
    batch = next(task.batches(Plan(10, 10), alone()))
    quarters = task.rotations(batch.data[2])
    assert len(quarters.unique()) > 1
    for image, upright, count in zip(
        task.prepare(batch.data)[0], plain.prepare(batch.data)[0], quarters.tolist(), strict=True
    ):
        assert torch.equal(image, upright.rot90(count, (1, 2)))
    network = task.network()
    outputs = task.forward(network, task.prepare(batch.data))
    classes = len(CLASSES["train"])
    assert outputs.shape == (10, classes + 4)
    task.loss(outputs, batch.data).mean().backward()
    gradient = network.get_parameter("rotation.weight").grad
    assert gradient is not None and gradient.abs().min() > 0
    right = (outputs[:, :classes].argmax(1) == batch.data[1]).float()
    assert torch.equal(task.metric(outputs, batch.data), right)
    added = network.state_dict().keys() - plain.network().state_dict().keys()
    assert added == {"rotation.weight", "rotation.bias"}


@pytest.mark.parametrize("head", ["residual", "bdc"])
def test_the_layers_losses_add_up_for_fewer_classes_than_rotations(tmp_path: Path, head: str) -> None:
    packed = pack_colours(tmp_path / "packed", {"train": "abc", "val": "def", "test": "ghi"}, 16)
    settings = {**SETTINGS, "model.head": head, "pretrain.rotated": 0.5}
    task = PretrainingTask(tiny_params(settings), packed)
    batch = next(task.batches(Plan(10, 10), alone()))
    outputs = task.forward(task.network(), task.prepare(batch.data))
    layers = [outputs[:, begin : begin + 3] for begin in ((0, 3) if head == "bdc" else (0,))]
    expected = F.cross_entropy(outputs[:, -4:], task.rotations(batch.data[2]), reduction="none")
    for each in layers:
        expected = expected + F.cross_entropy(each, batch.data[1], label_smoothing=0.1, reduction="none")
    torch.testing.assert_close(task.loss(outputs, batch.data), expected)


def test_small_images_come_first(tiny_packed: Path) -> None:
    task = PretrainingTask(tiny_params({**SETTINGS, **SMALL, "pretrain.epochs": 2}), tiny_packed)
    batches = task.batches(Plan(task.items, task.batchsz), alone())
    sizes = [task.prepare(batch.data)[0].shape[-1] for batch in batches]
    assert sizes == [16] * STEPS + [20] * STEPS


def test_it_learns_and_tells_what_it_did(done: tuple[Job, list[Run]]) -> None:
    described, told = done
    result = read_result(TrainResult, described.out / "result.json")
    rows = read_rows(HistoryRow, described.out / "history.csv")
    assert (result.status, result.steps, result.items) == ("ok", 12 * STEPS, rows[-1].items)
    assert result.train_accuracy is not None and result.train_accuracy > 0.6  # one in four is chance
    assert np.mean([row.loss for row in rows[-4:]]) < np.mean([row.loss for row in rows[:4]])
    validated = [row.step for row in rows if row.val_accuracy is not None]
    assert validated == [2 * STEPS * number for number in range(1, 7)]
    assert rows[-1].val_accuracy == result.val_accuracy
    assert [each.status for each in told] == ["running"] * (len(told) - 1) + ["unpublished"]
    [run] = read_runs(described.out / "records.jsonl")
    assert (run.status, run.uuid, run.params["pretrain.epochs"]) == ("ok", told[0].uuid, "4")
    assert (run.tags["why"], run.model) == ("a test", None)
    assert read_json(described.out / "metrics.json")["items"] == result.items
    assert described.scratch and not list(described.scratch.iterdir())


def test_a_second_layer_learns_what_a_brownian_head_compares(tiny_packed: Path, tmp_path: Path) -> None:
    described = job(tmp_path, tiny_packed, pretrain__epochs=12, model__head="bdc", pretrain__optimizer="muon")
    task = described.task
    assert isinstance(task, PretrainingTask)
    batch = next(labelled_batches(PackedSplit(tiny_packed, "train"), SEED, Plan(5, 5), torch.device("cpu")))
    classifier = task.network().double()
    images = task.prepare(batch.data)[0].double()
    scores = classifier(images, None)
    assert scores.shape == (5, 2 * len(CLASSES["train"]))
    maps = classifier.network.embed(images)
    assert classifier.joint is not None
    torch.testing.assert_close(classifier.joint(distances(maps)), scores[:, len(CLASSES["train"]) :])
    assert learned(described) > 0.5
    network = load_network(tmp_path / "embedding.safetensors")
    assert network.relation.get_buffer("joint_centre").abs().sum() > 0
    later = episode_job("serial", task.params, tiny_packed, tmp_path, pretrained=model_of(described))
    for name, value in later.task.network().state_dict().items():  # its temperature is not learned yet
        assert torch.equal(value, network.state_dict()[name])


def test_what_it_writes_is_a_network_that_compares_by_cosine(done: tuple[Job, list[Run]]) -> None:
    network = load_network(model_of(done[0]))
    assert network.relation.get_buffer("centre").abs().sum() > 0
    maps = torch.randn(1, 7, 64, 4, 4)
    scores, cosine, apart = network.judge(maps[:, :2, None], maps[:, 2:])[0]
    assert torch.count_nonzero(apart) == 0
    assert torch.equal(scores.argmax(-1), cosine.argmax(-1))
    fresh = build_network(tiny_params(SETTINGS).model, SEED)
    pairs = zip(network.embedding.parameters(), fresh.embedding.parameters(), strict=True)
    assert all(not torch.equal(ours, first) for ours, first in pairs if ours.dim() > 1)


def test_without_pretraining_there_is_a_file_with_the_reason(tmp_path: Path) -> None:
    weights, out = tmp_path / "embedding.safetensors", tmp_path / "pretrain"
    skip_pretraining(weights, out, Provenance())
    assert weights.read_text() == "no weights: pretrain.epochs is 0\n"
    assert read_result(TrainResult, out / "result.json").reason == "pretrain.epochs is 0"
    [run] = read_runs(out / "records.jsonl")
    assert (run.status, run.tags["reason"]) == ("skipped", "pretrain.epochs is 0")


def test_compiling_is_a_knob_of_its_own(tiny_packed: Path, tmp_path: Path) -> None:
    described = job(tmp_path, tiny_packed, pretrain__compile="reduce-overhead")
    with pytest.raises(DeviceError, match=r"^pretrain\.compile: reduce-overhead is not possible on cpu here"):
        train_on_all_cores(described)


@pytest.mark.slow
@pytest.mark.skipif("default" not in compile_modes("cpu"), reason="torch.compile needs a C++ compiler")
def test_compiled_it_learns_the_same_at_both_sizes(tiny_packed: Path, tmp_path: Path) -> None:
    small: dict[str, Value] = {
        **SMALL,
        "pretrain.learning_rate": 0.001,
        "pretrain.rotated": 0.5,
        "pretrain.dropblock": 0.1,
        "augment.flip": False,
    }
    losses = []
    for mode in ("none", "default"):
        described = job(tmp_path / mode, tiny_packed, **small, pretrain__compile=mode)
        train_on_all_cores(described)
        losses.append([row.loss for row in read_rows(HistoryRow, described.out / "history.csv")])
    assert len(losses[0]) == 4 * STEPS
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
