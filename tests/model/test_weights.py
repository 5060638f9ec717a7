"""The file of a network: it comes back the same, and a wrong one is refused in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from parashot.errors import ParashotError
from parashot.model.network import build_network
from parashot.model.weights import load_network, save_weights
from parashot.params import ModelParams

PARAMS = ModelParams(
    embedding="conv4", image_size=16, pairing="split", shots="sum", head="relation", init="xavier"
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return written(tmp_path / "model.pt")


def written(path: Path) -> Path:
    """A model in a file, in the format of its name."""
    save_weights(path, PARAMS, build_network(PARAMS, seed=5).state_dict())
    return path


@pytest.fixture(params=["model.pt", "model.safetensors"])
def either(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return written(tmp_path / request.param)


def _content(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(path, weights_only=True)
    return content


def test_a_network_comes_back(either: Path) -> None:
    network = build_network(PARAMS, seed=5)
    support, query = torch.randn(2, 3, 2, 3, 16, 16), torch.randn(2, 3, 3, 16, 16)
    network(support, query)  # moves the statistics of its batch norms
    save_weights(either, PARAMS, network.state_dict())
    loaded = load_network(either)
    assert not loaded.training
    assert (loaded.pairing, loaded.shots) == ("split", "sum")
    assert torch.equal(loaded(support, query), network.eval()(support, query))


def test_equal_states_give_equal_bytes(either: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / f"another-name{either.suffix}"
    network = build_network(PARAMS, seed=5).to(memory_format=torch.channels_last)
    views = {name: torch.stack((value, value))[1] for name, value in network.state_dict().items()}
    save_weights(other, PARAMS, views)
    assert either.read_bytes() == other.read_bytes()


def test_loading_leaves_the_random_state_alone(saved: Path) -> None:
    before = torch.get_rng_state()
    load_network(saved)
    assert torch.equal(before, torch.get_rng_state())


def test_a_wrappers_names_are_refused(saved: Path, tmp_path: Path) -> None:
    before = saved.read_bytes()
    state = torch.nn.DataParallel(build_network(PARAMS, seed=0)).state_dict()
    with pytest.raises(ParashotError, match=r"module\.embedding.*wrapper"):
        save_weights(saved, PARAMS, state)
    assert saved.read_bytes() == before
    wrapped = tmp_path / "wrapped.pt"
    torch.save({**_content(saved), "state": state}, wrapped)
    with pytest.raises(ParashotError, match=r"module\.embedding.*wrapper"):
        load_network(wrapped)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 3}, "its format is 3, not 2"),
        ({"state": None}, "holds no weights"),
        ({"state": {}}, "not those of the network"),
        ({"model": {**vars(replace(PARAMS, embedding="resnet12"))}}, "not those of the network"),
        ({"model": {**vars(PARAMS), "embedding": "vgg"}}, "model.embedding: 'vgg'"),
    ],
)
def test_other_content_is_refused(saved: Path, change: dict[str, Any], message: str) -> None:
    torch.save({**_content(saved), **change}, saved)
    _assert_refused(saved, message)


@pytest.mark.parametrize("damage", ["empty", "truncated", "text", "list", "missing", "folder"])
def test_a_damaged_file_is_refused(either: Path, damage: str) -> None:
    content = either.read_bytes()
    either.unlink()
    if damage == "folder":
        either.mkdir()
    elif damage == "list":
        torch.save([1], either)
    elif damage != "missing":
        either.write_bytes(
            {"empty": b"", "truncated": content[:-200], "text": b"<html>not found</html>"}[damage]
        )
    _assert_refused(
        either, "cannot be read" if damage in {"missing", "folder"} else "not a model of parashot"
    )


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    path, trace = tmp_path / "model.pt", tmp_path / "trace"

    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (trace,))

    torch.save({"format": 2, "state": Harmful()}, path)
    _assert_refused(path, "not a model of parashot")
    assert not trace.exists()


def _assert_refused(path: Path, message: str) -> None:
    with pytest.raises(ParashotError) as caught:
        load_network(path)
    text = str(caught.value)
    assert message in text
    assert str(path) in text
    assert "\n" not in text
