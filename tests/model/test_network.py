"""The Relation Network: what it computes, and that neither pairing, memory order nor company changes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from parashot.model.losses import mse
from parashot.model.network import EpisodeModel, RelationNetwork, build_network
from parashot.params import ModelParams

CONV4 = ModelParams("conv4", 16, "auto", "mean", "relation", "kaiming")
EMBEDDINGS = ("conv4", "bottleneck", "resnet12")


def built(**model: str) -> RelationNetwork:
    return build_network(replace(CONV4, **model), seed=0)  # type: ignore[arg-type]


def episodes(
    b: int, n_way: int, k_shot: int, k_query: int, size: int = 16, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Random support [b, n_way, k_shot, 3, size, size] and query [b, n_way k_query, 3, size, size]."""
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(b, n_way, k_shot, 3, size, size, generator=generator, dtype=dtype)
    return support, torch.randn(b, n_way * k_query, 3, size, size, generator=generator, dtype=dtype)


def test_the_study_has_its_number_of_parameters() -> None:
    assert sum(each.numel() for each in built(embedding="bottleneck").parameters()) == 11_285_569


@pytest.mark.parametrize(("embedding", "k_shot"), [("conv4", 3), ("bottleneck", 1), ("resnet12", 1)])
def test_pairings_have_equal_scores_and_gradients(embedding: str, k_shot: int) -> None:
    support, query = episodes(2, 3, k_shot, k_query=1)
    results = []
    for pairing in ("concat", "split"):
        network = built(embedding=embedding, pairing=pairing).double()
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
    with torch.no_grad():
        network = built(embedding=embedding).eval()
        scores = network(*episodes(1, 2, 1, k_query=1, size=size, dtype=torch.float32))
    assert scores.shape == (1, 2, 2)
    assert scores.isfinite().all()


def test_an_episode_is_embedded_and_related_alone() -> None:
    network = built().double().eval()
    support, query = episodes(3, 4, 2, k_query=2)
    whole = network(support, query)
    alone = [network(support[i : i + 1], query[i : i + 1]) for i in range(3)]
    torch.testing.assert_close(whole, torch.cat(alone), rtol=0, atol=1e-12)
    support_maps = network.embed(support.flatten(0, 2)).unflatten(0, (3, 4, 2))
    query_maps = network.embed(query.flatten(0, 1)).unflatten(0, (3, 8))
    torch.testing.assert_close(network.relate(support_maps, query_maps), whole)


@pytest.mark.parametrize("pairing", ["concat", "split"])
def test_scores_follow_classes_and_queries(pairing: str) -> None:
    network = built(pairing=pairing).double().eval()
    support, query = episodes(1, 4, 1, k_query=2)
    classes, queries = torch.tensor([2, 0, 3, 1]), torch.tensor([5, 2, 7, 0, 3, 6, 1, 4])
    scores = network(support, query)
    permuted = network(support[:, classes], query[:, queries])
    torch.testing.assert_close(permuted, scores[:, queries][:, :, classes], rtol=0, atol=1e-12)
    assert scores.std() > 1e-3


def test_shots_are_averaged_or_added() -> None:
    support, query = episodes(1, 3, 1, k_query=2)
    twice = support.expand(-1, -1, 2, -1, -1, -1)
    mean, total = (built(shots=shots).double().eval() for shots in ("mean", "sum"))
    torch.testing.assert_close(mean(twice, query), mean(support, query))
    maps, query_maps = mean.embed(support[0, :, 0]), mean.embed(query[0])
    torch.testing.assert_close(total(twice, query), mean.relate(2 * maps[None, :, None], query_maps[None]))
    assert not torch.allclose(total(twice, query), mean(twice, query))


@pytest.mark.parametrize("pairing", ["concat", "split"])
@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_memory_order_stays_and_changes_nothing(embedding: str, pairing: str) -> None:
    network = built(embedding=embedding, pairing=pairing).double()
    contiguous = episodes(1, 2, 2, k_query=2)
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


def test_weights_are_a_function_of_the_seed_alone() -> None:
    before = torch.get_rng_state()
    first, again, other = (build_network(CONV4, seed).state_dict() for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embedding.0.0.weight"], other["embedding.0.0.weight"])


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_one_array_of_support_then_queries_is_scored_and_exported() -> None:
    """Exported, it takes any number of episodes and queries, as a serving system sends them."""
    network = built().double().eval()
    (support, query), (more_support, more_query) = episodes(2, 3, 2, k_query=2), episodes(3, 3, 2, k_query=5)
    model = EpisodeModel(network, n_way=3, k_shot=2)
    array = torch.cat((support.flatten(1, 2), query), dim=1)
    torch.testing.assert_close(model(array), network(support, query))
    auto = torch.export.Dim.AUTO
    exported = torch.export.export(model, (array,), dynamic_shapes=({0: auto, 1: auto},)).module()
    more = torch.cat((more_support.flatten(1, 2), more_query), dim=1)
    torch.testing.assert_close(exported(more), network(more_support, more_query))
