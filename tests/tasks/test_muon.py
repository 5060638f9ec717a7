"""Muon: orthogonal steps for convolutions, and SGD's own for everything else."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from parashot.tasks.muon import Muon, orthogonalised


@pytest.mark.parametrize("shape", [(8, 8), (8, 72), (16, 3)])
def test_singular_values_are_brought_near_one(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    found = u.mT @ orthogonalised(matrix) @ v.mT
    values = found.diagonal()
    torch.testing.assert_close(found, values.diag(), rtol=0, atol=1e-10)  # it turns nothing
    assert ((values > 0.65) & (values < 1.25))[s > 0.1 * s.max()].all()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, 2)).double()


def gradients(of: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(6, 3, 4, 4, generator=generator, dtype=torch.float64)
    of.zero_grad()
    of(images).square().sum().backward()


def test_what_is_no_convolution_moves_as_by_sgd() -> None:
    ours = network()
    theirs = copy.deepcopy(ours)
    muon = Muon(ours, 0.1, 0.9, 0.01)
    vectors = [each for each in theirs.parameters() if each.ndim < 4]
    sgd = torch.optim.SGD(vectors, 0.1, 0.9, weight_decay=0.01, nesterov=True)
    for seed in range(3):
        gradients(ours, seed)
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert mine.grad is not None
            other.grad = mine.grad.clone()
        muon.step()
        sgd.step()
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(mine, other, rtol=0, atol=1e-12) == (name != "0.weight"), name


def test_a_convolutions_step_is_orthogonal_whatever_the_gradients_size() -> None:
    moved = []
    for scale in (1.0, 1e-3):
        net = network()
        optimizer = Muon(net, 0.1, 0.9, 0.0)
        for group in optimizer.param_groups:  # as a strategy sets it
            group["lr"] = 0.1 * group.get("scale", 1.0)
        weight = net.get_parameter("0.weight")
        before = weight.detach().clone()
        gradients(net, 0)
        assert weight.grad is not None
        weight.grad *= scale
        gradient = weight.grad.clone()
        optimizer.step()
        step = (before * (1 - 0.01 * 0.1) - weight.detach()) / 0.01
        torch.testing.assert_close(step.flatten(1), orthogonalised(1.95 * gradient.flatten(1)))
        moved.append(step)
    torch.testing.assert_close(moved[0], moved[1], rtol=1e-3, atol=1e-3)
