"""A temperature that makes probabilities of scores, and how far these are from what comes true."""

from __future__ import annotations

from dataclasses import astuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate import calibration_error, calibration_through, reliability, temperature_of
from parashot.model.calibration import probabilities


@settings(deadline=None, max_examples=20)
@given(st.floats(0.2, 5), st.integers(2, 8), st.integers(0, 1000))
def test_it_finds_by_how_much_scores_are_too_sure(too_sure: float, classes: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    true = torch.randn(4000, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(true.softmax(1), 1, generator=generator)[:, 0]
    scores = too_sure * true
    found = temperature_of(scores, labels)
    assert found == pytest.approx(too_sure, rel=0.25)
    bins = reliability(probabilities(scores, found), labels)
    assert calibration_error(bins) < 0.04
    assert sum(each.share for each in bins) == pytest.approx(1)


def test_bins_hold_confidence_and_accuracy() -> None:
    probable = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.45, 0.55], [1.0, 0.0]])
    bins = reliability(probable, torch.tensor([0, 1, 1, 0]), bins=2)
    assert len(bins) == 1  # the highest of two is never below a half
    assert astuple(bins[0]) == pytest.approx((1, 0.8125, 0.75))
    four = reliability(probable, torch.tensor([0, 1, 1, 0]), bins=4)
    assert [astuple(each) for each in four] == [
        pytest.approx((0.25, 0.55, 1)),
        pytest.approx((0.75, 0.9, 2 / 3)),
    ]
    assert calibration_error(four) == pytest.approx(0.25 * 0.45 + 0.75 * (0.9 - 2 / 3))


def test_it_falls_with_the_number_of_examples() -> None:
    found = calibration_through({5: 0.5, 1: 1.5})
    assert [found.temperature(each) for each in (1, 5, 25)] == pytest.approx([1.5, 0.5, 0.5 / 3])
