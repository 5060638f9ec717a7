"""Accuracy of packed episodes: each image embedded once, and the same values as episode by episode."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from parashot.train.evaluate import EpisodeSet, episode_accuracies, mean_and_ci95
from tiny_data import EVALUATED, PACKED_EPISODES, tiny_params

from parashot.data.packed import PackedSplit
from parashot.data.pixels import normalise
from parashot.model.losses import accuracy
from parashot.model.network import RelationNetwork, build_network
from parashot.train import evaluate

pytestmark = pytest.mark.usefixtures("one_core")
CPU, SIZE = torch.device("cpu"), 16
Accuracies = npt.NDArray[np.float64]


@pytest.fixture
def split(tiny_packed: Path) -> PackedSplit:
    return PackedSplit(tiny_packed, "val")


@pytest.fixture
def network() -> RelationNetwork:
    """Its running statistics differ from any batch's own, so that eval and training mode differ."""
    network = build_network(tiny_params().model, seed=1)
    generator = torch.Generator().manual_seed(1)
    network.train()
    network(*(torch.randn(1, 2, *shape, 3, SIZE, SIZE, generator=generator) for shape in ((1,), ())))
    return network


def pixels(split: PackedSplit, rows: npt.NDArray[np.int32]) -> torch.Tensor:
    return normalise(torch.from_numpy(split.images[rows]).movedim(-1, -3).float())


@torch.no_grad()
def one_by_one(network: RelationNetwork, split: PackedSplit) -> Accuracies:
    network.eval()
    values = []
    for rows in split.episodes:
        images = pixels(split, rows)
        support, query = images[:, : EVALUATED.k_shot], images[:, EVALUATED.k_shot :].flatten(0, 1)
        values.append(accuracy(network(support[None], query[None])).item())
    network.train()
    return np.array(values)


def measure(network: RelationNetwork, split: PackedSplit) -> Accuracies:
    return episode_accuracies(network, EpisodeSet(split, EVALUATED, split.episodes))


def count_embedded(network: RelationNetwork, monkeypatch: pytest.MonkeyPatch) -> Counter[bytes]:
    """From now on, count every image that passes the embedding."""
    seen: Counter[bytes] = Counter()
    embed = network.embed

    def counting(images: torch.Tensor) -> torch.Tensor:
        seen.update(image.contiguous().numpy().tobytes() for image in images)
        return embed(images)

    monkeypatch.setattr(network, "embed", counting)
    return seen


def test_accuracies_are_those_of_each_episode_in_eval_mode(
    network: RelationNetwork, split: PackedSplit
) -> None:
    values = measure(network, split)
    assert values.shape == (PACKED_EPISODES,)
    assert len(set(values)) > 1
    np.testing.assert_allclose(values, one_by_one(network, split))


def test_each_image_is_embedded_once(
    network: RelationNetwork, split: PackedSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = count_embedded(network, monkeypatch)
    measure(network, split)
    different = np.unique(split.episodes)
    assert len(different) < split.episodes.size
    expected = Counter(image.contiguous().numpy().tobytes() for image in pixels(split, different))
    probe = pixels(split, split.episodes.reshape(-1)[:1])[0]  # one map tells how large all are
    expected[probe.contiguous().numpy().tobytes()] += 1
    assert seen == expected


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_restored(network: RelationNetwork, split: PackedSplit, training: bool) -> None:
    network.train(training)
    measure(network, split)
    assert {module.training for module in network.modules()} == {training}


def test_the_mode_is_restored_after_a_failure(
    network: RelationNetwork, split: PackedSplit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*maps: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(network, "relate", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        measure(network, split)
    assert network.training


@pytest.mark.parametrize("maps_at_once", [1, 8, 12])
def test_groups_of_episodes_give_the_same_values(
    network: RelationNetwork, split: PackedSplit, monkeypatch: pytest.MonkeyPatch, maps_at_once: int
) -> None:
    whole = measure(network, split)
    network.eval()
    with torch.inference_mode():
        map_bytes = network.embed(pixels(split, split.episodes.reshape(-1)[:1])).nbytes
    monkeypatch.setattr(evaluate, "_MAP_BYTES", map_bytes * maps_at_once)
    seen = count_embedded(network, monkeypatch)
    np.testing.assert_allclose(measure(network, split), whole)
    assert seen.total() > len(np.unique(split.episodes)) + 1


def test_mean_and_interval() -> None:
    mean, ci95 = mean_and_ci95(np.array([0.0, 1.0, 1.0, 0.0]))
    assert mean == 0.5
    assert ci95 == pytest.approx(1.96 * (1 / 3) ** 0.5 / 2)
