"""The residual head: it begins as the cosine, and what it is made of adds up."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from parashot.errors import ParamsError
from parashot.model.losses import cross_entropy
from parashot.model.network import RelationNetwork, build_network
from parashot.model.residual import ResidualHead
from parashot.params import ModelParams

MODEL = ModelParams("conv4", 16, "auto", "mean", "residual", "kaiming")


def built(embedding: str = "conv4", pairing: str = "auto") -> RelationNetwork:
    model = replace(MODEL, embedding=embedding, pairing=pairing)  # type: ignore[arg-type]
    return build_network(model, seed=0).double()


def episodes(count: int, n_way: int, k_shot: int, k_query: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    support = torch.rand(count, n_way, k_shot, 3, 16, 16, dtype=torch.float64, generator=generator)
    query = torch.rand(count, n_way * k_query, 3, 16, 16, dtype=torch.float64, generator=generator)
    return support, query


def judged(network: RelationNetwork, support: Tensor, query: Tensor) -> Tensor:
    b, n, k = support.shape[:3]
    supports = network.embed(support.flatten(0, 2)).unflatten(0, (b, n, k))
    return network.judge(supports, network.embed(query.flatten(0, 1)).unflatten(0, (b, -1)))


@pytest.mark.parametrize("embedding", ["conv4", "bottleneck", "resnet12"])
def test_it_begins_as_the_cosine(embedding: str) -> None:
    network = built(embedding).eval()
    scores, cosine, alone = judged(network, *episodes(2, 3, 2, 4)).unbind(1)
    torch.testing.assert_close(scores, 10 * cosine)
    assert alone.abs().max() == 0
    assert 0.1 < cosine.abs().max() <= 1 + 1e-12


def test_cosines_are_those_of_centred_mean_maps() -> None:
    network = built().eval()
    head = network.relation
    assert isinstance(head, ResidualHead)
    head.centre.uniform_(-1, 1, generator=torch.Generator().manual_seed(2))
    support, query = episodes(1, 3, 2, 1)
    found = judged(network, support, query)[0, 1]
    classes = network.embed(support.flatten(0, 2)).mean((-2, -1)).view(3, 2, -1).mean(1) - head.centre
    queries = network.embed(query[0]).mean((-2, -1)) - head.centre
    expected = torch.nn.functional.cosine_similarity(queries[:, None], classes[None], dim=-1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("head", ["relation", "residual"])
def test_parts_add_up_to_the_scores(head: str) -> None:
    network = build_network(replace(MODEL, head=head), seed=0).double()  # type: ignore[arg-type]
    support, query = episodes(2, 3, 1, 4)
    learn(network, support, query)
    network.eval()
    scores, cosine, alone = judged(network, support, query).unbind(1)
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
        network = built(pairing=pairing)
        support, query = episodes(2, 3, 2, 1)
        learn(network, support, query)  # past the beginning, where the head says nothing
        scores = network(support, query)
        cross_entropy(scores).sum().backward()
        found.append([scores, *(each.grad for each in network.parameters())])
    for concat, split in zip(*found, strict=True):
        torch.testing.assert_close(concat, split, rtol=0, atol=1e-9)


def test_the_centre_follows_the_mean_in_training_alone() -> None:
    network = built()
    support, query = episodes(1, 3, 1, 2)
    head = network.relation
    assert isinstance(head, ResidualHead)
    with torch.no_grad():
        for _ in range(600):
            network(support, query)
        everyone = network.embed(torch.cat((support.flatten(0, 2), query[0])))
        torch.testing.assert_close(head.centre, everyone[3:].mean((0, 2, 3)), rtol=0.02, atol=0.01)
        before = head.centre.clone()
        network.eval()(support, query)
    assert torch.equal(before, head.centre)


def test_sums_of_shots_have_no_cosine() -> None:
    from pathlib import Path

    from parashot.params import Params, parse, read_yaml
    from parashot.recipes import apply

    tree = read_yaml(Path(__file__).parents[2] / "params.yaml")
    assert isinstance(tree, dict)
    with pytest.raises(ParamsError, match=r"model\.shots: sum"):
        parse(Params, apply(tree, {"model.head": "residual", "model.shots": "sum"}))


def learn(network: RelationNetwork, support: Tensor, query: Tensor) -> None:
    """Some steps of training."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        cross_entropy(network(support, query)).mean().backward()
        optimizer.step()
    optimizer.zero_grad()
