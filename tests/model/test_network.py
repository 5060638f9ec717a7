"""The Relation Network: what it computes, and that neither pairing, memory order nor company changes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from parashot.model.losses import cross_entropy, mse
from parashot.model.network import EpisodeModel, RelationNetwork, build_network
from parashot.params import ModelParams

CONV4 = ModelParams(
    embedding="conv4", image_size=16, pairing="auto", shots="mean", head="relation", init="kaiming"
)
BOTTLENECK = replace(CONV4, embedding="bottleneck")
EMBEDDINGS = ("conv4", "bottleneck", "resnet12")


def test_the_study_has_its_number_of_parameters() -> None:
    assert (
        sum(parameter.numel() for parameter in build_network(BOTTLENECK, seed=0).parameters()) == 11_285_569
    )


@pytest.mark.parametrize("embedding", EMBEDDINGS)
@pytest.mark.parametrize("k_shot", [1, 3])
def test_pairings_have_equal_scores_and_gradients(embedding: str, k_shot: int) -> None:
    params = replace(CONV4, embedding=embedding)
    support, query = _episodes(2, 3, k_shot, k_query=1, dtype=torch.float64)
    results = []
    for pairing in ("concat", "split"):
        network = build_network(replace(params, pairing=pairing), seed=0).double()
        scores = network(support, query)
        mse(scores).sum().backward()
        results.append((scores, {name: value.grad for name, value in network.named_parameters()}))
    (concat, concat_gradients), (split, split_gradients) = results
    torch.testing.assert_close(concat, split, rtol=0, atol=1e-10)
    assert max(float(gradient.abs().max()) for gradient in concat_gradients.values()) > 1e-4
    for name, gradient in concat_gradients.items():
        torch.testing.assert_close(gradient, split_gradients[name], rtol=0, atol=1e-10)


@pytest.mark.parametrize(("embedding", "size"), [("bottleneck", 84), ("bottleneck", 224), ("conv4", 84)])
def test_image_sizes(embedding: str, size: int) -> None:
    network = build_network(replace(CONV4, embedding=embedding), seed=0).eval()
    with torch.no_grad():
        scores = network(*_episodes(1, 2, 1, k_query=1, size=size))
    assert scores.shape == (1, 2, 2)
    assert scores.isfinite().all()


def test_forward_is_embed_and_relate() -> None:
    network = build_network(CONV4, seed=0).eval()
    support, query = _episodes(2, 3, 2, k_query=4)
    support_maps = network.embed(support.flatten(0, 2)).unflatten(0, (2, 3, 2))
    query_maps = network.embed(query.flatten(0, 1)).unflatten(0, (2, 12))
    torch.testing.assert_close(network.relate(support_maps, query_maps), network(support, query))


def test_an_episode_is_scored_alone() -> None:
    network = build_network(CONV4, seed=0).double().eval()
    support, query = _episodes(3, 4, 1, k_query=2, dtype=torch.float64)
    alone = [network(support[i : i + 1], query[i : i + 1]) for i in range(3)]
    torch.testing.assert_close(network(support, query), torch.cat(alone), rtol=0, atol=1e-12)


@pytest.mark.parametrize("pairing", ["concat", "split"])
def test_scores_follow_classes_and_queries(pairing: str) -> None:
    network = build_network(replace(CONV4, pairing=pairing), seed=0).double().eval()
    support, query = _episodes(1, 4, 1, k_query=2, dtype=torch.float64)
    classes, queries = (
        torch.tensor([2, 0, 3, 1]),
        torch.randperm(8, generator=torch.Generator().manual_seed(1)),
    )
    scores = network(support, query)
    permuted = network(support[:, classes], query[:, queries])
    torch.testing.assert_close(permuted, scores[:, queries][:, :, classes], rtol=0, atol=1e-12)
    assert scores.std() > 1e-3


def test_shots_are_averaged_or_added() -> None:
    support, query = _episodes(1, 3, 1, k_query=2)
    twice = support.expand(-1, -1, 2, -1, -1, -1)
    mean, total = (build_network(replace(CONV4, shots=shots), seed=0).eval() for shots in ("mean", "sum"))
    torch.testing.assert_close(mean(twice, query), mean(support, query))
    maps, query_maps = mean.embed(support[0, :, 0]), mean.embed(query[0])
    doubled = mean.relate(2 * maps[None, :, None], query_maps[None])
    torch.testing.assert_close(total(twice, query), doubled)
    assert not torch.allclose(total(twice, query), mean(twice, query))


@pytest.mark.parametrize("pairing", ["concat", "split"])
@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_memory_order_stays_and_changes_nothing(embedding: str, pairing: str) -> None:
    network = build_network(replace(CONV4, embedding=embedding, pairing=pairing), seed=0).double()
    contiguous = _episodes(1, 2, 2, k_query=2, size=32, dtype=torch.float64)
    permuted = [images.movedim(-3, -1).contiguous().movedim(-1, -3) for images in contiguous]
    formats: list[bool] = []
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(
                lambda _m, args, _o: formats.append(args[0].is_contiguous(memory_format=torch.channels_last))
            )
    scores = network(*permuted)
    assert len(formats) > 4
    assert all(formats)
    torch.testing.assert_close(network(*contiguous), scores, rtol=0, atol=1e-9)


def test_weights_are_a_function_of_the_seed() -> None:
    first, again, other = (build_network(CONV4, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embedding.0.0.weight"], other["embedding.0.0.weight"])


def test_building_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    build_network(CONV4, seed=7)
    assert torch.equal(before, torch.get_rng_state())


def test_it_learns_an_episode() -> None:
    network = build_network(CONV4, seed=0)
    support, query = _episodes(1, 3, 1, k_query=3)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    losses = []
    for _ in range(12):
        loss = cross_entropy(network(support, query)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 3


def test_nothing_of_a_forward_is_kept() -> None:
    network = build_network(CONV4, seed=0)
    held = {name for name, value in vars(network).items() if isinstance(value, Tensor)}
    network(*_episodes(1, 2, 1, k_query=1))
    assert {name for name, value in vars(network).items() if isinstance(value, Tensor)} == held == set()


class TestEpisodeModel:
    def test_one_array_holds_support_then_queries(self) -> None:
        network, (support, query), episodes = _in_one_array(build_network(CONV4, seed=0).eval(), k_query=2)
        model = EpisodeModel(network, n_way=3, k_shot=2)
        torch.testing.assert_close(model(episodes), network(support, query))

    @pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
    def test_exported_it_takes_any_number_of_episodes_and_queries(self) -> None:
        network, _, episodes = _in_one_array(build_network(CONV4, seed=0).eval(), k_query=2)
        model = EpisodeModel(network, n_way=3, k_shot=2)
        auto = torch.export.Dim.AUTO
        exported = torch.export.export(model, (episodes,), dynamic_shapes=({0: auto, 1: auto},)).module()
        _, _, others = _in_one_array(network, b=3, k_query=5)
        torch.testing.assert_close(exported(others), model(others))


def _in_one_array(
    network: RelationNetwork, b: int = 2, *, k_query: int
) -> tuple[RelationNetwork, tuple[Tensor, Tensor], Tensor]:
    support, query = _episodes(b, 3, 2, k_query=k_query)
    return network, (support, query), torch.cat((support.flatten(1, 2), query), dim=1)


def _episodes(
    b: int, n_way: int, k_shot: int, *, k_query: int, size: int = 16, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Random support [b, n_way, k_shot, 3, size, size] and query [b, n_way k_query, 3, size, size]."""
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(b, n_way, k_shot, 3, size, size, generator=generator, dtype=dtype)
    return support, torch.randn(b, n_way * k_query, 3, size, size, generator=generator, dtype=dtype)
