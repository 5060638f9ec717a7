"""How a step is computed best here: what params leave to `auto`, measured before anything is trained.

Steps of one replica with its share of a batch, computed in every way that is open, in turn. The decisions are
written apart from the times, so that trainings run again only where a decision changes, and all strategies
compute in the same way. Ties go to full precision, to `split`, and to the network that is not compiled.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median

import torch

from parashot.data.batches import Batch, Plan
from parashot.files import replacing_folder
from parashot.model.pairing import PAIRINGS, choose_pairing
from parashot.parallel.abilities import check_abilities, compile_modes, precisions
from parashot.parallel.context import Context, alone, place
from parashot.parallel.launch import launch
from parashot.params import Compile, Params
from parashot.questions.runs import StageRuns
from parashot.questions.statistics import Resampling, ratio_interval
from parashot.questions.step.records import TuneBlock
from parashot.questions.timed import TimedStrategy, in_turn
from parashot.records import write_metrics, write_result, write_rows, write_runs
from parashot.train.assemble import new_strategy, training_episodes
from parashot.train.choices import computed_as
from parashot.train.records import Choices

log = logging.getLogger(__name__)

KNOBS = (
    "seed",
    "episode",
    "model",
    "train.episodes",
    "train.batchsz",
    "train.loss",
    "train.learning_rate",
    "train.precision",
    "train.compile",
    "train.accumulate",
    "train.recompute",
    "train.on_nonfinite",
    "augment",
    "parallel.device",
    "parallel.replicas",
    "parallel.bench",
    "claims",
)

WORTH_COMPILING_SECONDS = 600.0
"""Compiling takes a minute or two to try: it is tried for trainings that take longer than this without."""


@dataclass
class Measured:
    """Seconds of a step in each way, round by round, the first steps of what was compiled, and the choice."""

    seconds: dict[Choices, list[float]] = field(default_factory=dict)
    compiling_seconds: dict[str, float] = field(default_factory=dict)
    chosen: Choices = field(default_factory=lambda: Choices("split", "fp32", "none"))


def tune(params: Params, packed: Path, choices: Path, out: Path, tags: Mapping[str, str]) -> None:
    """Decide what `params` leave open; write the decisions to `choices` and the measurements to `out`.

    Raises `DeviceError` where params ask for what the device cannot do.
    """
    runs = StageRuns("how to compute a step", "tune", params, KNOBS, tags, ["blocks.csv"])
    placement = place(params.parallel)
    check_abilities(params, placement.device_type)
    measured = launch(tune_rank, placement, 1, params, packed)
    if measured is not None:
        _write(choices, out, measured, runs)


def tune_rank(context: Context, params: Params, packed: Path) -> Measured:
    """The measurement, in one process."""
    device_type = context.placement.device_type
    ways = open_ways(params, device_type)
    modes = open_modes(params, compile_modes(device_type))
    measured = Measured(chosen=ways[0])
    if len(ways) == 1 and not modes:
        return measured
    share = max(1, params.train.batchsz // _replicas_that_fit(context))
    episodes = training_episodes(params, packed, Plan(share, share), "packed")
    batches = [episodes[0]]
    timed = {way: _timed(context, params, batches, way) for way in ways}
    measured.seconds = _single_steps(timed, params)
    measured.chosen = choose(measured.seconds, Resampling.of(params.claims))
    if modes and _training_seconds(measured, params) > WORTH_COMPILING_SECONDS:
        _try_compiling(context, params, batches, modes, measured)
    return measured


def open_ways(params: Params, device_type: str) -> list[Choices]:
    """Every way to compute a step that params leave open, not compiled; the one a tie goes to first."""
    usual = choose_pairing(params.episode.n_way, params.episode.n_way * params.episode.k_query)
    pairings = [usual, *(each for each in PAIRINGS if each != usual)]
    if params.model.pairing != "auto":
        pairings = [params.model.pairing]
    able = precisions(device_type) if params.train.precision == "auto" else [params.train.precision]
    mode = "none" if params.train.compile == "auto" else params.train.compile
    return [Choices(pairing, precision, mode) for precision in able for pairing in pairings]


def open_modes(params: Params, able: Sequence[Compile]) -> list[Compile]:
    """Modes of those the device is able to that `auto` may choose: none for what is recomputed.

    (`dp` is skipped then, and says why.) CUDA graphs would overwrite what a step in parts adds up.
    """
    train = params.train
    if train.compile != "auto" or train.recompute:
        return []
    refused = {"none", "reduce-overhead"} if train.accumulate > 1 else {"none"}
    return [mode for mode in able if mode not in refused]


def choose(seconds: Mapping[Choices, Sequence[float]], resampling: Resampling) -> Choices:
    """The first way, unless a later one is faster by an interval that excludes 1; then the fastest of those.

    The intervals hold together (Bonferroni).
    """
    first, *others = seconds
    together = resampling.simultaneous(len(others))
    faster = [each for each in others if ratio_interval(seconds[first], seconds[each], together).low > 1]
    return min(faster, key=lambda each: median(seconds[each]), default=first)


def _try_compiling(
    context: Context, params: Params, batches: list[Batch], modes: Sequence[Compile], measured: Measured
) -> None:
    """Choose a mode whose whole training, compiling included, is shorter."""
    plain = measured.chosen
    ways = {mode: replace(plain, compile=mode) for mode in modes}
    timed = {way: _timed(context, params, batches, way) for way in (plain, *ways.values())}
    for mode, way in ways.items():
        measured.compiling_seconds[mode] = timed[way].seconds(params.parallel.bench.warmup_steps)
    seconds = _single_steps(timed, params)
    best = choose(seconds, Resampling.of(params.claims))
    measured.seconds |= seconds
    steps = params.train.episodes / params.train.batchsz
    saved = steps * (median(seconds[plain]) - median(seconds[best]))
    if best != plain and saved > measured.compiling_seconds[best.compile]:
        measured.chosen = best


def _replicas_that_fit(context: Context) -> int:
    """Replicas that a batch is shared out over; where GPUs are too few for them, only `serial` trains."""
    placement = context.placement
    few = placement.device_type == "cuda" and torch.cuda.device_count() < placement.replicas
    return 1 if few else placement.replicas


def _training_seconds(measured: Measured, params: Params) -> float:
    return median(measured.seconds[measured.chosen]) * params.train.episodes / params.train.batchsz


def _single_steps(timed: Mapping[Choices, TimedStrategy], params: Params) -> dict[Choices, list[float]]:
    bench = params.parallel.bench
    steps = {way: partial(each.seconds, 1) for way, each in timed.items()}
    return in_turn(steps, bench.blocks, bench.warmup_steps)


def _timed(context: Context, params: Params, batches: list[Batch], way: Choices) -> TimedStrategy:
    strategy = new_strategy("serial", computed_as(params, way), alone(context))
    return TimedStrategy(strategy, batches, context.placement.threads_per_replica)


def _write(choices: Path, out: Path, measured: Measured, runs: StageRuns) -> None:
    metrics: dict[str, float] = {
        f"compiling_{mode}_seconds": seconds for mode, seconds in measured.compiling_seconds.items()
    }
    for way, seconds in measured.seconds.items():
        name = "_".join(vars(way).values()).replace("-", "_")
        runs.child(
            " ".join(vars(way).values()),
            {**vars(way), "chosen": way == measured.chosen},
            {"seconds_per_step": seconds},
            {"seconds_per_step_median": median(seconds)},
        )
        metrics[f"{name}_seconds_per_step"] = median(seconds)
    blocks = [
        TuneBlock(number, way.pairing, way.precision, way.compile, seconds)
        for way, series in measured.seconds.items()
        for number, seconds in enumerate(series)
    ]
    with replacing_folder(out) as folder:
        write_rows(folder / "blocks.csv", TuneBlock, blocks)
        write_metrics(folder / "metrics.json", metrics)
        write_runs(folder / "records.jsonl", runs.all(metrics))
    write_result(choices, measured.chosen)
    log.info("tune: %s", ", ".join(f"{key} {value}" for key, value in vars(measured.chosen).items()))
