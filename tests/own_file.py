"""A user's training file, a small MLP on rows that are dicts, in float64; and what was measured of one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from parashot.questions.own.advice import OwnAdvice, advise_own
from parashot.questions.own.measure import OwnTrainings, own_parallel
from parashot.questions.own.records import OwnResults, OwnWay
from parashot.questions.ways.records import WayBlock
from parashot.tasks.own import OwnTask

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
    return edited(folder, name, {old: new} if old else {})


def edited(folder: Path, name: str, changes: dict[str, str], top: str = "") -> Path:
    """Write the file with lines above it, and words of it replaced, one after another."""
    text = OWN
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    file = folder / f"{name}.py"
    file.write_text(top + text, encoding="utf-8")
    return file


def own_trainings() -> OwnTrainings:
    return OwnTrainings(OwnTask(Path("file.py"), 6), replace(own_parallel(), device="cpu"))


def way(name: str, *, replicas: int = 1, workers: int = 0, precision: str = "fp32") -> OwnWay:
    strategy = "ddp" if replicas > 1 else "serial"
    return OwnWay(name, strategy, replicas, 1, 6, workers, precision, "none", "cpu")


def blocks(name: str, step: float, noise: float = 0.001) -> list[WayBlock]:
    """Eight rounds over two launches."""
    return [
        WayBlock(number // 4, number, name, 10, 10 * step * (1 + noise * (number % 3)), 0.1 * step, 2**20)
        for number in range(8)
    ]


def results(seconds: dict[OwnWay, float]) -> OwnResults:
    """Ways with their seconds of a step."""
    finals = [block for each, step in seconds.items() for block in blocks(each.way, step)]
    return OwnResults(tuple(seconds), (), tuple(finals), (), tuple(finals))


def advised(found: OwnResults) -> OwnAdvice:
    advice = advise_own(found)
    assert advice is not None
    return advice
