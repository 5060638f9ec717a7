"""Gradient checkpointing changes what is kept, and nothing else."""

from __future__ import annotations

import copy

import pytest
import torch

from parashot.model.network import RelationNetwork, build_network
from parashot.model.recompute import keep_less
from parashot.params import ModelParams


def networks(embedding: str) -> tuple[RelationNetwork, RelationNetwork]:
    params = ModelParams(embedding, 16, None, "split", "mean", "relation", (1,), "kaiming", 0)  # type: ignore[arg-type]
    usual = build_network(params, seed=0)
    frugal = copy.deepcopy(usual.double().train())
    keep_less(frugal)
    return usual, frugal


def forward(network: RelationNetwork) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    support = torch.randn(1, 2, 1, 3, 16, 16, dtype=torch.float64, generator=generator)
    query = torch.randn(1, 2, 3, 16, 16, dtype=torch.float64, generator=generator)
    scores: torch.Tensor = network(support, query)
    return scores


def step_keeping(network: RelationNetwork) -> tuple[torch.Tensor, int]:
    """Scores of a step, and the bytes besides parameters that forward keeps for backward."""
    sizes: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    parameters = {each.untyped_storage().data_ptr() for each in network.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        scores = forward(network)
    kept = sum(size for place, size in sizes.items() if place not in parameters)
    scores.square().sum().backward()
    return scores, kept


@pytest.mark.parametrize("embedding", ["conv4", "bottleneck", "resnet12"])
def test_the_same_step_keeps_much_less_for_backward(embedding: str) -> None:
    usual, frugal = networks(embedding)
    (expected_scores, much), (scores, little) = step_keeping(usual), step_keeping(frugal)
    assert little < 0.6 * much
    assert torch.equal(scores, expected_scores)
    for (name, value), expected in zip(frugal.named_parameters(), usual.parameters(), strict=True):
        torch.testing.assert_close(value.grad, expected.grad, rtol=1e-10, atol=1e-12, msg=name)
    buffers = dict(usual.named_buffers())
    assert all(torch.equal(value, buffers[name]) for name, value in frugal.named_buffers())
    assert all(int(value) == 1 for name, value in frugal.named_buffers() if name.endswith("batches_tracked"))


def test_in_eval_mode_and_without_gradients_nothing_is_computed_twice() -> None:
    _, frugal = networks("conv4")
    calls: list[int] = []
    frugal.get_submodule("embedding.0.0").register_forward_hook(lambda *_: calls.append(1))
    step_keeping(frugal.eval())
    with torch.no_grad():
        forward(frugal.train())
    assert len(calls) == 2
    step_keeping(frugal)
    assert len(calls) == 4
