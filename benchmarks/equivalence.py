"""Is accuracy paid for speed? The fast way and the plain way, the same training, tested for equivalence.

Reads the packed images of this checkout (`data/packed`), which the recipe miniimagenet makes:
`dvc exp run $(parashot recipe miniimagenet) pack`. Each way trains as that recipe says, on the same episodes
from the same first weights, in a process with one thread; then both are measured on the same validation
episodes. bf16 rounds otherwise than fp32, so the two networks part as two seeds would: the question is
whether the fast one ends worse by more than the margin.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt
from parashot.data.batches import Batch, Plan

from benchmarks.outcome import Outcome, Table
from parashot.data.episodes import EpisodeSpec, draw_rows
from parashot.data.loaders import episode_loader
from parashot.data.packed import PackedSplit
from parashot.data.pixels import prepare
from parashot.errors import DataError
from parashot.params import Params
from parashot.parsing import parse, read_yaml
from parashot.questions.statistics import Interval, equivalence
from parashot.recipes import apply, load_recipe
from parashot.train.records import Choices

RECIPE = "miniimagenet"
PACKED = Path("data/packed")
MARGIN = 0.01
EPISODES = 3000
SEEDS = (0, 1)
_NOTE_EVERY = 100  # steps


@dataclass(frozen=True)
class Way:
    """How a training computes; `nchw`: images and weights in torch's usual memory order."""

    name: str
    choices: Choices
    nchw: bool


PLAIN = Way("fp32, concat, NCHW", Choices("concat", "fp32", "none"), nchw=True)
FAST = Way("bf16, split, channels_last", Choices("split", "bf16", "none"), nchw=False)


def run(quick: bool) -> Outcome:
    """Train both ways with every seed and test the paired difference."""
    if not (PACKED / "manifest.json").is_file():
        raise DataError(
            f"{PACKED}: no packed images; run `dvc exp run $(parashot recipe {RECIPE}) pack` first"
        )
    params = _recipe_params()
    seeds: tuple[int, ...] = SEEDS
    episodes = EPISODES
    if quick:
        seeds, episodes = seeds[:1], 50
        params = replace(params, train=replace(params.train, episodes=5 * params.train.batchsz))
    jobs = [(way, replace(params, seed=seed), episodes) for way in (PLAIN, FAST) for seed in seeds]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        accuracies = list(pool.map(_accuracies, *zip(*jobs, strict=True)))
    plain, fast = np.array(accuracies[: len(seeds)]), np.array(accuracies[len(seeds) :])
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
            "val_episodes": episodes,
            "margin": MARGIN,
            "seeds": list(seeds),
        },
    )


def _table(
    seeds: tuple[int, ...],
    plain: npt.NDArray[np.float64],
    fast: npt.NDArray[np.float64],
    params: Params,
) -> Table:
    """A row per seed and one over all; accuracies and differences in percentage points."""
    rows: list[list[str | int | float | Interval]] = []
    for name, first, second in (
        *((str(seed), plain[index], fast[index]) for index, seed in enumerate(seeds)),
        ("all", plain.mean(0), fast.mean(0)),
    ):
        test = equivalence(second - first, MARGIN, params.claims.confidence)
        difference = test.difference
        points = Interval(100 * difference.value, 100 * difference.low, 100 * difference.high)
        rows.append([name, 100 * float(first.mean()), 100 * float(second.mean()), points, test.verdict])
    title = (
        f"{FAST.name} against {PLAIN.name}: validation accuracy after the same {params.train.episodes:,} "
        f"episodes, {plain.shape[1]:,} paired episodes, margin {100 * MARGIN:g} point"
    )
    columns = ["seed", "plain, %", "fast, %", "difference, points (95%)", "verdict"]
    return Table(title, columns, rows)


def _recipe_params() -> Params:
    tree = read_yaml(Path(__file__).resolve().parents[1] / "params.yaml")
    assert isinstance(tree, dict)
    return parse(Params, apply(tree, load_recipe(RECIPE).settings))


def _accuracies(way: Way, params: Params, episodes: int) -> npt.NDArray[np.float64]:
    """Accuracy of each validation episode after one training; runs in a process of its own."""
    import torch
    from parashot.parallel.allocator import LARGEST_BLOCK_OF_FRUGAL, keep_freed_memory
    from parashot.train.assemble import new_strategy, training_episodes
    from parashot.train.evaluate import EpisodeSet, episode_accuracies
    from parashot.train.objective import learning_rates

    from parashot.parallel.context import Placement, process_context
    from parashot.train.choices import computed_as

    params = computed_as(params, way.choices)
    plan = Plan(params.train.episodes, params.train.batchsz)
    with process_context(Placement("cpu", 1, 1, 1)) as context:
        keep_freed_memory(LARGEST_BLOCK_OF_FRUGAL)  # nothing is timed, and two trainings share the memory
        strategy = new_strategy("serial", params, context)
        network = strategy.whole_network()
        if way.nchw:
            network.to(memory_format=torch.contiguous_format)
        network.train()
        rates = learning_rates(params, plan.steps, plan.batchsz)
        batches = episode_loader(training_episodes(params, PACKED, plan), 0, 2, context.device)
        for step, batch in enumerate(batches):
            strategy.set_learning_rate(rates(step))
            strategy.step(_in_nchw(batch, params) if way.nchw else batch)
            if step % _NOTE_EVERY == 0:
                print(f"  {way.name}, seed {params.seed}: step {step} of {plan.steps}", file=sys.stderr)
        network.pairing = "split"  # the same function, in a fraction of the time
        split = PackedSplit(PACKED, "val")
        spec = EpisodeSpec(params.episode.n_way, params.episode.k_shot, params.evaluate.k_query)
        rows = draw_rows(0, "val", np.arange(episodes), split.class_sizes, spec)
        accuracies = episode_accuracies(network, EpisodeSet(split, spec, rows))
        print(f"  {way.name}, seed {params.seed}: {accuracies.mean():.2%}", file=sys.stderr)
        return accuracies


def _in_nchw(batch: Batch, params: Params) -> Batch:
    """The batch as normalised floats in torch's usual order; the step passes floats through."""
    support, query = (prepare(each, params.model.image_size).contiguous() for each in batch.tensors[:2])
    return batch.with_tensors(support, query, batch.episodes)
