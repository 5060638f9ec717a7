"""`parashot evaluate`: the figures of the library, from packed images or a copy of miniImageNet."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from command_line import Commands
from tiny_data import EVALUATED, SEED, tiny_params

from parashot.data import pack
from parashot.data.images import encode_jpeg
from parashot.data.sources.miniimagenet import class_splits, miniimagenet
from parashot.model.network import build_network
from parashot.model.weights import save_weights
from parashot.task import mean_and_ci95
from parashot.tasks.evaluation import draw_split, episode_accuracies

pytestmark = pytest.mark.usefixtures("one_core")

SHAPE = ("--n-way", 2, "--k-shot", 1, "--k-query", 3, "--episodes", 11, "--seed", SEED)


def saved(folder: Path, head: str) -> Path:
    """Weights of a network that has learned nothing."""
    model = tiny_params({"model.head": head}).model
    save_weights(folder / f"{head}.safetensors", model, build_network(model, seed=1).state_dict())
    return folder / f"{head}.safetensors"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return saved(tmp_path, "residual")


def test_json_holds_what_the_library_measures(tiny_packed: Path, weights: Path, command: Commands) -> None:
    words = ("--data", tiny_packed, "--weights", weights, *SHAPE, "--transductive", 3, "--json")
    found = json.loads(command("evaluate", *words))
    network = build_network(tiny_params({"model.head": "residual"}).model, seed=1)
    expected = episode_accuracies(network, draw_split(tiny_packed, "test", EVALUATED, 11, SEED))
    assert (found["test_accuracy"], found["test_accuracy_ci95"]) == pytest.approx(mean_and_ci95(expected))
    assert found["cosine_accuracy"] == found["test_accuracy"]  # nothing was learned
    assert (found["episodes"], found["margin"], found["transductive_episodes"]) == (11, 0, 3)
    assert (found["n_way"], found["k_shot"], found["k_query"], found["split"]) == (2, 1, 3, "test")


def test_a_table_for_people(tiny_packed: Path, tmp_path: Path, command: Commands) -> None:
    words = ("evaluate", "--data", tiny_packed, *SHAPE)
    printed = command(*words, "--weights", saved(tmp_path, "residual"), "--split", "val")
    assert "2-way 1-shot, 11 episodes" in printed
    assert "margin, episode by episode    +0.00 ± 0.00 points" in printed
    assert "without cosine" in printed and "transductive" not in printed
    printed = command(*words, "--weights", saved(tmp_path, "relation"), "--transductive", 3)
    assert "without cosine" not in printed and "transductive, 3 episodes" in printed


def test_a_copy_of_miniimagenet_is_packed_on_the_way(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Commands
) -> None:
    """The real class names, with 4 small images of each instead of 600."""
    for label in sorted({label for labels in class_splits().values() for label in labels}):
        folder = tmp_path / "copy" / label
        folder.mkdir(parents=True)
        for number in range(4):
            noise = np.random.default_rng((int(label[1:]), number)).integers(0, 256, (16, 16, 3))
            (folder / f"{label}{number:08d}.jpg").write_bytes(encode_jpeg(noise.astype(np.uint8)))
    monkeypatch.setattr(pack, "miniimagenet", partial(miniimagenet, per_class=4))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = sorted(tmp_path.iterdir())
    words = ("--data", tmp_path / "copy", "--weights", weights, *SHAPE, "--n-way", 5, "--json")
    assert json.loads(command("evaluate", *words))["episodes"] == 11
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--n-way", 1001), "n_way: 1001 is not allowed; it must be a whole number from 2 to 1000"),
        (("--n-way", 4), "4-way episodes need 4 classes, but split test has 3"),
        (("--k-query", 15), "need 16 images per class, but h of split test has 6; take fewer"),
        (("--transductive", 1), "1 transductive episode has no interval; take 0, or at least 2"),
        (("--data", "nowhere"), "--data nowhere: does not exist; give a copy of miniImageNet, or a study's"),
        (("--weights", "nowhere.safetensors"), "nowhere.safetensors: cannot be read"),
    ],
)
def test_bad_input_is_one_line(
    tiny_packed: Path, weights: Path, words: tuple[object, ...], answer: str, command: Commands
) -> None:
    assert answer in command.refused("evaluate", "--data", tiny_packed, "--weights", weights, *SHAPE, *words)
