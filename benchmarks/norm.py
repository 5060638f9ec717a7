"""Ghost batch norm, of one episode at a time, against PyTorch's: time of a step, and accuracy after training.

Trainings are as in the default study, but twice as long, over five seeds; on photographs as in the recipe
miniimagenet, one pair (the last table: from random weights), with an interval over episodes.

Steps of both are timed in turn, on all cores or one GPU; a step may take 1.05 times as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.checkout import scratch_folder
from benchmarks.outcome import Cell, Outcome, Table, median_of, ratio_of, verdict
from benchmarks.step import SMALL, compare
from benchmarks.workload import Settings, Workload, device, params_with
from parashot.errors import DataError
from parashot.hardware import usable_cores
from parashot.parallel.abilities import precisions
from parashot.params import Params
from parashot.questions.statistics import mean_interval, repeated_interval
from parashot.recipes import load_recipe
from parashot.records import read_rows
from parashot.train.job import episode_job
from parashot.train.records import EpisodeAccuracy
from parashot.train.run import train

PACKED, EMBEDDING = Path("data/packed"), Path("results/embedding.safetensors")

WAYS: Mapping[str, Settings] = {"plain": {"model.norm_episodes": 0}, "ghost": {"model.norm_episodes": 1}}
MOST = 1.05
"""Times that a step with ghost batch norm may take of a plain one."""

WORKLOADS = (
    Workload("conv4", 32, 3, 8),  # a little larger than the default study's
    Workload("conv4", 84, 15, 4),
    Workload("bottleneck", 84, 1, 4),
    Workload("resnet12", 84, 1, 2),
)
BLOCKS = 11
EPISODES = 2000
SEEDS = {"quick": (0, 1, 2, 3, 4), "miniimagenet": (0,)}
"""By recipe."""

_COMMON: Settings = {
    "evaluate.val_episodes": EPISODES,
    "train.compile": "none",
    "parallel.device": "cpu",
    "parallel.replicas": usable_cores(),  # so that a replica has one thread
    "loader.workers": 0,
}
_QUICK: Settings = {"train.episodes": 16, "train.val_episodes": 20, "evaluate.val_episodes": 50}

Accuracies = npt.NDArray[np.float64]
"""Of validation episodes [seeds, episodes]."""


def run(quick: bool) -> Outcome:
    """Train, then time steps; `quick`: small shapes, few blocks, a few steps of each seed."""
    synthetic = params_with({}).data.source == "synthetic"
    recipe = "quick" if synthetic else "miniimagenet"
    plain, ghost = train_ways(recipe, PACKED, EMBEDDING, quick)
    workloads = (SMALL,) if quick else WORKLOADS if synthetic else ()
    times = {each: _step_seconds(each, 2 if quick else BLOCKS) for each in workloads}
    steps = [_steps_table(times)] if times else []
    return Outcome(
        "norm",
        [*steps, _accuracy_table(plain, ghost)],
        raw={
            "seconds": {each.name: ways for each, ways in times.items()},
            "val_accuracies": {"plain": plain.mean(1).tolist(), "ghost": ghost.mean(1).tolist()},
        },
        settings={
            "recipe": recipe,
            "seeds": list(SEEDS[recipe]),
            "blocks": BLOCKS,
            "short": [str(row[0]) for table in steps for row in table.rows if row[-1] != "holds"],
        },
    )


def train_ways(recipe: str, packed: Path, embedding: Path, quick: bool) -> list[Accuracies]:
    """Train each way as `recipe` says with every seed, two trainings at a time, and return its accuracies.

    Each training has a process of its own, and begins with the weights of `embedding`. Raises `DataError`
    where there are no packed images, or no embedding.
    """
    if not (packed / "manifest.json").is_file() or not embedding.is_file():
        raise DataError(
            f"{packed}, {embedding}: no packed images or no pretrained embedding; "
            f"run `dvc exp run $(parashot recipe {recipe}) pretrain` first"
        )
    seeds, settings = SEEDS[recipe], {**load_recipe(recipe).settings, **_COMMON}
    if recipe == "quick":
        settings["train.episodes"] = 2 * params_with(settings).train.episodes
    if quick:
        settings |= _QUICK
    trainings = [params_with({**settings, **way, "seed": seed}) for way in WAYS.values() for seed in seeds]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        train_one = partial(val_accuracies, packed=packed, embedding=embedding)
        found = np.array(list(pool.map(train_one, trainings)))
    return [*found.reshape(len(WAYS), len(seeds), -1)]


def val_accuracies(params: Params, packed: Path, embedding: Path | None = None) -> list[float]:
    """Accuracy of each validation episode after one training; runs in a process of its own."""
    with scratch_folder() as folder:
        train(episode_job("serial", params, packed, folder / "serial", pretrained=embedding))
        return [each.accuracy for each in read_rows(EpisodeAccuracy, folder / "serial" / "val_episodes.csv")]


def _step_seconds(workload: Workload, blocks: int) -> Mapping[str, Sequence[float]]:
    """Seconds of a step of each way, item i of both of round i, in bf16 where the device has it."""
    best = precisions(device().type)[-1]
    plain, ghost = compare(workload, (best, f"{best}, ghost norm"), blocks).seconds.values()
    return {"plain": plain, "ghost": ghost}


def _steps_table(times: Mapping[Workload, Mapping[str, Sequence[float]]]) -> Table:
    rows: list[list[Cell]] = []
    for workload, ways in times.items():
        ratio = ratio_of(ways["ghost"], ways["plain"])
        seconds = median_of(ways["plain"]), median_of(ways["ghost"])
        rows.append([workload.name, *seconds, ratio, MOST, verdict(ratio, MOST, least=False)])
    title = f"A step with ghost batch norm, in {precisions(device().type)[-1]}"
    return Table(title, ("step", "plain (s)", "ghost (s)", "ghost over plain", "at most", "verdict"), rows)


def _accuracy_table(plain: Accuracies, ghost: Accuracies) -> Table:
    """A row per seed and one over all, in percentage points."""
    plain, ghost = 100 * plain, 100 * ghost
    rows: list[list[Cell]] = []
    for seed, (first, second) in enumerate(zip(plain, ghost, strict=True)):
        over_episodes = mean_interval(second - first, 0.95)
        rows.append([str(seed), float(first.mean()), float(second.mean()), over_episodes, "episodes"])
    if len(plain) > 2:
        over_trainings = repeated_interval((ghost - plain).mean(1), 0.95)
        rows.append(["all", float(plain.mean()), float(ghost.mean()), over_trainings, "trainings"])
    title = (
        f"Validation accuracy of trainings with ghost and with plain batch norm, {plain.shape[1]:,} episodes"
    )
    columns = ("seed", "plain, %", "ghost, %", "ghost minus plain, points (95%)", "interval over")
    return Table(title, columns, rows)
