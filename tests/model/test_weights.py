"""The file of a network: it comes back the same, and a wrong one is refused in one line."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from parashot.errors import ParashotError
from parashot.model.calibration import Calibration
from parashot.model.network import build_network
from parashot.model.weights import METADATA, begin_with_embedding, load_network, save_weights
from parashot.params import ModelParams

PARAMS = ModelParams("conv4", 16, None, "split", "sum", "relation", (1,), "xavier", 0)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_weights(path, PARAMS, build_network(PARAMS, seed=5).state_dict())
    return path


def test_a_network_comes_back(saved: Path) -> None:
    network = build_network(PARAMS, seed=5)
    support, query = torch.randn(2, 3, 2, 3, 16, 16), torch.randn(2, 3, 3, 16, 16)
    network(support, query)  # moves the statistics of its batch norms
    save_weights(saved, PARAMS, network.state_dict(), Calibration(1.25, -0.5))
    before = torch.get_rng_state()
    loaded = load_network(saved)
    assert torch.equal(before, torch.get_rng_state())
    assert not loaded.training
    assert (loaded.params, loaded.calibration) == (PARAMS, Calibration(1.25, -0.5))
    assert torch.equal(loaded(support, query), network.eval()(support, query))


def test_equal_states_give_equal_bytes(saved: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "another-name.safetensors"
    network = build_network(PARAMS, seed=5).to(memory_format=torch.channels_last)
    views = {name: torch.stack((value, value))[1] for name, value in network.state_dict().items()}
    save_weights(other, PARAMS, views)
    assert saved.read_bytes() == other.read_bytes()


def test_an_embedding_to_begin_with(saved: Path) -> None:
    """It leaves the head as it is, and each may have another one."""
    residual = replace(PARAMS, head="residual", shots="mean")
    for theirs, ours in ((residual, PARAMS), (PARAMS, residual)):
        pretrained, network, first = (build_network(*each) for each in ((theirs, 5), (ours, 6), (ours, 6)))
        save_weights(saved, theirs, pretrained.state_dict())
        begin_with_embedding(network, saved)
        expected = {**first.state_dict(), **pretrained.embedding.state_dict(prefix="embedding.")}
        assert all(torch.equal(value, expected[name]) for name, value in network.state_dict().items())
    other = build_network(replace(PARAMS, embedding="resnet12"), seed=0)
    with pytest.raises(ParashotError, match="embedding is of another kind"):
        begin_with_embedding(other, saved)


def test_a_wrappers_names_and_no_file_are_refused(saved: Path) -> None:
    before = saved.read_bytes()
    state = torch.nn.DataParallel(build_network(PARAMS, seed=0)).state_dict()
    with pytest.raises(ParashotError, match=r"module\.embedding.*wrapper"):
        save_weights(saved, PARAMS, state)
    assert saved.read_bytes() == before
    safetensors.torch.save_file(state, saved, {METADATA: _described()})
    _refused(saved, "not those of the network")
    _refused(saved.with_name("missing"), "cannot be read")


def _described(**changes: Any) -> str:
    """The metadata of a good model, but for some changes."""
    return json.dumps({"format": 2, "model": vars(PARAMS), **changes})


def _with(metadata: str) -> Callable[[bytes], bytes]:
    return lambda good: safetensors.torch.save(safetensors.torch.load(good), {METADATA: metadata})


class _Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("ran"),)


SPOILED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a pickled program": (lambda good: pickle.dumps(_Harmful()), "damaged"),
    "no metadata": (lambda good: safetensors.torch.save(safetensors.torch.load(good)), "damaged"),
    "metadata that are no JSON": (_with("{"), "damaged"),
    "another format": (_with(_described(format=99)), "format 99, not 2"),
    "a calibration by nothing": (_with(_described(calibration={"first": 0, "power": 1})), "calibration"),
    "params of another network": (_with(_described(model={**vars(PARAMS), "embedding": "vgg"})), "embedding"),
}


@pytest.mark.parametrize(("spoil", "message"), SPOILED.values(), ids=SPOILED)
def test_files_that_are_no_models(
    saved: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[bytes], bytes], message: str
) -> None:
    monkeypatch.chdir(saved.parent)
    saved.write_bytes(spoil(saved.read_bytes()))
    _refused(saved, message)
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def _refused(path: Path, message: str) -> None:
    with pytest.raises(ParashotError, match=f"{path}.*{message}"):
        load_network(path)
