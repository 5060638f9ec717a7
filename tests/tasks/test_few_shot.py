"""Accuracy of episodes: each image embedded once, the same values as episode by episode, and their sums."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_data import EVALUATED, PACKED_EPISODES, SEED, tiny_params

from parashot.data.pixels import prepare
from parashot.model.losses import accuracy, cross_entropy
from parashot.model.network import RelationNetwork, build_network
from parashot.tasks import evaluation
from parashot.tasks.evaluation import EpisodeSet, draw_split, episode_accuracies, related
from parashot.tasks.few_shot import judge_episodes, transductive_accuracies

pytestmark = pytest.mark.usefixtures("one_core")


@pytest.fixture(scope="module")
def episodes(tiny_packed: Path) -> EpisodeSet:
    return draw_split(tiny_packed, "test", EVALUATED, PACKED_EPISODES, SEED)


@pytest.fixture
def network(episodes: EpisodeSet) -> RelationNetwork:
    """With a residual head, trained for some steps so that its parts differ, and so do its modes."""
    built = build_network(tiny_params({"model.head": "residual"}).model, seed=0)
    optimizer = torch.optim.Adam(built.parameters(), lr=1e-2)
    for images in pixels(episodes)[:4]:
        loss = cross_entropy(built(images[None, :, :1], images[None, :, 1:].flatten(1, 2)))
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
    return built


def pixels(episodes: EpisodeSet) -> torch.Tensor:
    """Normalised images [e, n, per_class, 3, h, w]."""
    return prepare(torch.from_numpy(episodes.split.images[episodes.rows]).movedim(-1, -3), 16)


def test_images_are_tested_at_a_size_of_their_own(episodes: EpisodeSet) -> None:
    larger = build_network(tiny_params({"model.test_size": 24}).model, seed=0)
    assert larger.params.image_size == 16
    assert evaluation.ready_images(larger, episodes.split, episodes.rows[0, 0]).shape[-2:] == (24, 24)
    alike = build_network(tiny_params({"model.image_size": 24}).model, seed=0)
    assert torch.equal(related(larger, larger.relate, episodes), related(alike, alike.relate, episodes))


def test_each_image_is_embedded_once_for_the_accuracy_of_each_episode_in_eval_mode(
    network: RelationNetwork, episodes: EpisodeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where their maps take too much memory, once in each group of episodes."""
    network.eval()
    with torch.inference_mode():
        pairs = [(images[None, :, :1], images[None, :, 1:].flatten(1, 2)) for images in pixels(episodes)]
        expected = [accuracy(network(support, query)).item() for support, query in pairs]
        map_bytes = network.embed(pixels(episodes)[0, 0, :1]).nbytes
    network.train()
    assert len(set(expected)) > 1
    seen: Counter[bytes] = Counter()
    embed = network.embed

    def counting(images: torch.Tensor) -> torch.Tensor:
        seen.update(image.contiguous().numpy().tobytes() for image in images)
        return embed(images)

    monkeypatch.setattr(network, "embed", counting)
    np.testing.assert_allclose(episode_accuracies(network, episodes), expected)
    assert network.training
    different = len(np.unique(episodes.rows))
    assert different < episodes.rows.size
    assert (len(seen), seen.total()) == (different, different + 1)  # one map tells how large all are
    monkeypatch.setattr(evaluation, "_MAP_BYTES", 16 * map_bytes)
    np.testing.assert_allclose(episode_accuracies(network, episodes), expected)
    assert seen.total() > 2 * (different + 1)


def test_the_margin_over_the_cosine_is_paired(episodes: EpisodeSet, network: RelationNetwork) -> None:
    judged, task = judge_episodes(network, episodes)
    torch.testing.assert_close(judged[0], related(network, network.relate, episodes))
    right = (judged.numpy().argmax(-1) == np.repeat(np.arange(2), 3)).mean(-1)  # [3, e]
    difference = right[0] - right[1]
    found = (task.accuracy, task.cosine_accuracy, task.relation_accuracy)
    assert found == pytest.approx(tuple(right.mean(1)), abs=1e-6)
    assert task.margin == pytest.approx(task.accuracy - task.cosine_accuracy)
    assert task.margin_ci95 == pytest.approx(1.96 * difference.std(ddof=1) / np.sqrt(len(difference)))
    assert (task.episodes, task.transductive_episodes) == (len(episodes), 0)
    fresh = build_network(tiny_params({"model.head": "residual"}).model, seed=0)
    _, unlearned = judge_episodes(fresh, episodes)
    assert (unlearned.margin, unlearned.margin_ci95) == (0, 0)


def test_transductive_is_batch_norm_by_the_episode(episodes: EpisodeSet, network: RelationNetwork) -> None:
    network.eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found = transductive_accuracies(network, episodes[:5])
    assert found.shape == (5,)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not network.training
    backwards = transductive_accuracies(network, episodes[4::-1])
    assert np.array_equal(found, backwards[::-1])  # no episode leaves a trace in the next
    assert len(transductive_accuracies(network, episodes[:0])) == 0
