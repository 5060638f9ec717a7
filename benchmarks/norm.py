"""Ghost batch norm, of one episode at a time, against PyTorch's: time of a step, and accuracy after training.

Steps of both are timed in turn in one process, on all cores or one GPU; a step may take 1.05 times as long.
The trainings are of this checkout's packed images, without pretraining, each in a process with one thread:
of synthetic images as the default study but twice as long, with five seeds, whose differences are the
trainings'; of photographs (then no step is timed) as the recipe miniimagenet, one pair, whose interval is
over episodes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.equivalence import train_ways
from benchmarks.outcome import Cell, Outcome, Table, median_of, ratio_of
from benchmarks.step import SMALL
from benchmarks.workload import Settings, Workload, device, params_with, serial_step
from parashot.errors import DataError
from parashot.hardware import usable_cores
from parashot.parallel.abilities import precisions
from parashot.questions.statistics import Interval, equivalence, repeated_interval
from parashot.questions.timed import in_turn
from parashot.recipes import load_recipe

WAYS: Mapping[str, Settings] = {"plain": {"model.norm_episodes": 0}, "ghost": {"model.norm_episodes": 1}}
MOST = 1.05
"""Times that a step with ghost batch norm may take of a plain one."""

WORKLOADS = (
    Workload("conv4", 32, 3, 8),  # the default study's
    Workload("conv4", 84, 15, 4),
    Workload("bottleneck", 84, 1, 4),
    Workload("resnet12", 84, 1, 2),
)
BLOCKS, LEAST_SECONDS = 11, 0.5
PACKED, EPISODES, MARGIN = Path("data/packed"), 2000, 0.02
SEEDS = {"synthetic": (0, 1, 2, 3, 4), "photographs": (0,)}

_COMMON: Settings = {
    "pretrain.epochs": 0,
    "train.compile": "none",
    "parallel.device": "cpu",
    "parallel.replicas": usable_cores(),  # so that a replica has one thread
    "evaluate.val_episodes": EPISODES,
}
_QUICK: Settings = {"train.episodes": 16, "train.val_episodes": 20, "evaluate.val_episodes": 50}


def run(quick: bool, packed: Path = PACKED) -> Outcome:
    """Time steps, then train; `quick`: small shapes, few blocks, a few steps of each seed."""
    if not (packed / "manifest.json").is_file():
        raise DataError(f"{packed}: no packed images; run `dvc repro pack` first")
    synthetic = params_with({}).data.source == "synthetic"
    workloads = (SMALL,) if quick else WORKLOADS if synthetic else ()
    times = {each: _step_seconds(each, quick) for each in workloads}
    steps = _steps_table(times)
    accuracies, settings = _trainings(packed, quick, synthetic)
    slow = [str(row[0]) for row in steps.rows if row[-1] != "holds"]
    return Outcome(
        "norm",
        [*([steps] if times else []), _accuracy_table(accuracies)],
        raw={
            "seconds": {each.name: ways for each, ways in times.items()},
            "val_accuracies": {way: values.mean(1).tolist() for way, values in accuracies.items()},
        },
        settings={**settings, "blocks": BLOCKS, "most": MOST, "short": slow},
    )


def _step_seconds(workload: Workload, quick: bool) -> dict[str, list[float]]:
    """Seconds of a step of each way, item i of both of round i, in bf16 where the device has it."""
    precision: Settings = {"train.precision": precisions(device().type)[-1]}
    steps = {way: serial_step(workload, {**precision, **own}) for way, own in WAYS.items()}

    def seconds(way: str, count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            steps[way]()
        if device().type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count

    count = max(1, math.ceil((0.05 if quick else LEAST_SECONDS) / min(seconds(way, 2) for way in WAYS)))
    return in_turn({way: partial(seconds, way, count) for way in WAYS}, 3 if quick else BLOCKS)


def _steps_table(times: Mapping[Workload, Mapping[str, Sequence[float]]]) -> Table:
    rows: list[list[Cell]] = []
    for workload, ways in times.items():
        ratio = ratio_of(ways["ghost"], ways["plain"])
        verdict = "holds" if ratio.value <= MOST else "falls short"
        rows.append([workload.name, median_of(ways["plain"]), median_of(ways["ghost"]), ratio, MOST, verdict])
    title = f"A step with ghost batch norm, in {precisions(device().type)[-1]}"
    return Table(title, ("step", "plain (s)", "ghost (s)", "ghost over plain", "at most", "verdict"), rows)


def _trainings(packed: Path, quick: bool, synthetic: bool) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """Accuracies [seeds, episodes] of each way, and how they were trained."""
    seeds = SEEDS["synthetic" if synthetic else "photographs"]
    recipe = load_recipe("quick" if synthetic else "miniimagenet")
    settings = {**recipe.settings, **_COMMON}
    if synthetic:
        settings["train.episodes"] = 2 * params_with(recipe.settings).train.episodes
    settings |= _QUICK if quick else {}
    accuracies = dict(zip(WAYS, train_ways(WAYS, settings, seeds, packed), strict=True))
    return accuracies, {
        "recipe": recipe.name,
        "train_episodes": settings["train.episodes"],
        "seeds": list(seeds),
    }


def _accuracy_table(accuracies: Mapping[str, np.ndarray]) -> Table:
    """A row per seed and one over all, in percentage points."""
    plain, ghost = accuracies["plain"], accuracies["ghost"]
    rows: list[list[Cell]] = []
    for seed, (first, second) in enumerate(zip(plain, ghost, strict=True)):
        over_episodes = equivalence(second - first, MARGIN).difference
        rows.append([str(seed), 100 * first.mean(), 100 * second.mean(), _points(over_episodes), "episodes"])
    if len(plain) > 2:
        over_trainings = repeated_interval((ghost - plain).mean(1), 0.95)
        rows.append(["all", 100 * plain.mean(), 100 * ghost.mean(), _points(over_trainings), "trainings"])
    title = (
        f"Validation accuracy of trainings with ghost and with plain batch norm, {plain.shape[1]:,} episodes"
    )
    columns = ("seed", "plain, %", "ghost, %", "ghost minus plain, points (95%)", "interval over")
    return Table(title, columns, rows)


def _points(interval: Interval) -> Interval:
    return Interval(*(100 * each for each in (interval.value, interval.low, interval.high)))
