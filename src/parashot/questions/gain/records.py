"""Records of the gain question: results/gain."""

from __future__ import annotations

from dataclasses import dataclass

from parashot.questions.ways.records import EpisodeWay, WayBlock

USUAL, ADVISED = "default", "advised"
"""Names of the two ways: what people do by default, and what the study advises."""


@dataclass(frozen=True)
class GainResults:
    """`results/gain`: the default way and the advised one; empty where the advice is not complete."""

    ways: tuple[EpisodeWay, ...]
    blocks: tuple[WayBlock, ...]
