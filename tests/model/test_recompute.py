"""Gradient checkpointing changes what is kept, and nothing else."""

from __future__ import annotations

import copy

import pytest
import torch

from parashot.model.network import RelationNetwork, build_network
from parashot.model.recompute import keep_less
from parashot.params import ModelParams

EMBEDDINGS = ["conv4", "bottleneck", "resnet12"]


def networks(embedding: str) -> tuple[RelationNetwork, RelationNetwork]:
    usual = build_network(ModelParams(embedding, 16, "split", "mean", "relation", "kaiming"), seed=0)  # type: ignore[arg-type]
    frugal = copy.deepcopy(usual.double().train())
    keep_less(frugal)
    return usual, frugal


def forward(network: RelationNetwork) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(2, 3, 1, 3, 16, 16, dtype=torch.float64, generator=generator)
    query = torch.randn(2, 6, 3, 16, 16, dtype=torch.float64, generator=generator)
    scores: torch.Tensor = network(support, query)
    return scores


def step(network: RelationNetwork) -> torch.Tensor:
    scores = forward(network)
    scores.square().sum().backward()
    return scores.detach()


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_scores_gradients_and_running_statistics_are_the_same(embedding: str) -> None:
    usual, frugal = networks(embedding)
    assert torch.equal(step(frugal), step(usual))
    for (name, value), expected in zip(frugal.named_parameters(), usual.parameters(), strict=True):
        torch.testing.assert_close(value.grad, expected.grad, rtol=1e-10, atol=1e-12, msg=name)
    buffers = dict(usual.named_buffers())
    assert all(torch.equal(value, buffers[name]) for name, value in frugal.named_buffers())
    assert all(int(value) == 1 for name, value in frugal.named_buffers() if name.endswith("batches_tracked"))


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_much_less_is_kept_for_backward(embedding: str) -> None:
    kept = []
    for network in networks(embedding):
        bytes_kept: dict[int, int] = {}

        def pack(tensor: torch.Tensor, sizes: dict[int, int] = bytes_kept) -> torch.Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        parameters = {each.untyped_storage().data_ptr() for each in network.parameters()}
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            forward(network)
        kept.append(sum(size for place, size in bytes_kept.items() if place not in parameters))
    assert kept[1] < 0.6 * kept[0]


def test_in_eval_mode_and_without_gradients_nothing_is_computed_twice() -> None:
    _, frugal = networks("conv4")
    calls: list[int] = []
    frugal.get_submodule("embedding.0.0").register_forward_hook(lambda *_: calls.append(1))
    step(frugal.eval())
    with torch.no_grad():
        forward(frugal.train())
    assert len(calls) == 2
    step(frugal)
    assert len(calls) == 4
