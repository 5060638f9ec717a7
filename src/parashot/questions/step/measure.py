"""How a step is computed best here: what params leave to `auto`, measured before anything is trained.

Steps of one replica with its share of a batch, computed in every way that is open, in turn, over several
launches of the process (in one, where compiling is tried). The decisions are written apart from the times, so
that trainings run again only where a decision changes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from statistics import median

import torch

from parashot.model.pairing import PAIRINGS, choose_pairing
from parashot.parallel.abilities import check_options, compile_modes, precisions
from parashot.parallel.context import Context, resolve_placement
from parashot.parallel.launch import launch_apart
from parashot.parallel.registry import step_options
from parashot.params import ClaimsParams, Compile, Params, StrategyBenchParams
from parashot.questions.runs import Setting, Stage
from parashot.questions.statistics import CONFIDENCE, paired_ratio, together
from parashot.questions.step.records import TuneBlock, TuneResults
from parashot.questions.step.rows import seconds_by_way, step_rows
from parashot.questions.timed import (
    WARMUP_STEPS,
    TimedStrategy,
    rounds_of_launch,
    steps_of_block,
    timed_strategy,
)
from parashot.records import Provenance, write_result
from parashot.tasks.relation import RelationTask
from parashot.train.records import Choices, computed_as

log = logging.getLogger(__name__)

WORTH_COMPILING_SECONDS = 600.0
"""Compiling takes a minute or two to try: it is tried for trainings that take longer than this without."""


def tune(params: Params, packed: Path, choices: Path, out: Path, provenance: Provenance) -> None:
    """Decide what `params` leave open; write the decisions to `choices` and the measurements to `out`.

    Raises `DeviceError` where params ask for what the device cannot do.
    """
    stage = Stage("how to compute a step", "tune", provenance)
    placement = resolve_placement(params.parallel)
    check_options(step_options(params.train), placement.device_type)
    ways, modes = open_ways(params, placement.device_type), open_modes(params, placement.device_type)
    results = TuneResults(ways[0], ())
    for number in range(params.parallel.bench.launches if len(ways) > 1 or modes else 0):
        results = launch_apart(tune_rank, placement, 1, params, packed, number, results.blocks)
    stage.write(out, results, _settings(results))
    write_result(choices, results.choices)
    log.info("tune: %s", ", ".join(f"{key} {value}" for key, value in asdict(results.choices).items()))


def tune_rank(
    context: Context, params: Params, packed: Path, number: int, earlier: tuple[TuneBlock, ...]
) -> TuneResults:
    """Measure in one process, the launch of this number; the last one chooses, by all blocks.

    What might be compiled is tried there alone: it takes a minute or two in each process.
    """
    device_type, bench = context.placement.device_type, params.parallel.bench
    ways, modes = open_ways(params, device_type), open_modes(params, device_type)
    timed = {way: _timed(context, params, packed, way) for way in ways}
    blocks = (*earlier, *_in_turn(timed, bench, number))
    if number < bench.launches - 1:
        return TuneResults(ways[0], blocks)
    chosen = choose(ways, blocks, params.claims)
    steps = params.train.episodes / params.train.batchsz
    if modes and steps * median(seconds_by_way(blocks)[chosen].values()) > WORTH_COMPILING_SECONDS:
        compiled = {mode: _timed(context, params, packed, replace(chosen, compile=mode)) for mode in modes}
        return with_compiled(timed, compiled, chosen, params)
    return TuneResults(chosen, blocks)


def open_ways(params: Params, device_type: str) -> list[Choices]:
    """Every way to compute a step that params leave open, not compiled; the one a tie goes to first."""
    episode = params.training_episode
    usual = choose_pairing(episode.n_way, episode.n_way * episode.k_query)
    pairings = [usual, *(each for each in PAIRINGS if each != usual)]
    if params.model.pairing != "auto":
        pairings = [params.model.pairing]
    elif params.model.head == "bdc":  # which joins no pairs
        pairings = [usual]
    able = precisions(device_type) if params.train.precision == "auto" else [params.train.precision]
    mode = "none" if params.train.compile == "auto" else params.train.compile
    return [Choices(pairing, precision, mode) for precision in able for pairing in pairings]


def open_modes(params: Params, device_type: str) -> list[Compile]:
    """Compile modes of the device that `auto` may choose; where one is chosen, `dp` is skipped.

    None for what is recomputed. CUDA graphs would overwrite what a step in parts adds up.
    """
    train = params.train
    if train.compile != "auto" or train.recompute:
        return []
    refused = {"none", "reduce-overhead"} if train.accumulate > 1 else {"none"}
    return [mode for mode in compile_modes(device_type) if mode not in refused]


def choose(ways: Sequence[Choices], blocks: Iterable[TuneBlock], claims: ClaimsParams) -> Choices:
    """Choose the first of `ways`, unless others are faster by an interval that excludes 1.

    Of those, the first that was measured within `claims.time_margin` of the fastest: no luck decides between
    equals. The intervals hold together (Bonferroni).
    """
    seconds = seconds_by_way(blocks)
    first, *others = ways
    confidence = together(claims.confidence, len(others))
    speedups = {each: paired_ratio(seconds[first], seconds[each], confidence) for each in others}
    faster = {each: speedup.value for each, speedup in speedups.items() if speedup.low > 1}
    enough = max(faster.values(), default=1) / (1 + claims.time_margin)
    return next((each for each, speedup in faster.items() if speedup >= enough), first)


def with_compiled(
    timed: Mapping[Choices, TimedStrategy],
    compiled: Mapping[Compile, TimedStrategy],
    plain: Choices,
    params: Params,
) -> TuneResults:
    """Time all ways again, in one launch, and `plain` compiled in each mode.

    Chosen is a mode whose whole training, compiling included, is shorter, or `plain`.
    """
    bench = params.parallel.bench
    modes = {replace(plain, compile=mode): each for mode, each in compiled.items()}
    compiling = {way: each.seconds(WARMUP_STEPS) for way, each in modes.items()}
    blocks = tuple(_in_turn({**timed, **modes}, replace(bench, launches=1), 0))
    seconds = seconds_by_way(blocks)
    best = choose([plain, *modes], blocks, params.claims)
    steps = params.train.episodes / params.train.batchsz
    gain = median(seconds[plain].values()) - median(seconds[best].values())
    return TuneResults(best if steps * gain > compiling.get(best, 0) else plain, blocks)


def _in_turn(
    timed: Mapping[Choices, TimedStrategy], bench: StrategyBenchParams, number: int
) -> Iterator[TuneBlock]:
    """Yield the blocks of a launch."""
    steps = steps_of_block(min(each.step_seconds() for each in timed.values()), bench)
    for round_number in rounds_of_launch(bench.blocks, number, bench.launches):
        for way in Random(round_number).sample([*timed], len(timed)):
            seconds = timed[way].seconds(steps) / steps
            yield TuneBlock(number, round_number, **asdict(way), seconds=seconds)


def _timed(context: Context, params: Params, packed: Path, way: Choices) -> TimedStrategy:
    """One replica with its share of a batch, computed in one way.

    Where GPUs are too few for all replicas only `serial` trains, and its share is the whole batch.
    """
    placement = context.placement
    few = placement.device_type == "cuda" and torch.cuda.device_count() < placement.replicas
    share = max(1, params.train.batchsz // (1 if few else placement.replicas))
    way_params = computed_as(params, way)
    task, options = RelationTask(way_params, packed), step_options(way_params.train)
    return timed_strategy("serial", task, options, context.alone(), params.parallel, batchsz=share)


def _settings(results: TuneResults) -> list[Setting]:
    settings, seconds = [], seconds_by_way(results.blocks)
    for row in step_rows(results.blocks, results.choices, CONFIDENCE):
        way = Choices(row.pairing, row.precision, row.compile)
        name = "_".join(asdict(way).values()).replace("-", "_")
        options = {**asdict(way), "chosen": row.chosen}
        settings.append(Setting(name, options, row, {"seconds_per_step": [*seconds[way].values()]}))
    return settings
