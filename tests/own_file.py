"""A user's training file: a small MLP on rows that are dicts, in float64."""

from __future__ import annotations

from pathlib import Path

from parashot.questions.own.records import DEFAULTS, OwnWay

OWN = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

batchsz = 6


class Rows(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        x = torch.sin(torch.arange(4 * index, 4 * index + 4, dtype=torch.float64) ** 2)
        return {"x": x, "y": x[:3].argmax()}


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def dataset():
    return Rows()


def loss(network, batch):
    return F.cross_entropy(network(batch["x"]), batch["y"])


def optimizer(parameters):
    return torch.optim.RMSprop(parameters, lr=0.05)
"""


def write_own(folder: Path, name: str, old: str = "", new: str = "") -> Path:
    """Write the file under a name of its own, since Python imports a name once; `old` in it becomes `new`."""
    assert old in OWN
    file = folder / f"{name}.py"
    file.write_text(OWN.replace(old, new) if old else OWN, encoding="utf-8")
    return file


def way(name: str, *, replicas: int = 1, workers: int = 0, precision: str = "fp32") -> OwnWay:
    strategy = "ddp" if replicas > 1 else "serial"
    return OwnWay(name, strategy, replicas, 1, 6, workers, precision, **DEFAULTS)
