"""How a step is computed best here: what params leave to `auto`, measured before anything is trained.

Steps of one replica with its share of a batch, computed in every way that is open, in turn. The decisions are
written apart from the times, so that trainings run again only where a decision changes, and all strategies
compute in the same way. Ties go to full precision, to `split`, and to the network that is not compiled.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

import torch

from parashot.model.pairing import PAIRINGS, choose_pairing
from parashot.parallel.abilities import check_options, compile_modes, precisions
from parashot.parallel.context import Context, resolve_placement
from parashot.parallel.launch import launch
from parashot.parallel.registry import step_options
from parashot.params import Compile, Params
from parashot.questions.runs import Setting, Stage
from parashot.questions.statistics import Resampling, Rounds, by_round, paired_ratio
from parashot.questions.step.records import TuneBlock, TuneResults
from parashot.questions.step.rows import seconds_by_way, step_rows
from parashot.questions.timed import TimedStrategy, steps_of_block, timed_strategy
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
    results = launch(tune_rank, placement, 1, params, packed)
    if results is None:
        return
    stage.write(out, results, _settings(results), elsewhere="choices")
    write_result(choices, results.choices)
    log.info("tune: %s", ", ".join(f"{key} {value}" for key, value in asdict(results.choices).items()))


def tune_rank(context: Context, params: Params, packed: Path) -> TuneResults:
    """Measure in one process."""
    device_type = context.placement.device_type
    ways = open_ways(params, device_type)
    modes = open_modes(params, compile_modes(device_type))
    seconds, chosen = dict[Choices, dict[int, float]](), ways[0]
    if len(ways) > 1 or modes:
        seconds = _in_turn({way: _timed(context, params, packed, way) for way in ways}, params)
        chosen = choose(seconds, Resampling.of(params.claims))
    steps = params.train.episodes / params.train.batchsz
    if modes and steps * median(seconds[chosen].values()) > WORTH_COMPILING_SECONDS:
        seconds, chosen = _with_compiled(context, params, packed, modes, ways, chosen)
    blocks = [
        TuneBlock(number, **asdict(way), seconds=each)
        for way, rounds in seconds.items()
        for number, each in rounds.items()
    ]
    return TuneResults(chosen, tuple(blocks))


def open_ways(params: Params, device_type: str) -> list[Choices]:
    """Every way to compute a step that params leave open, not compiled; the one a tie goes to first."""
    usual = choose_pairing(params.training_way, params.training_way * params.episode.k_query)
    pairings = [usual, *(each for each in PAIRINGS if each != usual)]
    if params.model.pairing != "auto":
        pairings = [params.model.pairing]
    elif params.model.head == "bdc":  # which joins no pairs
        pairings = [usual]
    able = precisions(device_type) if params.train.precision == "auto" else [params.train.precision]
    mode = "none" if params.train.compile == "auto" else params.train.compile
    return [Choices(pairing, precision, mode) for precision in able for pairing in pairings]


def open_modes(params: Params, able: Sequence[Compile]) -> list[Compile]:
    """Modes among `able` that `auto` may choose: none for what is recomputed.

    (`dp` is skipped then, and says why.) CUDA graphs would overwrite what a step in parts adds up.
    """
    train = params.train
    if train.compile != "auto" or train.recompute:
        return []
    refused = {"none", "reduce-overhead"} if train.accumulate > 1 else {"none"}
    return [mode for mode in able if mode not in refused]


def choose(seconds: Mapping[Choices, Rounds], resampling: Resampling) -> Choices:
    """The first way, unless a later one is faster by an interval that excludes 1; then the fastest of those.

    The intervals hold together (Bonferroni).
    """
    first, *others = seconds
    together = resampling.simultaneous(len(others))
    faster = [each for each in others if paired_ratio(seconds[first], seconds[each], together).low > 1]
    return min(faster, key=lambda each: median(seconds[each].values()), default=first)


def _with_compiled(
    context: Context,
    params: Params,
    packed: Path,
    modes: Sequence[Compile],
    ways: Sequence[Choices],
    plain: Choices,
) -> tuple[dict[Choices, dict[int, float]], Choices]:
    """Time all ways again, and `plain` compiled in each mode.

    Returns seconds per step, and a mode whose whole training, compiling included, is shorter, or `plain`.
    """
    compiled = [replace(plain, compile=mode) for mode in modes]
    timed = {way: _timed(context, params, packed, way) for way in (*ways, *compiled)}
    compiling = {way: timed[way].seconds(params.parallel.bench.warmup_steps) for way in compiled}
    seconds = _in_turn(timed, params)
    best = choose({way: seconds[way] for way in (plain, *compiled)}, Resampling.of(params.claims))
    steps = params.train.episodes / params.train.batchsz
    gain = median(seconds[plain].values()) - median(seconds[best].values())
    return seconds, best if steps * gain > compiling.get(best, 0) else plain


def _in_turn(timed: Mapping[Choices, TimedStrategy], params: Params) -> dict[Choices, dict[int, float]]:
    """Seconds per step of each way, by round, in rounds of as many steps of every way as last long enough."""
    bench = params.parallel.bench
    fastest = min(each.step_seconds(bench) for each in timed.values())
    steps = steps_of_block(fastest, replace(bench, steps=1))
    return by_round(
        (way, number, each.seconds(steps) / steps)
        for number in range(bench.blocks)
        for way, each in timed.items()
    )


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
    """One setting for each way."""
    settings, seconds = [], seconds_by_way(results.blocks)
    for row in step_rows(results.blocks, results.choices, Resampling()):
        way = Choices(row.pairing, row.precision, row.compile)
        name = "_".join(asdict(way).values()).replace("-", "_")
        options = {**asdict(way), "chosen": row.chosen}
        settings.append(Setting(name, options, row, {"seconds_per_step": [*seconds[way].values()]}))
    return settings
