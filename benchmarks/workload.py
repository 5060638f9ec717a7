"""What a training step works on: a network, images of one size, so many episodes and queries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from parashot.data.batches import Batch, Plan
from parashot.data.episodes import EpisodeSpec
from parashot.params import AugmentParams, Params, load_params

Embedding = Literal["conv4", "bottleneck", "resnet12"]

N_WAY, K_SHOT = 5, 1
"""5-way 1-shot, as the study."""

_PARAMS = Path(__file__).resolve().parents[1] / "params.yaml"


@dataclass(frozen=True)
class Workload:
    """One step: `batchsz` episodes with `k_query` query images per class, `image_size` pixels square."""

    embedding: Embedding
    image_size: int
    k_query: int
    batchsz: int

    @property
    def name(self) -> str:
        """As a person reads it."""
        return (
            f"{self.embedding}, {self.image_size} px, {_count(self.k_query, 'query', 'queries')} per class, "
            f"batchsz {self.batchsz}"
        )

    @property
    def images(self) -> int:
        """Images of one step."""
        return self.batchsz * self.spec.images

    @property
    def spec(self) -> EpisodeSpec:
        """The shape of its episodes."""
        return EpisodeSpec(N_WAY, K_SHOT, self.k_query)

    def params(self, **train: Any) -> Params:
        """params.yaml with this workload, squared error and pairing `split`; `train` goes into its section.

        Raises `ParamsError`.
        """
        params = load_params(_PARAMS)
        fixed: dict[str, Any] = {
            "episodes": self.batchsz,
            "batchsz": self.batchsz,
            "batch_per": "global",
            "loss": "mse",
            "learning_rate": 1e-3,
            "precision": "fp32",
            "compile": "none",
            "recompute": False,
            "accumulate": 1,
        }
        return replace(
            params,
            episode=replace(params.episode, n_way=N_WAY, k_shot=K_SHOT, k_query=self.k_query),
            model=replace(
                params.model, embedding=self.embedding, image_size=self.image_size, pairing="split"
            ),
            train=replace(params.train, **(fixed | train)),
            augment=AugmentParams(crop=1.0, flip=False, jitter=0.0),
        )

    def batch(self, seed: int = 0, rank: int = 0, ranks: int = 1) -> Batch:
        """A rank's share of a step: random uint8 pixels, laid out in memory as the loaders lay them."""
        plan = Plan(self.batchsz, self.batchsz, rank, ranks)
        images = len(plan.reads(0)) * self.spec.images
        pixels = torch.randint(
            256,
            (images, self.image_size, self.image_size, 3),
            dtype=torch.uint8,
            generator=torch.Generator().manual_seed(seed),
        )
        return Batch.of(pixels.movedim(-1, -3), self.spec, plan, 0)


def _count(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
