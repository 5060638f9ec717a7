"""params.yaml as one frozen, checked tree: every knob there is.

A key that is unknown, missing, of the wrong type or out of range raises `ParamsError`, as values do that do
not fit together.
"""

from parashot.params.parallel import ParallelParams, StrategyBenchParams, StrategyParams
from parashot.params.sections import (
    AugmentParams,
    ClaimsParams,
    Compile,
    DataParams,
    EpisodeParams,
    ModelParams,
    Pairing,
    Precision,
    SeedsStudyParams,
    SyntheticParams,
    TrainParams,
)
from parashot.params.tree import IMAGES_PER_CLASS, SPLIT_CLASSES, Params, load_params

__all__ = [
    "IMAGES_PER_CLASS",
    "SPLIT_CLASSES",
    "AugmentParams",
    "ClaimsParams",
    "Compile",
    "DataParams",
    "EpisodeParams",
    "ModelParams",
    "Pairing",
    "ParallelParams",
    "Params",
    "Precision",
    "SeedsStudyParams",
    "StrategyBenchParams",
    "StrategyParams",
    "SyntheticParams",
    "TrainParams",
    "load_params",
]
