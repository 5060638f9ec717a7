"""Losses and accuracy, per episode, against the position of the queries."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from parashot.model.losses import LOSSES, accuracy, class_of_queries, cross_entropy, mse

GROUPED = torch.tensor([0, 0, 1, 1, 2, 2])


def _scores(b: int = 4, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(b, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def test_queries_are_grouped_by_class() -> None:
    assert torch.equal(class_of_queries(_scores()), GROUPED)


def test_mse_is_the_error_of_the_relation() -> None:
    scores, expected = _scores(), torch.zeros(4, dtype=torch.float64)
    for i in range(4):
        for j in range(6):
            for c in range(3):
                relation = 1 / (1 + math.exp(-scores[i, j, c]))
                expected[i] += (relation - (1 if j // 2 == c else 0)) ** 2 / 18
    torch.testing.assert_close(mse(scores), expected)


def test_cross_entropy_is_torchs_per_episode() -> None:
    scores = _scores()
    expected = torch.stack([F.cross_entropy(episode, GROUPED) for episode in scores])
    torch.testing.assert_close(cross_entropy(scores), expected)


@pytest.mark.parametrize("name", LOSSES)
def test_gradient(name: str) -> None:
    assert torch.autograd.gradcheck(LOSSES[name], _scores(2).requires_grad_())


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    scores = _scores(dtype=dtype)
    loss = LOSSES[name](scores)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, LOSSES[name](scores.float()))


@pytest.mark.parametrize("name", LOSSES)
def test_high_precision_stays(name: str) -> None:
    assert LOSSES[name](_scores()).dtype == torch.float64


def test_accuracy_counts_queries_whose_class_scores_best() -> None:
    right = F.one_hot(GROUPED, 3).float()
    wrong = right.roll(1, dims=1)
    half = torch.cat((right[:3], wrong[3:]))
    assert accuracy(torch.stack((right, wrong, half))).tolist() == [1.0, 0.0, 0.5]


def test_accuracy_keeps_no_graph() -> None:
    scores = _scores().requires_grad_()
    result = accuracy(scores)
    assert not result.requires_grad
    assert result.grad_fn is None


@pytest.mark.parametrize("function", [mse, cross_entropy, accuracy])
def test_unequal_classes_are_refused(function: object) -> None:
    with pytest.raises(ValueError, match="5 queries"):
        function(torch.zeros(1, 5, 3))  # type: ignore[operator]
