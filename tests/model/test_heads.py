"""Heads: a score per pair of maps of any size; the residual head begins as the cosine and adds up."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_data import tiny_params
from torch import Tensor, nn
from torch.nn import functional as F

from parashot.errors import ParamsError
from parashot.model.losses import cross_entropy
from parashot.model.network import RelationNetwork, build_network
from parashot.model.pairing import ConcatPairs
from parashot.model.relation import BottleneckHead, ConvHead
from parashot.model.residual import ResidualHead
from parashot.params import ModelParams

MODEL = ModelParams("conv4", 16, "auto", "mean", "residual", "kaiming")


@pytest.mark.parametrize("size", [1, 2, 3, 4, 21])
@pytest.mark.parametrize("head", [ConvHead, BottleneckHead])
def test_any_map_size_gives_a_score_per_pair(head: type[nn.Module], size: int) -> None:
    pairs = ConcatPairs(torch.rand(2, 3, 16, size, size), torch.rand(2, 6, 16, size, size))
    scores = head(16)(pairs)
    assert scores.shape == (2 * 6 * 3, 1)
    assert scores.isfinite().all()


def test_conv_head_has_the_papers_layers() -> None:
    shapes = [tuple(parameter.shape) for parameter in ConvHead(64).parameters() if parameter.dim() > 1]
    assert shapes == [(64, 128, 3, 3), (64, 64, 3, 3), (8, 576), (1, 8)]


# --- the residual head ------------------------------------------------------------------------------------


def built(**model: str) -> RelationNetwork:
    return build_network(replace(MODEL, **model), seed=0).double()  # type: ignore[arg-type]


def episodes(count: int, n_way: int, k_shot: int, k_query: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    support = torch.rand(count, n_way, k_shot, 3, 16, 16, dtype=torch.float64, generator=generator)
    return support, torch.rand(count, n_way * k_query, 3, 16, 16, dtype=torch.float64, generator=generator)


def judged(network: RelationNetwork, support: Tensor, query: Tensor) -> Tensor:
    b, n, k = support.shape[:3]
    supports = network.embed(support.flatten(0, 2)).unflatten(0, (b, n, k))
    return network.judge(supports, network.embed(query.flatten(0, 1)).unflatten(0, (b, -1)))


def learn(network: RelationNetwork, support: Tensor, query: Tensor) -> None:
    """Do some steps of training, past the beginning, where the head says nothing."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        cross_entropy(network(support, query)).mean().backward()
        optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("embedding", ["conv4", "bottleneck", "resnet12"])
def test_it_begins_as_the_cosine_of_centred_mean_maps(embedding: str) -> None:
    network = built(embedding=embedding).eval()
    head = network.relation
    assert isinstance(head, ResidualHead)
    head.centre.uniform_(-0.1, 0.1, generator=torch.Generator().manual_seed(2))
    support, query = episodes(1, 3, 2, 1)
    scores, cosine, alone = judged(network, support, query).unbind(1)
    torch.testing.assert_close(scores, 10 * cosine)
    assert alone.abs().max() == 0
    classes = network.embed(support.flatten(0, 2)).mean((-2, -1)).view(3, 2, -1).mean(1) - head.centre
    queries = network.embed(query[0]).mean((-2, -1)) - head.centre
    expected = F.cosine_similarity(queries[:, None], classes[None], dim=-1)
    torch.testing.assert_close(cosine[0], expected)
    assert 0.1 < cosine.abs().max() <= 1 + 1e-12


@pytest.mark.parametrize("head", ["relation", "residual"])
def test_parts_add_up_to_the_scores(head: str) -> None:
    network = built(head=head)
    support, query = episodes(2, 3, 1, 4)
    learn(network, support, query)
    scores, cosine, alone = judged(network.eval(), support, query).unbind(1)
    torch.testing.assert_close(scores, network(support, query))
    assert alone.std() > 1e-6
    if isinstance(network.relation, ResidualHead):
        temperature = network.relation.log_temperature.exp()
        assert temperature != 10
        torch.testing.assert_close(scores, temperature * cosine + alone)
    else:
        assert torch.equal(scores, alone)


def test_pairings_have_equal_scores_and_gradients() -> None:
    found = []
    for pairing in ("concat", "split"):
        network, (support, query) = built(pairing=pairing), episodes(2, 3, 2, 1)
        learn(network, support, query)
        scores = network(support, query)
        cross_entropy(scores).sum().backward()
        found.append([scores, *(each.grad for each in network.parameters())])
    for concat, split in zip(*found, strict=True):
        torch.testing.assert_close(concat, split, rtol=0, atol=1e-9)


def test_the_centre_follows_the_mean_in_training_alone() -> None:
    network, (support, query) = built(), episodes(1, 3, 1, 2)
    head = network.relation
    assert isinstance(head, ResidualHead)
    with torch.no_grad():
        maps = network.embed(torch.cat((support.flatten(0, 2), query[0])))
        for _ in range(600):
            network.relate(maps[:3].view(1, 3, 1, *maps.shape[1:]), maps[3:][None])
        torch.testing.assert_close(head.centre, maps[3:].mean((0, 2, 3)), rtol=0.02, atol=0.01)
        before = head.centre.clone()
        network.eval()(support, query)
    assert torch.equal(before, head.centre)


def test_sums_of_shots_have_no_cosine() -> None:
    with pytest.raises(ParamsError, match=r"model\.shots: sum"):
        tiny_params({"model.head": "residual", "model.shots": "sum"})
