"""One training step as benchmarks time it: its shape, its params, its strategy, its batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import torch

from benchmarks.checkout import ROOT
from parashot.allocator import keep_freed_memory
from parashot.data.episode_dataset import step_batch
from parashot.hardware import usable_cores
from parashot.knobs import apply
from parashot.parallel.context import Context, Placement
from parashot.parallel.registry import build_strategy, step_options
from parashot.parallel.strategy import Strategy
from parashot.params import EpisodeSpec, Params
from parashot.parsing import Value, parse, read_yaml
from parashot.questions.text import counted
from parashot.task import Batch, Plan
from parashot.tasks.relation import RelationTask

Settings = Mapping[str, Value]
"""Dotted keys of params.yaml."""

Embedding = Literal["conv4", "bottleneck", "resnet12"]

N_WAY, K_SHOT = 5, 1
"""5-way 1-shot, as the study."""

_NONE: Settings = MappingProxyType({})


@dataclass(frozen=True)
class Workload:
    """One step: `batchsz` episodes with `k_query` query images per class, `image_size` pixels square."""

    embedding: Embedding
    image_size: int
    k_query: int
    batchsz: int

    @property
    def name(self) -> str:
        """Name as tables show it."""
        queries = counted(self.k_query, "query", "queries")
        return f"{self.embedding}, {self.image_size} px, {queries} per class, batchsz {self.batchsz}"

    @property
    def batch_bytes(self) -> int:
        """uint8 pixels of one step."""
        return self.batchsz * self.spec.images * 3 * self.image_size**2

    @property
    def spec(self) -> EpisodeSpec:
        """Shape of its episodes."""
        return EpisodeSpec(N_WAY, K_SHOT, self.k_query)

    def params(self, settings: Settings = _NONE) -> Params:
        """params.yaml with this workload, squared error, pairing `split`, and further dotted keys.

        Raises `ParamsError`.
        """
        own: dict[str, Value] = {
            "episode.n_way": N_WAY,
            "episode.k_shot": K_SHOT,
            "episode.k_query": self.k_query,
            "train.n_way": None,
            "model.head": "relation",
            "model.embedding": self.embedding,
            "model.image_size": self.image_size,
            "model.pairing": "split",
            "model.norm_episodes": 0,  # as the study's step, which it is compared with
            "train.episodes": self.batchsz,
            "train.batchsz": self.batchsz,
            "train.batch_per": "global",
            "train.loss": "mse",
            "train.learning_rate": 1e-3,
            "train.precision": "fp32",
            "train.compile": "none",
            "train.recompute": False,
            "train.accumulate": 1,
            "augment.crop": 1.0,
            "augment.flip": False,
            "augment.jitter": 0.0,
        }
        return params_with({**own, **settings})

    def strategy(self, name: str, context: Context, settings: Settings = _NONE) -> Strategy:
        """Parashot's strategy `name` around a network of its own."""
        params = self.params(settings)
        task, options = RelationTask(params, Path()), step_options(params.train)
        return build_strategy(name, task, options, context, params.parallel)

    def batch(self, rank: int = 0, world_size: int = 1) -> Batch:
        """A rank's share of a step: random uint8 pixels, in memory as the loaders lay them out."""
        plan = Plan(self.batchsz, self.batchsz, rank, world_size)
        shape = (len(plan.reads(0)) * self.spec.images, self.image_size, self.image_size, 3)
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
        return step_batch(pixels.movedim(-1, -3), self.spec, plan, 0)


def params_with(settings: Settings) -> Params:
    """params.yaml of this checkout with dotted keys set. Raises `ParamsError`."""
    tree = read_yaml(ROOT / "params.yaml")
    assert isinstance(tree, dict)
    return parse(Params, apply(tree, settings))


def device() -> torch.device:
    """Device that steps run on."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def serial_strategy(workload: Workload, settings: Settings) -> Strategy:
    """Parashot's strategy of one replica, on all cores or the card; from now freed memory is kept."""
    keep_freed_memory()
    placement = Placement(device().type, 1, usable_cores(), usable_cores())
    return workload.strategy("serial", Context(0, 1, 0, 1, placement), settings)
