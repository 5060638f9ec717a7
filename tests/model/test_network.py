"""The Relation Network and its heads: scores, whatever the pairing, the memory order and the company."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parashot.model.brownian import distances
from parashot.model.losses import cross_entropy
from parashot.model.network import EpisodeModel, RelationNetwork, build_network
from parashot.model.pairing import ConcatPairs
from parashot.model.relation import BottleneckHead, ConvHead
from parashot.model.residual import ResidualHead
from parashot.params import ModelParams

CONV4 = ModelParams("conv4", 16, None, "auto", "mean", "relation", (1,), "kaiming", 0)


def built(**model: object) -> RelationNetwork:
    return build_network(replace(CONV4, **model), seed=0).double()  # type: ignore[arg-type]


def episodes(b: int, n_way: int, k_shot: int, k_query: int) -> tuple[Tensor, Tensor]:
    """Random support [b, n_way, k_shot, 3, 16, 16] and query [b, n_way k_query, 3, 16, 16]."""
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(b, n_way, k_shot, 3, 16, 16, generator=generator, dtype=torch.float64)
    query = torch.randn(b, n_way * k_query, 3, 16, 16, generator=generator, dtype=torch.float64)
    return support, query


def maps_of(network: RelationNetwork, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    b, n, k = support.shape[:3]
    supports = network.embed(support.flatten(0, 2)).unflatten(0, (b, n, k))
    return supports, network.embed(query.flatten(0, 1)).unflatten(0, (b, -1))


def learn(network: RelationNetwork, support: Tensor, query: Tensor) -> None:
    """Do some steps of training, past the beginning, where a residual head says nothing."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        cross_entropy(network(support, query)).mean().backward()
        optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize(
    ("embedding", "head", "k_shot"),
    [("conv4", "relation", 3), ("conv4", "residual", 2), ("bottleneck", "relation", 1)],
)
def test_pairings_have_equal_scores_and_gradients(embedding: str, head: str, k_shot: int) -> None:
    support, query = episodes(2, 3, k_shot, k_query=1)
    results = []
    for pairing in ("concat", "split"):
        network = built(embedding=embedding, head=head, pairing=pairing)
        if head == "residual":
            learn(network, support, query)
        scores = network(support, query)
        cross_entropy(scores).sum().backward()
        results.append([scores, *(value.grad for value in network.parameters())])
    assert max(float(gradient.abs().max()) for gradient in results[0][1:]) > 1e-4
    for concat, split in zip(*results, strict=True):
        torch.testing.assert_close(concat, split, rtol=0, atol=1e-9 if head == "residual" else 1e-10)


def test_an_episode_is_embedded_and_related_alone() -> None:
    network, (support, query) = built().eval(), episodes(3, 4, 2, k_query=2)
    whole = network(support, query)
    alone = [network(support[i : i + 1], query[i : i + 1]) for i in range(3)]
    torch.testing.assert_close(whole, torch.cat(alone), rtol=0, atol=1e-12)
    torch.testing.assert_close(network.relate(*maps_of(network, support, query)), whole)


def test_shots_are_averaged_or_added() -> None:
    support, query = episodes(1, 3, 1, k_query=2)
    twice = support.expand(-1, -1, 2, -1, -1, -1)
    mean, total = (built(shots=shots).eval() for shots in ("mean", "sum"))
    torch.testing.assert_close(mean(twice, query), mean(support, query))
    supports, queries = maps_of(mean, support, query)
    torch.testing.assert_close(total(twice, query), mean.relate(2 * supports, queries))
    assert not torch.allclose(total(twice, query), mean(twice, query))


