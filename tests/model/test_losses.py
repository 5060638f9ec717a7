"""Losses and accuracy, per episode, against the position of the queries."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from parashot.model.losses import LOSSES, accuracy, class_of_queries, cross_entropy, mse

GROUPED = torch.tensor([0, 0, 1, 1, 2, 2])
SCORES = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_losses_are_those_of_the_class_that_queries_are_grouped_by() -> None:
    assert torch.equal(class_of_queries(SCORES), GROUPED)
    error = (1 / (1 + torch.exp(-SCORES)) - F.one_hot(GROUPED, 3)) ** 2
    torch.testing.assert_close(mse(SCORES), error.mean((1, 2)))
    expected = torch.stack([F.cross_entropy(episode, GROUPED) for episode in SCORES])
    torch.testing.assert_close(cross_entropy(SCORES), expected)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_and_precision(name: str) -> None:
    """Scores of less than 32 bits are computed with 32, others as they are."""
    loss = LOSSES[name]
    assert torch.autograd.gradcheck(loss, SCORES[:2].clone().requires_grad_())
    assert loss(SCORES).dtype == torch.float64
    for dtype in (torch.float16, torch.bfloat16):
        low = SCORES.to(dtype)
        assert loss(low).dtype == torch.float32
        assert torch.equal(loss(low), loss(low.float()))


def test_accuracy_counts_queries_whose_class_scores_best() -> None:
    right = F.one_hot(GROUPED, 3).float().requires_grad_(False)
    wrong = right.roll(1, dims=1)
    half = torch.cat((right[:3], wrong[3:]))
    assert accuracy(torch.stack((right, wrong, half))).tolist() == [1.0, 0.0, 0.5]
    assert not accuracy(SCORES.clone().requires_grad_()).requires_grad


@pytest.mark.parametrize("function", [mse, cross_entropy, accuracy])
def test_unequal_classes_are_refused(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ValueError, match="5 queries"):
        function(torch.zeros(1, 5, 3))
