"""The two ways: from timed blocks to a row each."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from parashot.errors import RecordError
from parashot.questions.gain.records import USUAL, GainResults, Way
from parashot.questions.statistics import Interval, Resampling, median_interval, paired_ratio


@dataclass(frozen=True, kw_only=True)
class GainRow(Way):
    """One way; `speedup` is over the default."""

    blocks: int
    episodes: int  # of all blocks, the same in both ways
    seconds: float  # that they took
    seconds_per_episode: Interval
    speedup: Interval
    waiting: Interval  # share of the time without a batch


def gain_rows(results: GainResults, resampling: Resampling) -> list[GainRow]:
    """Return a row for each way, the default first. Raises `RecordError` for a lone block."""
    seconds = episode_seconds(results)
    return [_row(way, results, seconds, resampling) for way in results.ways]


def episode_seconds(results: GainResults) -> dict[str, dict[tuple[int, int], float]]:
    """Seconds per episode: by way, then by launch and round."""
    found: dict[str, dict[tuple[int, int], float]] = {}
    for each in results.blocks:
        found.setdefault(each.way, {})[each.launch, each.round] = each.seconds / each.episodes
    return found


def _row(
    way: Way, results: GainResults, seconds: dict[str, dict[tuple[int, int], float]], resampling: Resampling
) -> GainRow:
    blocks = [each for each in results.blocks if each.way == way.way]
    if len(blocks) < 2:
        raise RecordError(
            f"results/gain/blocks.csv: {len(blocks)} blocks of way {way.way}, at least 2 are needed; "
            "run `dvc repro -f -s gain`"
        )
    return GainRow(
        **asdict(way),
        blocks=len(blocks),
        episodes=sum(each.episodes for each in blocks),
        seconds=sum(each.seconds for each in blocks),
        seconds_per_episode=median_interval(list(seconds[way.way].values()), resampling),
        speedup=paired_ratio(seconds[USUAL], seconds[way.way], resampling),
        waiting=median_interval([each.waiting_seconds / each.seconds for each in blocks], resampling),
    )
