"""What all of the advice buys: the same training by default and as advised."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parashot.params import Params
from parashot.questions.gain.records import USUAL, GainResults
from parashot.questions.runs import Stage
from parashot.questions.statistics import CONFIDENCE
from parashot.questions.ways.episodes import time_episode_ways
from parashot.questions.ways.records import EpisodeWay
from parashot.questions.ways.rows import way_rows, way_settings
from parashot.records import Provenance


def bench_gain(
    params: Params, packed: Path, ways: Sequence[EpisodeWay], out: Path, provenance: Provenance
) -> None:
    """Time `ways`, the two or none, and write `out`."""
    stage = Stage("all of the advice", "gain", provenance)
    blocks = time_episode_ways(params, packed, ways, "gain") if ways else []
    results = GainResults(tuple(ways), tuple(blocks))
    stage.write(out, results, way_settings(way_rows(ways, blocks, USUAL, CONFIDENCE), blocks, ""))
