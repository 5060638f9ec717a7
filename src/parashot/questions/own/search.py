"""The search: successive halving (Jamieson and Talwalkar, AISTATS 2016) over interleaved blocks.

Every halving has the same share of the time. In it all ways that are left get a block, in random order, then
another, and so on until its time is over; the better half goes on. Ways are judged by the median of all their
blocks so far, so that a moment in which the machine did something else decides nothing where there is time
for three blocks of a way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median

from parashot.parallel.context import Context
from parashot.parallel.exchange import from_all_ranks
from parashot.progress import passing
from parashot.questions.own.advice import MARGIN, simplest_first
from parashot.questions.own.records import OwnWay
from parashot.questions.ways.measure import ReadyWays, Trainings
from parashot.questions.ways.records import WayBlock
from parashot.questions.ways.rows import step_seconds_by_way

READY_SHARE = 0.5
"""Of a search's time: no further way is made ready after it."""

MOST_PASSES = 8
"""Of a halving, however much time there is: what is still undecided then is for the finals."""


@dataclass(frozen=True)
class Found:
    """Blocks of a search, and the best ways, the fastest first."""

    blocks: tuple[WayBlock, ...]
    best: tuple[OwnWay, ...]
    block_seconds: float  # of a block on average, with its loader's start
    ready_seconds: float  # to make a way ready to be timed, on average
    began: float = 0.0  # when the ranks had started, by the machine's monotonic clock
    load_seconds: float = 0.0  # by which the first way of a process, which loads the data set, takes longer


def search_rank(
    context: Context,
    trainings: Trainings[OwnWay],
    ways: Sequence[OwnWay],
    finalists: int,
    seconds: float,
    journal: Path,
) -> Found:
    """Search on one rank until `finalists` ways are left, or `seconds` are over: then the best ones so far.

    Ways that are not ready after half of the time are left out, but two, the first among them. All ranks
    decide alike, by the main one's clock. journal: CSV file that every block is added to.
    """
    begin = time.monotonic()
    ready = ReadyWays(context, trainings, ways, journal, begin + READY_SHARE * seconds)
    begun, blocks, passes = time.monotonic(), list[WayBlock](), 0
    left = [each for each in ways if each.way in ready.step_seconds]
    rounds = max(1, math.ceil(math.log2(len(left) / finalists)))
    for number in range(rounds):
        ends = begun + (seconds - (begun - begin)) * (number + 1) / rounds
        for _ in range(MOST_PASSES):
            needed = len(left) * (time.monotonic() - begun) / max(1, len(blocks))
            if passes and from_all_ranks(time.monotonic() + needed > ends, context, patient=True)[0]:
                break
            for way in Random(passes).sample(left, len(left)):
                steps = ready.steps_of_block([way], ready.trainings[way.way].parallel.bench)
                if (block := ready.block(way, steps, 0, passes)) is not None:
                    blocks.append(block)
                if context.is_main:
                    passing("search: %d ways left, %s", len(left), way.way)
            left = [each for each in left if each.way in ready.step_seconds]  # without those that have failed
            passes += 1
        left = better_half(left, blocks, finalists)
    ready.close()
    block_seconds = (time.monotonic() - begun) / max(1, len(blocks))
    further = len(ready.step_seconds) - 1
    ready_seconds = (begun - begin - ready.first_seconds) / further if further > 0 else ready.first_seconds
    load_seconds = max(0.0, ready.first_seconds - ready_seconds)
    return Found(tuple(blocks), tuple(left[:finalists]), block_seconds, ready_seconds, begin, load_seconds)


def better_half(left: Sequence[OwnWay], blocks: Sequence[WayBlock], least: int) -> list[OwnWay]:
    """The faster half of the ways, but `least` of them, the fastest first."""
    seconds = seconds_per_step(blocks)
    ordered = sorted(left, key=lambda way: seconds[way.way])
    return ordered[: max(least, math.ceil(len(left) / 2))]


def simplest_of_the_best(found: Found) -> OwnWay:
    """The simplest of the best ways that takes at most `MARGIN` longer than the fastest."""
    seconds = seconds_per_step(found.blocks)
    near = (1 + MARGIN) * seconds[found.best[0].way]
    return simplest_first([each for each in found.best if seconds[each.way] <= near])[0]


def seconds_per_step(blocks: Sequence[WayBlock]) -> dict[str, float]:
    """Median over the blocks of each way, by its name."""
    return {way: median(each.values()) for way, each in step_seconds_by_way(blocks).items()}
