"""The Relation Network as a task: what is minimised, by which rates, on which images."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_tasks import NOWHERE, alone
from tiny_data import tiny_params

from parashot.data.packed import PackedSplit
from parashot.data.pixels import prepare
from parashot.errors import DataError
from parashot.model.brownian import distances, window_distances
from parashot.model.losses import LOSSES
from parashot.model.network import build_network
from parashot.model.weights import load_network, save_weights
from parashot.parallel.registry import step_options
from parashot.parsing import Value
from parashot.task import Plan
from parashot.tasks.evaluation import draw_split, episode_accuracies
from parashot.tasks.relation import RelationTask


def task(**train: Value) -> RelationTask:
    settings = {f"train.{key}": value for key, value in train.items()}
    return RelationTask(tiny_params({"train.episodes": 100, **settings}), NOWHERE)


def rates(steps: int, **train: Value) -> list[float]:
    rate = task(learning_rate=0.8, batchsz=8, lr_batchsz=8, **train).learning_rates(steps)
    return [rate(step) for step in range(steps)]


def test_the_rate_warms_up_in_equal_parts_and_then_follows_its_schedule() -> None:
    half = 0.5**0.5
    falling = [0.8, 0.4 * (1 + half), 0.4, 0.4 * (1 - half)]
    assert rates(4, schedule="cosine") == pytest.approx(falling)
    assert rates(4, schedule="constant") == [0.8] * 4
    warm = rates(6, schedule="constant", warmup_steps=3)
    assert warm == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])
    warm = rates(4, schedule="cosine", warmup_steps=3)
    assert warm == pytest.approx([falling[0] / 4, falling[1] / 2, 0.75 * falling[2], falling[3]])


@pytest.mark.parametrize(("scaling", "factor"), [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0)])
def test_the_rate_grows_with_the_batch_as_told(scaling: str, factor: float) -> None:
    larger = task(learning_rate=0.1, lr_scaling=scaling, lr_batchsz=8, batchsz=32, schedule="constant")
    assert larger.learning_rates(5)(4) == pytest.approx(0.1 * factor)


def test_adam_gives_the_head_a_rate_of_its_own() -> None:
    described = task(learning_rate=0.25, lr_relation=0.5)
    network = described.network()
    optimizer = described.optimizer(network)
    assert isinstance(optimizer, torch.optim.Adam)
    others, head = optimizer.param_groups
    assert (others["lr"], others["scale"], head["scale"]) == (0.25, 1.0, 0.5)
    names = {id(value): name for name, value in network.named_parameters()}
    assert {names[id(value)].split(".")[0] for value in others["params"]} == {"embedding"}
    assert {names[id(value)].split(".")[0] for value in head["params"]} == {"relation"}
    assert len(others["params"]) + len(head["params"]) == len(names)


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_is_the_one_that_is_named(name: str) -> None:
    scores = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    data = (torch.empty(0), torch.empty(0), torch.arange(3))
    assert torch.equal(task(loss=name).loss(scores, data), LOSSES[name](scores))


def test_what_is_still_open_is_full_precision_and_not_compiled() -> None:
    for precision, computed in (("auto", "fp32"), ("fp32", "fp32"), ("bf16", "bf16")):
        assert step_options(tiny_params({"train.precision": precision}).train).precision == computed
    assert step_options(tiny_params({"train.compile": "auto"}).train).compile == "none"


@pytest.mark.parametrize("backend", ["packed", "resident"])
def test_training_episodes_may_have_more_classes_and_shots_than_those_of_validation(
    tiny_packed: Path, backend: str
) -> None:
    plan, context = Plan(2, 2), alone()
    for n_way in (2, 3, 4):
        params = tiny_params({"train.n_way": n_way, "train.k_shot": 2, "loader.backend": backend})
        described = RelationTask(params, tiny_packed)
        batch = next(described.batches(plan, context))
        assert described.prepare(batch.data)[0].shape[:3] == (2, n_way, 2)
        assert len(described.validate(described.network(), context, last=False)) > 0
    for knob, value, message in (
        ("train.n_way", 5, "5-way .*, but split train has 4; take at most 4"),
        ("train.k_shot", 6, "6 shots and . queries need .* of split train has 6; take fewer"),
    ):
        params = tiny_params({knob: value, "loader.backend": backend})
        with pytest.raises(DataError, match=rf"^train\.n_way, train\.k_shot, episode\.k_query: {message}$"):
            next(RelationTask(params, tiny_packed).batches(plan, context))


@pytest.mark.parametrize(("head", "share"), [("relation", 0.25), ("bdc", 0.25), ("bdc", 0.0)])
def test_what_is_validated_is_saved_averaged_with_the_pretraining_and_centred(
    tiny_packed: Path, tmp_path: Path, head: str, share: float
) -> None:
    """The centres of a Brownian head are those of whole images."""
    settings: dict[str, Value] = {"model.head": head, "model.test_size": 20, "pretrain.epochs": 1}
    settings["train.pretrained_share"] = share
    described = RelationTask(tiny_params(settings), tiny_packed, tmp_path / "pretrained")
    pretrained, trained = (build_network(described.params.model, seed) for seed in (1, 2))
    for network in (pretrained, trained):  # where running means and variances differ as well
        network.train().embed(torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0)))
    save_weights(tmp_path / "pretrained", described.params.model, pretrained.state_dict())
    for centre in trained.relation.buffers() if head == "bdc" else ():
        centre.fill_(1e6)  # by which all images would look alike
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    found = described.validate(trained, alone(), last=False)
    described.save(tmp_path / "model", trained.state_dict())
    assert all(torch.equal(before[name], value) for name, value in trained.state_dict().items())
    saved, theirs = load_network(tmp_path / "model"), pretrained.embedding.state_dict()
    for name, value in saved.embedding.state_dict().items():
        mine = trained.embedding.state_dict()[name]
        expected = share * theirs[name] + (1 - share) * mine if mine.is_floating_point() else mine
        torch.testing.assert_close(value, expected)
    for name, value in saved.relation.named_parameters():
        assert torch.equal(value, trained.relation.get_parameter(name))
    if head == "bdc":
        images = torch.from_numpy(PackedSplit(tiny_packed, "train").images.copy()).movedim(-1, -3)
        with torch.inference_mode():
            maps = saved.embed(prepare(images, 20))
        torch.testing.assert_close(saved.relation.centre, maps.mean((0, 2, 3)))
        torch.testing.assert_close(saved.relation.joint_centre, distances(maps).mean(0))
        torch.testing.assert_close(saved.relation.window_centre, window_distances(maps).mean(0))
    spec, seed = described.params.tested_episode, described.params.seed
    episodes = draw_split(tiny_packed, "val", spec, len(found), seed)
    assert found.tolist() == episode_accuracies(saved, episodes).tolist()
    assert head == "relation" or found.tolist() != episode_accuracies(trained, episodes).tolist()
