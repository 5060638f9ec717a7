"""A trained network as one plain file that loads anywhere: {"format", "model": params, "state": tensors}.

As torch writes it, or, where the name ends in .safetensors, as that format has it: with format, params and
a checksum of the tensors, which the format has none of, as JSON in its metadata.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from parashot.errors import ParashotError
from parashot.files import replacing_file
from parashot.model.network import RelationNetwork
from parashot.model.residual import ResidualHead
from parashot.model.tensorfile import load_tensors
from parashot.params import ModelParams
from parashot.parsing import parse

FORMAT = 2
SAFETENSORS = ".safetensors"
METADATA = "parashot"
"""One entry of metadata holds all: several would be written in any order."""

ADVICE = "give the file that a training has written"


def save_weights(path: Path, params: ModelParams, state: Mapping[str, Tensor]) -> None:
    """Write `state`, the state dict of a `RelationNetwork(params)`, atomically and reproducibly.

    Raises `ParashotError` where the names in `state` are those of a wrapper around the network.
    """
    _refuse_wrapper_names(path, state)
    tensors = {name: _plain_copy(tensor) for name, tensor in state.items()}
    with replacing_file(path) as temporary, temporary.open("wb") as file:
        if path.suffix == SAFETENSORS:
            said = {"format": FORMAT, "model": asdict(params), "sha256": _checksum(tensors)}
            file.write(safetensors.torch.save(tensors, {METADATA: json.dumps(said)}))
        else:  # given a path, torch would write its name into the file
            torch.save({"format": FORMAT, "model": asdict(params), "state": tensors}, file)


def load_network(path: Path) -> RelationNetwork:
    """Read a network onto the CPU, in eval mode. Nothing in the file is executed.

    Raises `ParashotError` where the file is missing, damaged, or not one of `save_weights`.
    """
    content = _read_safetensors(path) if path.suffix == SAFETENSORS else _read(path)
    found = content.get("format")
    if found != FORMAT:
        raise ParashotError(f"{path}: its format is {found!r}, not {FORMAT}; train again with this version")
    state = content.get("state")
    if not isinstance(state, Mapping) or not all(_is_weight(*each) for each in state.items()):
        raise ParashotError(f"{path}: it holds no weights; {ADVICE}")
    _refuse_wrapper_names(path, state)
    with torch.random.fork_rng(devices=[]):
        network = RelationNetwork(parse(ModelParams, content.get("model"), f"{path}: model"))
    if _shapes(state) != _shapes(network.state_dict()):
        raise ParashotError(f"{path}: its weights are not those of the network it names; {ADVICE}")
    broken = next((name for name, value in state.items() if not value.isfinite().all()), None)
    if broken is not None:
        raise ParashotError(f"{path}: {broken} holds NaN or infinity; train again, or {ADVICE}")
    network.load_state_dict(state)
    return network.eval()


def begin_with_embedding(network: RelationNetwork, path: Path) -> None:
    """Let `network` begin with the embedding of a file, and with its centre where both heads have one.

    Raises `ParashotError` as `load_network` does, and where the file's embedding is of another kind.
    """
    trained = load_network(path)
    if _shapes(trained.embedding.state_dict()) != _shapes(network.embedding.state_dict()):
        raise ParashotError(
            f"{path}: its embedding is of another kind; set model.embedding as it was trained"
        )
    network.embedding.load_state_dict(trained.embedding.state_dict())
    if isinstance(network.relation, ResidualHead) and isinstance(trained.relation, ResidualHead):
        network.relation.centre.copy_(trained.relation.centre)


def _is_weight(name: object, value: object) -> bool:
    """Whether it is a named, plain tensor: no sparse one, and none without storage."""
    is_tensor = isinstance(value, Tensor) and value.layout is torch.strided and value.device.type == "cpu"
    return isinstance(name, str) and is_tensor


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (value.shape, value.dtype) for name, value in state.items()}


def _checksum(state: Mapping[str, Tensor]) -> str:
    """Of all bytes and names, in the order of names."""
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _plain_copy(tensor: Tensor) -> Tensor:
    """Copy to the CPU: torch.save would write a view with all that it is a view of, in any memory format."""
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _read(path: Path) -> dict[str, Any]:
    """Return the file's content, a dict, or raise `ParashotError`."""
    try:
        content = load_tensors(path)
    except OSError as error:
        raise ParashotError(f"{path}: cannot be read ({error.strerror}); {ADVICE}") from error
    except ValueError as error:
        raise ParashotError(f"{path}: not a model of parashot, or damaged; {ADVICE}") from error
    if not isinstance(content, dict):
        raise ParashotError(f"{path}: not a model of parashot; {ADVICE}")
    return content


def _read_safetensors(path: Path) -> dict[str, Any]:
    """The same of a file of that format."""
    try:
        with path.open("rb"), safetensors.safe_open(path, framework="pt") as file:
            said = json.loads((file.metadata() or {}).get(METADATA, "null"))
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
        if not isinstance(said, dict) or _checksum(state) != said.get("sha256"):
            raise ValueError("its tensors are unlike their checksum")
    except OSError as error:
        raise ParashotError(f"{path}: cannot be read ({error.strerror}); {ADVICE}") from error
    except (safetensors.SafetensorError, ValueError, RecursionError) as error:
        raise ParashotError(f"{path}: not a model of parashot, or damaged; {ADVICE}") from error
    return {**said, "state": state}


def _refuse_wrapper_names(path: Path, state: Mapping[str, Tensor]) -> None:
    wrapped = next((name for name in state if "module" in name.split(".")), None)
    if wrapped is not None:
        raise ParashotError(f"{path}: {wrapped} is of a parallel wrapper; save the state of its `.module`")
