"""Few-shot accuracy as it is reported, on a network that has learned a little."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_data import EVALUATED, SEED, tiny_params

from parashot.data.episodes import EpisodeSpec
from parashot.data.manifest import read_manifest
from parashot.data.packed import PackedSplit
from parashot.data.pixels import prepare
from parashot.errors import DataError
from parashot.model.losses import cross_entropy
from parashot.model.network import RelationNetwork, build_network
from parashot.train.evaluate import EpisodeSet, episode_scores
from parashot.tasks.few_shot import draw_episodes, judge_episodes, task_accuracy, transductive_accuracies

pytestmark = pytest.mark.usefixtures("one_core")


@pytest.fixture(scope="module")
def split(tiny_packed: Path) -> PackedSplit:
    return PackedSplit(tiny_packed, "test")


@pytest.fixture(scope="module")
def episodes(split: PackedSplit) -> EpisodeSet:
    return EpisodeSet(split, EVALUATED, split.episodes)


@pytest.fixture(scope="module")
def network(split: PackedSplit) -> RelationNetwork:
    """With a residual head, trained for some steps so that its parts differ."""
    params = tiny_params({"model.head": "residual"})
    built = build_network(params.model, seed=0)
    optimizer = torch.optim.Adam(built.parameters(), lr=1e-2)
    for episode in split.episodes[:4]:
        images = prepare(torch.from_numpy(split.images[episode]).movedim(-1, -3), 16)
        loss = cross_entropy(built(images[None, :, :1], images[None, :, 1:].flatten(1, 2)))
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
    return built.eval()


def test_a_task_draws_the_packed_episodes(tiny_packed: Path, split: PackedSplit) -> None:
    names = read_manifest(tiny_packed).splits["test"].classes
    drawn = draw_episodes(split, names, EVALUATED, len(split.episodes), SEED)
    assert np.array_equal(drawn.rows, split.episodes)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (EpisodeSpec(4, 1, 3), "4-way episodes need 4 classes, but split test has 3; take at most 3"),
        (EpisodeSpec(2, 1, 6), "1 shots and 6 queries need 7 images per class, but h of split test has 6"),
    ],
)
def test_what_the_split_cannot_give_is_one_line(split: PackedSplit, spec: EpisodeSpec, words: str) -> None:
    with pytest.raises(DataError, match=words) as error:
        draw_episodes(split, ("h", "i", "j"), spec, 10, SEED)
    assert "\n" not in str(error.value)


def test_the_margin_is_paired(episodes: EpisodeSet, network: RelationNetwork) -> None:
    judged = judge_episodes(network, episodes)
    scores = episode_scores(network, episodes)
    torch.testing.assert_close(judged[0], scores)
    task = task_accuracy(judged, np.zeros(0), EVALUATED)
    actual = np.repeat(np.arange(2), 3)
    right = (judged.numpy().argmax(-1) == actual).mean(-1)  # [3, e]
    difference = right[0] - right[1]
    assert (task.accuracy, task.cosine_accuracy, task.relation_accuracy) == pytest.approx(
        tuple(right.mean(1)), abs=1e-6
    )
    assert task.margin == pytest.approx(task.accuracy - task.cosine_accuracy)
    assert task.margin_ci95 == pytest.approx(1.96 * difference.std(ddof=1) / np.sqrt(len(difference)))
    assert task.episodes == len(episodes)
    assert task.transductive_episodes == 0


def test_a_head_that_has_not_learned_has_no_margin(episodes: EpisodeSet) -> None:
    fresh = build_network(tiny_params({"model.head": "residual"}).model, seed=0)
    judged = judge_episodes(fresh, episodes)
    task = task_accuracy(judged, np.zeros(0), EVALUATED)
    assert (task.margin, task.margin_ci95) == (0, 0)


def test_transductive_is_batch_norm_by_the_episode(episodes: EpisodeSet, network: RelationNetwork) -> None:
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found = transductive_accuracies(network, episodes[:5])
    assert found.shape == (5,)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not network.training
    backwards = transductive_accuracies(network, episodes[4::-1])
    assert np.array_equal(found, backwards[::-1])  # no episode leaves a trace in the next
    assert len(transductive_accuracies(network, episodes[:0])) == 0
