"""The classifier: the network's own scores, whatever the number of classes, examples and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from coloured import picture

from parashot import Classifier, ModelParams, RelationNetwork, build_network, prepare
from parashot.errors import DataError
from parashot.model.calibration import Calibration

pytestmark = pytest.mark.usefixtures("one_core")
MODEL = ModelParams("conv4", 16, None, "auto", "mean", "relation", (1,), "kaiming", 0)


@pytest.fixture
def network(request: pytest.FixtureRequest) -> RelationNetwork:
    """One with random weights, whose batch norms have seen something."""
    head: Any = getattr(request, "param", "relation")
    made = build_network(replace(MODEL, head=head), seed=1)
    seeded = torch.Generator().manual_seed(2)
    support = torch.randn(2, 3, 1, 3, 16, 16, generator=seeded)
    made.train()(support, torch.randn(2, 6, 3, 16, 16, generator=seeded))
    return made.eval()


def tensors(images: Sequence[np.ndarray]) -> torch.Tensor:
    """Normalised images [m, 3, 16, 16] of pictures that have that size already."""
    return prepare(torch.from_numpy(np.stack(images)).movedim(-1, -3), 16)


def squares(count: int, start: int = 0) -> list[np.ndarray]:
    return [picture((50 * (each % 5), 90, 200), start + each, 16) for each in range(count)]


def test_scores_of_a_calibrated_network_are_probabilities(network: RelationNetwork) -> None:
    examples, pictures = {str(each): squares(2, each) for each in range(4)}, squares(5, 50)
    relations = Classifier(network, examples, "cpu")
    scores, calibrated = relations.scores(pictures), relations.calibrated
    network.calibration = Calibration(0.5, -1.0)
    probable = Classifier(network, examples, "cpu")
    found = probable.scores(pictures)
    assert (calibrated, probable.calibrated) == (False, True)
    odds = (scores / (1 - scores)) ** 4  # 0.5 with one example each, so 0.25 with two
    np.testing.assert_allclose(found, odds / odds.sum(1, keepdims=True))


@pytest.mark.parametrize("network", ["relation", "bdc"], indirect=True)
def test_scores_are_those_of_the_network_by_all_examples_of_each_class(network: RelationNetwork) -> None:
    """In the order of classes and pictures, of which there are more than are embedded at once."""
    counts = (2, 1, 2, 3, 1, 1, 2, 2, 2, 1, 3)
    examples = {f"class {-n}": squares(count, 100 * n) for n, count in enumerate(counts)}
    pictures = squares(70, 5000)
    classifier = Classifier(network, examples, "cpu")
    assert classifier.classes == tuple(examples)
    assert classifier.scores([]).shape == (0, len(counts))
    found = classifier.scores(pictures)
    for column, each in enumerate(examples.values()):
        with torch.inference_mode():
            expected = network(tensors(each)[None, None], tensors(pictures)[None])[0, :, 0].sigmoid()
        # sums of float32 in another order: some 1e-6
        np.testing.assert_allclose(found[:, column], expected.numpy(), atol=1e-5)


def test_a_network_that_sums_asks_for_equal_numbers() -> None:
    network = build_network(replace(MODEL, shots="sum"), seed=0)
    with pytest.raises(DataError, match=r"'a': 2, 'b': 1.*equally many"):
        Classifier(network, {"a": squares(2), "b": squares(1)}, "cpu")
    Classifier(network, {"a": squares(2), "b": squares(2)}, "cpu")


@pytest.mark.parametrize("shots", [{"a": squares(1)}, {"a": squares(1), "b": []}])
def test_too_little_to_choose_from(network: RelationNetwork, shots: dict[str, list[np.ndarray]]) -> None:
    with pytest.raises(DataError):
        Classifier(network, shots, "cpu")
