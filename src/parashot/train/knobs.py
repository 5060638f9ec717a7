"""The knobs that a training depends on."""

from __future__ import annotations

from parashot.params import Params, select

_KNOBS = (
    "seed",
    "data.source",
    "episode",
    "model",
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


def params_of(params: Params, strategy: str) -> dict[str, str]:
    """The knobs a training depends on, and no others."""
    return select(params, [*_KNOBS, f"parallel.{strategy}"])
