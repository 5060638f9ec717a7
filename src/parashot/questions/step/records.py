"""Records of the step question: results/choices.json and results/tune."""

from __future__ import annotations

from dataclasses import dataclass

from parashot.records import record
from parashot.train.records import Choices


@record
class TuneBlock:
    """Steps of one replica, computed in one way, in one round of a launch; `seconds` are per step."""

    launch: int
    round: int
    pairing: str
    precision: str
    compile: str
    seconds: float


@dataclass(frozen=True)
class TuneResults:
    """The choice and `results/tune`; no blocks where params left nothing open."""

    choices: Choices
    blocks: tuple[TuneBlock, ...]
