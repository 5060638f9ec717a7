"""A trained network as a `.safetensors` file that loads anywhere: tensors, and the network's params beside.

The metadata's one entry `parashot` is JSON: {"format": number, "model": params}, of a calibrated network with
{"calibration": ...} as well.
"""

from __future__ import annotations

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
from parashot.model.calibration import Calibration
from parashot.model.network import RelationNetwork
from parashot.params import ModelParams
from parashot.parsing import parse

FORMAT = 2
METADATA = "parashot"
"""One entry holds all: several would be written in any order."""

ADVICE = "give the file that a training has written"


def save_weights(
    path: Path, params: ModelParams, state: Mapping[str, Tensor], calibration: Calibration | None = None
) -> None:
    """Write `state`, the state dict of a `RelationNetwork(params)`, atomically and reproducibly.

    Raises `ParashotError` where the names in `state` are those of a wrapper around the network.
    """
    wrapped = next((name for name in state if "module" in name.split(".")), None)
    if wrapped is not None:
        raise ParashotError(f"{path}: {wrapped} is of a parallel wrapper; save the state of its `.module`")
    tensors = {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in state.items()
    }
    content = {"format": FORMAT, "model": asdict(params)}
    if calibration is not None:
        content["calibration"] = asdict(calibration)
    with replacing_file(path) as temporary:
        temporary.write_bytes(safetensors.torch.save(tensors, {METADATA: json.dumps(content)}))


def load_network(path: Path) -> RelationNetwork:
    """Read a network onto the CPU, in eval mode.

    Raises `ParashotError` where the file is missing, damaged, or not one of `save_weights`.
    """
    content, state = _read(path)
    if content.get("format") != FORMAT:
        raise ParashotError(f"{path}: format {content.get('format')!r}, not {FORMAT}; train again")
    params = parse(ModelParams, content.get("model"), f"{path}: model")
    with torch.random.fork_rng(devices=[]):
        network = RelationNetwork(params)
    if _shapes(state) != _shapes(network.state_dict()):
        raise ParashotError(
            f"{path}: its weights are not those of the network it names; train again if an older version of "
            f"parashot has written it, or else {ADVICE}"
        )
    network.load_state_dict(state)
    if (calibration := content.get("calibration")) is not None:
        network.calibration = parse(Calibration, calibration, f"{path}: calibration")
    return network.eval()


def begin_with_embedding(network: RelationNetwork, path: Path) -> None:
    """Copy the embedding of a file into `network`, and the centres that both heads have.

    Raises `ParashotError` as `load_network` does, and where the file's embedding is of another kind.
    """
    trained = _load_for(network, path)
    network.embedding.load_state_dict(trained.embedding.state_dict())
    centres = dict(network.relation.named_buffers(recurse=False))
    for name, value in trained.relation.named_buffers(recurse=False):
        if name in centres:
            centres[name].copy_(value)


def average_with_embedding(network: RelationNetwork, path: Path, share: float) -> None:
    """Average the weights of `network`'s embedding with those of a file, of which `share` is taken.

    The running statistics of batch norm are averaged alike. Wortsman et al., Robust Fine-tuning of Zero-shot
    Models, CVPR 2022, section 3.

    Raises `ParashotError` as `begin_with_embedding` does.
    """
    theirs = _load_for(network, path).embedding.state_dict()
    for name, mine in network.embedding.state_dict().items():
        if mine.is_floating_point():
            mine.lerp_(theirs[name].to(mine.device), share)


def _load_for(network: RelationNetwork, path: Path) -> RelationNetwork:
    trained = load_network(path)
    if _shapes(trained.embedding.state_dict()) != _shapes(network.embedding.state_dict()):
        raise ParashotError(
            f"{path}: its embedding is of another kind; set model.embedding as it was trained"
        )
    return trained


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Metadata of a file, and its tensors."""
    try:
        with path.open("rb"), safetensors.safe_open(path, framework="pt") as file:
            content = json.loads((file.metadata() or {})[METADATA])
            return dict(content), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise ParashotError(f"{path}: cannot be read ({error.strerror}); {ADVICE}") from error
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ParashotError(f"{path}: not a model of parashot, or damaged; {ADVICE}") from error


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (value.shape, value.dtype) for name, value in state.items()}
