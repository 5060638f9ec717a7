"""The knobs that a training depends on."""

from __future__ import annotations

from parashot.params import Params, select

_KNOBS = (
    "seed",
    "data.source",
    "episode",
    "model",
    "pretrain.epochs",
    "train",
    "augment",
    "loader.backend",
    "loader.workers",
    "loader.prefetch",
    "parallel.device",
    "parallel.replicas",
    "parallel.backend",
    "parallel.init_method",
)
"""Those of every training; each strategy has its own besides."""

KNOBS_BESIDE_SIZE = (
    "seed",
    "episode",
    "model",
    "train.loss",
    "train.learning_rate",
    "train.lr_batchsz",
    "train.lr_relation",
    "train.schedule",
    "train.precision",
    "train.compile",
    "train.accumulate",
    "train.recompute",
    "train.on_nonfinite",
    "augment",
    "loader.backend",
    "loader.workers",
    "loader.prefetch",
    "evaluate.k_query",
    "evaluate.val_episodes",
    "parallel.device",
    "parallel.replicas",
)
"""Those of trainings whose batchsz, and what goes with it, a study sets itself."""


def params_of(params: Params, strategy: str) -> dict[str, str]:
    """The knobs a training depends on, and no others."""
    return select(params, [*_KNOBS, f"parallel.{strategy}"])