@pytest.mark.parametrize(("embedding", "pairing"), [("bottleneck", "split"), ("conv4", "concat")])
def test_memory_order_stays_and_changes_nothing(embedding: str, pairing: str) -> None:
    network, contiguous = built(embedding=embedding, pairing=pairing), episodes(1, 2, 2, k_query=2)
    permuted = [images.movedim(-3, -1).contiguous().movedim(-1, -3) for images in contiguous]
    formats: list[bool] = []
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(
                lambda _m, args, _o: formats.append(args[0].is_contiguous(memory_format=torch.channels_last))
            )
    scores = network(*permuted)
    assert len(formats) > 4 and all(formats)
    torch.testing.assert_close(network(*contiguous), scores, rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_one_array_of_support_then_queries_is_scored_and_exported() -> None:
    """Exported, it takes any number of episodes and queries."""
    network = built().eval()
    model = EpisodeModel(network, n_way=3, k_shot=2)
    (support, query), (more_support, more_query) = episodes(2, 3, 2, k_query=2), episodes(3, 3, 2, k_query=5)
    array = torch.cat((support.flatten(1, 2), query), dim=1)
    torch.testing.assert_close(model(array), network(support, query))
    auto = torch.export.Dim.AUTO
    exported = torch.export.export(model, (array,), dynamic_shapes=({0: auto, 1: auto},)).module()
    more = torch.cat((more_support.flatten(1, 2), more_query), dim=1)
    torch.testing.assert_close(exported(more), network(more_support, more_query))


@pytest.mark.parametrize("size", [1, 6])
@pytest.mark.parametrize("head", [ConvHead, BottleneckHead])
def test_any_map_size_gives_a_score_per_pair(head: type[nn.Module], size: int) -> None:
    pairs = ConcatPairs(torch.rand(2, 3, 16, size, size), torch.rand(2, 6, 16, size, size))
    scores = head(16)(pairs)
    assert scores.shape == (2 * 6 * 3, 1)
    assert scores.isfinite().all()


def test_the_study_has_its_number_of_parameters_and_the_conv_head_the_papers_layers() -> None:
    assert sum(each.numel() for each in built(embedding="bottleneck").parameters()) == 11_285_569
    shapes = [tuple(parameter.shape) for parameter in ConvHead(64).parameters() if parameter.dim() > 1]
    assert shapes == [(64, 128, 3, 3), (64, 64, 3, 3), (8, 576), (1, 8)]


def test_a_residual_head_begins_as_the_mean_of_cosines_of_centred_maps_over_each_grid() -> None:
    """Over one grid, the mean of a map, where it is trained."""
    network = built(head="residual", test_grids=(1, 3)).eval()
    head = network.relation
    assert isinstance(head, ResidualHead)
    head.centre.uniform_(-0.1, 0.1, generator=torch.Generator().manual_seed(2))
    supports, queries = maps_of(network, *episodes(1, 3, 2, 1))
    expected = []
    for grid in (1, 3):
        classes, asked = (
            (F.adaptive_avg_pool2d(maps, grid) - head.centre[:, None, None]).flatten(1)
            for maps in (supports[0].mean(1), queries[0])
        )
        expected.append(F.cosine_similarity(asked[:, None], classes[None], dim=-1))
    scores, cosine, alone = network.judge(supports, queries)[0]
    torch.testing.assert_close(scores, 10 * cosine)
    assert alone.abs().max() == 0
    torch.testing.assert_close(cosine, sum(expected) / 2)
    torch.testing.assert_close(network.cosine(supports, queries)[0], cosine)
    assert cosine.abs().max() > 0.1
    assert (expected[0] - expected[1]).abs().max() > 0.01
    trained = network.train().judge(supports, queries)[0, 1]
    torch.testing.assert_close(trained, expected[0])


@pytest.mark.parametrize("head", ["relation", "residual", "bdc"])
def test_parts_add_up_to_the_scores(head: str) -> None:
    network, (support, query) = built(head=head), episodes(2, 3, 1, 4)
    learn(network, support, query)
    network.eval()
    scores, cosine, alone = network.judge(*maps_of(network, support, query)).unbind(1)
    torch.testing.assert_close(scores, network(support, query))
    assert alone.std() > 1e-6
    if isinstance(network.relation, ResidualHead):
        temperature = network.relation.log_temperature.exp()
        assert temperature != 10
        torch.testing.assert_close(scores, temperature * cosine + alone)
    else:
        assert torch.equal(scores, alone)


@pytest.mark.parametrize("head", ["residual", "bdc"])
def test_centres_follow_the_queries_in_training_alone(head: str) -> None:
    network = built(head=head)
    relation = network.relation
    with torch.no_grad():
        supports, queries = maps_of(network, *episodes(1, 3, 1, 2))
        for _ in range(2):
            network.relate(supports, queries)
        centres = {"centre": queries[0].mean((0, 2, 3))}
        if head == "bdc":
            centres["joint_centre"] = distances(queries[0]).mean(0)
        for name, mean in centres.items():
            torch.testing.assert_close(relation.get_buffer(name), mean * (1 - 0.99**2))
        before = {name: each.clone() for name, each in relation.named_buffers()}
        network.eval().relate(supports, queries)
    assert all(torch.equal(before[name], each) for name, each in relation.named_buffers())
