"""Model files from anyone, and saved states that were damaged: nothing runs, and nothing is half believed."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from answers import Answered, Refused
from tiny_data import tiny_params
from torch import Tensor

from parashot.errors import ParashotError
from parashot.model import weights
from parashot.model.network import build_network
from parashot.model.weights import load_network, save_weights
from parashot.train.checkpoint import FORMAT, _read

PARAMS = tiny_params().model


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a model."""
    path = tmp_path_factory.mktemp("model") / "model.pt"
    save_weights(path, PARAMS, build_network(PARAMS, seed=0).state_dict())
    return path.read_bytes()


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _zip(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def _with_pickle(data: bytes, program: bytes) -> bytes:
    """The model with another pickle in it."""
    return _zip(
        {name: program if name.endswith("data.pkl") else each for name, each in _members(data).items()}
    )


def _flip(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[len(data) // 2] ^= 1
    return bytes(changed)


class _Calls:
    def __reduce__(self) -> tuple[Any, Any]:
        return Path.touch, (Path("ran"),)


DEEP = b"\x80\x02}K\x01" + b"\x85" * 100_000 + b"Ns."

FILES: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda good: b"",
    "text": lambda good: b"hello",
    "a web page": lambda good: b"<!doctype html><p>404",
    "cut short": lambda good: good[:-300],
    "cut at the front": lambda good: good[300:],
    "a flipped bit": _flip,
    "a plain pickle": lambda good: pickle.dumps({"format": weights.FORMAT}),
    "a pickled program": lambda good: pickle.dumps(_Calls()),
    "a program within": lambda good: _with_pickle(good, pickle.dumps(_Calls(), 2)),
    "os.system within": lambda good: _with_pickle(good, b"cos\nsystem\n(S'touch ran'\ntR."),
    "torch.load within": lambda good: _with_pickle(good, b"ctorch\nload\n(S'x'\ntR."),
    "depth that ends the process": lambda good: _with_pickle(good, DEEP),
    "tuples that take for ever to hash": lambda good: _with_pickle(
        good, b"\x80\x02}K\x01\x85" + b"2\x86" * 60 + b"Ns."
    ),
    "claims of 4 GiB": lambda good: _with_pickle(good, b"\x80\x02X\xff\xff\xff\xffab."),
    "memory of 64 GiB": lambda good: _with_pickle(good, b"\x80\x02Nr\xff\xff\xff\xff."),
    "packed": lambda good: _zip(_members(good), zipfile.ZIP_DEFLATED),
    "a bomb": lambda good: _zip({**_members(good), "archive/data/9": bytes(2**22)}, zipfile.ZIP_DEFLATED),
    "storages missing": lambda good: _zip({k: v for k, v in _members(good).items() if "/data/" not in k}),
    "storages cut": lambda good: _zip({k: v[:8] if "/data/" in k else v for k, v in _members(good).items()}),
    "no pickle": lambda good: _zip({k: v for k, v in _members(good).items() if "data.pkl" not in k}),
    "an empty zip": lambda good: _zip({}),
    "a safetensors with a huge header": lambda good: struct.pack("<Q", 2**62) + b"{}",
    "a GGUF": lambda good: b"GGUF" + bytes(100),
    "a tar of old": lambda good: pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + b"}.",
}


@pytest.mark.parametrize("spoil", FILES.values(), ids=FILES)
def test_files_that_are_no_models(
    tmp_path: Path,
    refused: Refused,
    monkeypatch: pytest.MonkeyPatch,
    good: bytes,
    spoil: Callable[[bytes], bytes],
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.pt"
    path.write_bytes(spoil(good))
    refused(ParashotError, lambda: load_network(path), f"{path}: not a model of parashot, or damaged")


def _safetensors(metadata: str | dict[str, object] | None, **changes: Tensor) -> Callable[[bytes], bytes]:
    """The good model with other metadata, or with other tensors than its checksum is of."""

    def spoil(good: bytes) -> bytes:
        length = struct.unpack("<Q", good[:8])[0]
        said = json.loads(good[8 : 8 + length])["__metadata__"]
        if isinstance(metadata, dict):
            said[weights.METADATA] = json.dumps({**json.loads(said[weights.METADATA]), **metadata})
        elif metadata is not None:
            said[weights.METADATA] = metadata
        tensors = {**safetensors.torch.load(good), **changes}
        return safetensors.torch.save(tensors, None if metadata is None else said)

    return spoil


SAFETENSORS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "nothing": (lambda good: b"", "damaged"),
    "text": (lambda good: b"hello", "damaged"),
    "a pickled program": (lambda good: pickle.dumps(_Calls()), "damaged"),
    "cut short": (lambda good: good[:-300], "damaged"),
    "cut within the header": (lambda good: good[:300], "damaged"),
    "a flipped bit": (_flip, "damaged"),
    "a huge header": (lambda good: struct.pack("<Q", 2**62) + b"{}", "damaged"),
    "a header that is no JSON": (lambda good: struct.pack("<Q", 5) + b"{{{{{", "damaged"),
    "a deep header": (lambda good: struct.pack("<Q", 10**5) + b"[" * 10**5, "damaged"),
    "tensors beyond the end": (
        lambda good: good.replace(b'"data_offsets":[0,', b'"data_offsets":[9,', 1),
        "damaged",
    ),
    "no metadata": (_safetensors(None), "damaged"),
    "params that are no JSON": (_safetensors("{"), "damaged"),
    "params of great depth": (_safetensors("[" * 10**5), "damaged"),
    "another checksum": (_safetensors({"sha256": "0" * 64}), "damaged"),
    "another tensor": (_safetensors({}, other=torch.zeros(1)), "damaged"),
    "params that are a list": (_safetensors({"model": [1]}), "a section with keys is needed"),
    "a huge network": (_safetensors({"model": {"image_size": 9e99}}), "missing"),
    "another format": (_safetensors({"format": 99}), "its format is 99, not 2"),
    "a format that is no number": (_safetensors({"format": "\u202e\n"}), "its format is"),
}


@pytest.mark.parametrize(("spoil", "message"), SAFETENSORS.values(), ids=SAFETENSORS)
def test_safetensors_of_any_content(
    tmp_path: Path, refused: Refused, spoil: Callable[[bytes], bytes], message: str
) -> None:
    path = tmp_path / "model.safetensors"
    save_weights(path, PARAMS, build_network(PARAMS, seed=0).state_dict())
    path.write_bytes(spoil(path.read_bytes()))
    refused(ParashotError, lambda: load_network(path), str(path), message)


def _state(**changes: Any) -> dict[str, Any]:
    return {**build_network(PARAMS, seed=0).state_dict(), **changes}


NAME = next(name for name, value in build_network(PARAMS, seed=0).state_dict().items() if value.dim() == 4)
WEIGHT: Tensor = build_network(PARAMS, seed=0).state_dict()[NAME]


def _saved(**changes: Any) -> dict[Any, Any]:
    return {"format": weights.FORMAT, "model": vars(PARAMS), "state": _state(), **changes}


CONTENTS: dict[str, tuple[object, str]] = {
    "a list": ([1], "not a model of parashot"),
    "a tensor": (torch.zeros(3), "not a model of parashot"),
    "another format": (_saved(format=99), "its format is 99, not "),
    "a format that is hostile": (_saved(format="\x1b[2J\u202e"), "its format is '\\x1b[2J\\u202e'"),
    "a format without end": (_saved(format="9" * 100_000), "train again with this version"),
    "no state": (_saved(state=None), "it holds no weights"),
    "a state of numbers": (_saved(state={NAME: 3}), "it holds no weights"),
    "a state of numbered tensors": (_saved(state={3: WEIGHT}), "it holds no weights"),
    "sparse tensors": (_saved(state=_state(**{NAME: WEIGHT.to_sparse()})), "it holds no weights"),
    "tensors without content": (
        _saved(state=_state(**{NAME: torch.empty_like(WEIGHT, device="meta")})),
        "it holds no weights",
    ),
    "a weight missing": (
        _saved(state={k: v for k, v in _state().items() if k != NAME}),
        "not those of the network",
    ),
    "a weight too many": (_saved(state=_state(**{"\x1b[2J": WEIGHT})), "not those of the network"),
    "a weight of another shape": (_saved(state=_state(**{NAME: WEIGHT[:1]})), "not those of the network"),
    "a weight that would be stretched": (
        _saved(state=_state(**{NAME: torch.zeros(1).expand(2**40)})),
        "not those of the network",
    ),
    "a weight in whole numbers": (_saved(state=_state(**{NAME: WEIGHT.int()})), "not those of the network"),
    "a weight in complex numbers": (
        _saved(state=_state(**{NAME: WEIGHT.to(torch.complex64)})),
        "not those of the network",
    ),
    "NaN": (_saved(state=_state(**{NAME: WEIGHT * torch.nan})), f"{NAME} holds NaN or infinity"),
    "infinity": (_saved(state=_state(**{NAME: WEIGHT / 0})), f"{NAME} holds NaN or infinity"),
    "no params": (_saved(model=None), "a section with keys is needed"),
    "params of a huge network": (_saved(model={**vars(PARAMS), "image_size": 10**9}), "model.image_size"),
    "params that are hostile": (
        _saved(model={**vars(PARAMS), "\u202e\n": 1}),
        r"\u202e\n: unknown key",
    ),
    "a network of another kind": (
        _saved(model={**vars(PARAMS), "embedding": "resnet12"}),
        "not those of the network",
    ),
    "names of a wrapper": (
        _saved(state={f"module.{k}": v for k, v in _state().items()}),
        "is of a parallel wrapper",
    ),
}


@pytest.mark.parametrize(("content", "message"), CONTENTS.values(), ids=CONTENTS)
def test_models_of_other_content(tmp_path: Path, refused: Refused, content: object, message: str) -> None:
    path = tmp_path / "model.pt"
    torch.save(content, path)
    refused(ParashotError, lambda: load_network(path), str(path), message)


# --- saved states -----------------------------------------------------------------------------------------

PROGRESS = {
    "step": 3,
    "trace": {
        "losses": [],
        "accuracies": [],
        "nonfinite": [],
        "times": {"step_seconds": [], "data_seconds": []},
    },
    "validations": {},
    "resumed": 0,
    "drifted": False,
}
WHOLE = {"format": FORMAT, "network": {}, "moments": {}, "counts": {}, "progress": PROGRESS}

STATES: dict[str, object] = {
    "a list": [1],
    "a number": 3,
    "another format": {**WHOLE, "format": 99},
    "a part missing": {key: value for key, value in WHOLE.items() if key != "moments"},
    "a part too many": {**WHOLE, "rng": 1},
    "no progress": {**WHOLE, "progress": None},
    "progress without steps": {**WHOLE, "progress": {**PROGRESS, "trace": {}}},
    "validations of numbers": {**WHOLE, "progress": {**PROGRESS, "validations": [1, 2]}},
    "a program": {**WHOLE, "network": _Calls()},
}


@pytest.mark.parametrize("content", STATES.values(), ids=STATES)
def test_states_that_are_none(tmp_path: Path, answered: Answered, content: object) -> None:
    """They are passed over, so that the training goes on from the state before."""
    torch.save(content, tmp_path / "step.pt")
    assert _read(tmp_path / "step.pt") is None
    torch.save(WHOLE, tmp_path / "step.pt")
    assert _read(tmp_path / "step.pt") == WHOLE
    answered()


def test_a_flipped_bit_in_a_state(tmp_path: Path, answered: Answered) -> None:
    torch.save({**WHOLE, "network": {"w": torch.zeros(9_000)}}, tmp_path / "step.pt")
    (tmp_path / "step.pt").write_bytes(_flip((tmp_path / "step.pt").read_bytes()))
    assert _read(tmp_path / "step.pt") is None
    answered()


@pytest.mark.parametrize("data", [b"", b"hello", pickle.dumps(_Calls()), b"PK\x03\x04" + bytes(99)])
def test_state_files_that_are_none(
    tmp_path: Path, answered: Answered, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.pt").write_bytes(data)
    assert _read(tmp_path / "step.pt") is None
    assert [path.name for path in tmp_path.iterdir()] == ["step.pt"]
    answered()
