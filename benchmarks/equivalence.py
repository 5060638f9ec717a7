"""Accuracy of the fast way to compute against the plain way: the same training, tested for equivalence.

Reads the packed images of this checkout (`data/packed`), which the recipe miniimagenet makes:
`dvc exp run $(parashot recipe miniimagenet) pack`. Each way trains as that recipe says, on the same episodes
from the same first weights, in a process with one thread; then both are measured on the same validation
episodes. bf16 rounds otherwise than fp32, so the two networks part as two seeds would: the question is
whether the fast one ends worse by more than the margin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.checkout import scratch_folder
from benchmarks.outcome import Cell, Outcome, Table
from benchmarks.workload import Settings, params_with
from parashot.errors import DataError
from parashot.hardware import usable_cores
from parashot.params import Params
from parashot.questions.statistics import equivalence
from parashot.recipes import load_recipe
from parashot.records import read_rows
from parashot.train.job import episode_job
from parashot.train.records import EpisodeAccuracy
from parashot.train.run import train

RECIPE = "miniimagenet"
PACKED = Path("data/packed")
MARGIN = 0.01
EPISODES = 3000
SEEDS = (0, 1)

WAYS: Mapping[str, Settings] = {
    "fp32, concat": {"train.precision": "fp32", "model.pairing": "concat"},
    "bf16, split": {"train.precision": "bf16", "model.pairing": "split"},
}
"""The plain way and the fast one."""

_COMMON: Settings = {
    "train.compile": "none",
    "parallel.device": "cpu",
    "parallel.replicas": usable_cores(),  # so that a replica has one thread
    "loader.workers": 0,
}
_QUICK: Settings = {"train.episodes": 16, "train.val_episodes": 20, "evaluate.val_episodes": 50}

Accuracies = npt.NDArray[np.float64]
"""Of validation episodes [seeds, episodes]."""


def run(quick: bool, packed: Path = PACKED) -> Outcome:
    """Train both ways with every seed and test the paired difference; `quick`: a few steps of one seed."""
    seeds = SEEDS[:1] if quick else SEEDS
    own: Settings = {"evaluate.val_episodes": EPISODES}
    (plain, fast), params = train_ways(WAYS, RECIPE, own, seeds, packed, quick)
    return Outcome(
        "equivalence",
        [_table(seeds, plain, fast, params)],
        raw={
            "val_accuracy_plain": plain.mean(1).tolist(),
            "val_accuracy_fast": fast.mean(1).tolist(),
            "differences": (fast - plain).mean(0).round(6).tolist(),
        },
        settings={
            "recipe": RECIPE,
            "train_episodes": params.train.episodes,
            "val_episodes": plain.shape[1],
            "margin": MARGIN,
            "seeds": list(seeds),
        },
    )


def _table(seeds: Sequence[int], plain: Accuracies, fast: Accuracies, params: Params) -> Table:
    """A row per seed and one over all, in percentage points."""
    rows: list[list[Cell]] = []
    names = [*map(str, seeds), "all"]
    pairs = [*zip(plain, fast, strict=True), (plain.mean(0), fast.mean(0))]
    for name, (first, second) in zip(names, pairs, strict=True):
        test = equivalence(100 * (second - first), 100 * MARGIN, params.claims.confidence)
        means = (100 * float(each.mean()) for each in (first, second))
        rows.append([name, *means, test.difference, test.verdict])
    plain_way, fast_way = WAYS
    title = (
        f"{fast_way} against {plain_way}: validation accuracy after the same {params.train.episodes:,} "
        f"episodes, {plain.shape[1]:,} paired episodes, margin {100 * MARGIN:g} point"
    )
    return Table(title, ("seed", "plain, %", "fast, %", "difference, points (95%)", "verdict"), rows)


def train_ways(
    ways: Mapping[str, Settings], recipe: str, own: Settings, seeds: Sequence[int], packed: Path, quick: bool
) -> tuple[list[Accuracies], Params]:
    """Train each way as `recipe` says, but with `own` settings, with every seed: two trainings at a time.

    Each has a process of its own. Returns the accuracies of each way and the params of the first training.
    Raises `DataError` without packed images.
    """
    if not (packed / "manifest.json").is_file():
        raise DataError(
            f"{packed}: no packed images; run `dvc exp run $(parashot recipe {recipe}) pack` first"
        )
    settings = {**load_recipe(recipe).settings, **_COMMON, **own, **(_QUICK if quick else {})}
    trainings = [params_with({**settings, **way, "seed": seed}) for way in ways.values() for seed in seeds]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        found = np.array(list(pool.map(val_accuracies, trainings, [packed] * len(trainings))))
    return [*found.reshape(len(ways), len(seeds), -1)], trainings[0]


def val_accuracies(params: Params, packed: Path) -> list[float]:
    """Accuracy of each validation episode after one training; runs in a process of its own."""
    with scratch_folder() as folder:
        train(episode_job("serial", params, packed, folder / "serial"))
        return [each.accuracy for each in read_rows(EpisodeAccuracy, folder / "serial" / "val_episodes.csv")]
