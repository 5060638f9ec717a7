"""parashot: how should this few-shot training be parallelised? Measured, on your machine.

The names below are its programming interface (docs/api.md); each is imported when it is first used, so that
`import parashot` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parashot.classify.classifier import Classifier as Classifier
    from parashot.data.episodes import draw_rows as draw_rows
    from parashot.data.packed import PackedSplit as PackedSplit
    from parashot.data.pixels import prepare as prepare
    from parashot.doctor.watch import watch as watch
    from parashot.model.network import RelationNetwork as RelationNetwork
    from parashot.model.network import build_network as build_network
    from parashot.model.weights import load_network as load_network
    from parashot.model.weights import save_weights as save_weights
    from parashot.params import EpisodeSpec as EpisodeSpec
    from parashot.params import ModelParams as ModelParams
    from parashot.params import load_params as load_params

_HOMES = {
    "Classifier": "parashot.classify.classifier",
    "EpisodeSpec": "parashot.params",
    "ModelParams": "parashot.params",
    "PackedSplit": "parashot.data.packed",
    "RelationNetwork": "parashot.model.network",
    "build_network": "parashot.model.network",
    "draw_rows": "parashot.data.episodes",
    "load_network": "parashot.model.weights",
    "load_params": "parashot.params",
    "prepare": "parashot.data.pixels",
    "save_weights": "parashot.model.weights",
    "watch": "parashot.doctor.watch",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
