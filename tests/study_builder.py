"""A small study whose every answer is known: synthetic records, shaped like those of a machine with 2 cores.

Round r of any timing is slowed as `slow_rounds` says: all settings of a round alike, as on a real machine,
plus a little noise of their own where `own` is above 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from zlib import crc32

import numpy as np
import numpy.typing as npt
from tiny_data import project_tree

from parashot.params import ClaimsParams, Params
from parashot.parsing import parse
from parashot.questions.accuracy.records import EvaluateResult, Evaluation, Training
from parashot.questions.batchsz.records import (
    BatchszBlock,
    BatchszResults,
    BatchszRun,
    BatchszTraining,
    GradientSample,
)
from parashot.questions.gain.records import GainResults
from parashot.questions.loader.records import LoaderBlock, LoaderResults
from parashot.questions.results import StudyResults
from parashot.questions.step.records import TuneBlock, TuneResults
from parashot.questions.strategies.records import (
    CostMessage,
    CostStep,
    StepEquality,
    StepShares,
    StepTrace,
    StrategyBlock,
    StrategyResults,
    StrategyVariant,
)
from parashot.questions.ways.records import EpisodeWay, WayBlock
from parashot.recipes import DEFAULT, load_recipe
from parashot.records import Hardware
from parashot.train.records import (
    Choices,
    EpisodeAccuracy,
    HistoryRow,
    SeedAccuracy,
    TaskAccuracy,
    TrainResult,
)

ROUNDS = 9
MIB = 2**20
HARDWARE = Hardware("Test CPU @ 2.00GHz <fast>", 2, 2, 8, (), "Linux-x86_64", "3.11.9", "2.15.0", None)
STEPS = {"serial": 0.40, "serial-all-cores": 0.22, "dp": 0.205, "ddp": 0.19}
WAYS = {("split", "fp32"): 0.3, ("concat", "fp32"): 0.4, ("split", "bf16"): 0.15, ("concat", "bf16"): 0.2}
LOADER = {
    "jpeg": {0: 0.20, 1: 0.22, 2: 0.11, 4: 0.125, 7: 0.16},
    "packed": {0: 0.004, 1: 0.006, 2: 0.005, 4: 0.006, 7: 0.008},
}
LOADING = {
    ("jpeg", 0): 0.25,
    ("jpeg", 2): 0.22,
    ("packed", 0): 0.192,
    ("packed", 2): 0.205,
    ("resident", 0): 0.191,
}
"""Seconds of a training step with its loading."""

WAYS_TO_TRAIN = {"default": 0.76, "advised": 0.19}
"""Seconds per step, loading included."""

REACHED = {2: 0.36, 30: 0.42, 60: 0.39}
"""Validation accuracy in the same time, by size."""

SIZES = {2: 0.050, 30: 0.0125, 60: 0.0105}

FIXED, PER_EPISODE, CONTENTION = 0.004, 0.02475, 1.05
"""Seconds of one replica's step, and how many times as long beside another one."""

HOP_SECONDS, BYTES_PER_SECOND = 50e-6, 1e9
"""Of the link between two replicas."""

SHARES = {"serial": (0.0, 0.0, 0.1), "dp": (0.2, 0.0, 0.2), "ddp": (0.05, 0.15, 0.02)}
"""Exposed and hidden communication and idle time, by variant."""


@cache
def params() -> Params:
    """The default study's, whatever recipe was run here, with what these records rely on held fast."""
    defaults = parse(Params, project_tree(load_recipe(DEFAULT).settings))
    return replace(
        defaults,
        train=replace(defaults.train, episodes=1600, batchsz=16, batch_per="global"),
        parallel=replace(defaults.parallel, device="auto"),
        batchsz_study=replace(defaults.batchsz_study, sizes=(2, 30, 60), baseline=30, episodes=300),
        claims=ClaimsParams(accuracy_margin=0.02, time_margin=0.05, confidence=0.95),
    )


# --- timings ----------------------------------------------------------------------------------------------


def slow_rounds() -> npt.NDArray[np.float64]:
    """Factor by which each round slows everything that runs in it."""
    return np.asarray(1 + 0.08 * np.abs(np.sin(np.arange(ROUNDS) * 1.7)))


def own_noise(key: str, own: float = 0.01) -> npt.NDArray[np.float64]:
    """Noise that belongs to one setting; the same in every call."""
    return 1 + own * np.random.default_rng(crc32(key.encode())).standard_normal(ROUNDS)


def timed(seconds: float, key: str, own: float = 0.01) -> list[tuple[int, float]]:
    """Every round with its time of one setting."""
    return list(enumerate((seconds * slow_rounds() * own_noise(key, own)).tolist()))


def tune_results(steps: Mapping[tuple[str, str], float] = WAYS, own: float = 0.01) -> TuneResults:
    """Blocks of a step by pairing and precision; split in bf16 is chosen."""
    blocks = [
        TuneBlock(number % 2, number, pairing, precision, "none", each)
        for (pairing, precision), seconds in steps.items()
        for number, each in timed(seconds, pairing + precision, own)
    ]
    return TuneResults(Choices("split", "bf16", "none"), tuple(blocks))


def loader_results(
    seconds: Mapping[str, Mapping[int, float]] = LOADER,
    *,
    memory_per_worker: float = 60 * MIB,
    own: float = 0.01,
    loading: Mapping[tuple[str, int], float] = LOADING,
) -> LoaderResults:
    """Blocks of `seconds` per batch by backend and workers; 24 batches of 30 episodes each.

    loading: seconds of a training step with each; 4 steps per block.
    """
    blocks = []
    for backend, settings in seconds.items():
        for workers, per_batch in settings.items():
            memory = (20 * MIB + memory_per_worker * workers) * own_noise(f"m{backend}{workers}")
            first = 0.03 + 0.4 * min(workers, 1)
            blocks += [
                LoaderBlock(number, backend, workers, 30, 24, 24 * each, first, int(memory[number]))
                for number, each in timed(per_batch, f"{backend}{workers}", own)
            ]
    ways = [
        EpisodeWay(f"{backend}-{workers}", "ddp", 2, 1, 16, workers, "bf16", "none", backend, "split")
        for backend, workers in loading
    ]
    training = [
        block
        for way, step in zip(ways, loading.values(), strict=True)
        for block in way_blocks(way, step, own)
    ]
    return LoaderResults(tuple(blocks), tuple(ways), tuple(training))


def way_blocks(way: EpisodeWay, step: float, own: float = 0.01) -> list[WayBlock]:
    """Blocks of 4 steps, a 40th of their time without a batch."""
    return [
        WayBlock(number, number, way.way, 4, 4 * each, each / 10, 20 * MIB * (1 + way.workers))
        for number, each in timed(step, f"w{way}", own)
    ]


def gain_results(seconds: Mapping[str, float] = WAYS_TO_TRAIN) -> GainResults:
    """By default and as advised."""
    ways = (
        EpisodeWay("default", "serial", 1, 2, 16, 0, "fp32", "none", "jpeg", "concat"),
        EpisodeWay("advised", "ddp", 2, 1, 16, 0, "bf16", "none", "packed", "split"),
    )
    blocks = [block for way in ways for block in way_blocks(way, seconds[way.way])]
    return GainResults(ways, tuple(blocks))


def strategy_results(
    steps: Mapping[str, float] = STEPS,
    *,
    skipped: Mapping[str, str] | None = None,
    replicas: int = 2,
    own: float = 0.01,
    gradient_difference: float = 0.1,
) -> StrategyResults:
    """Blocks of 4 steps of batchsz 16; `skipped` maps a variant to its reason."""
    skipped = skipped or {}
    ran = [name for name in steps if name not in skipped]
    blocks = [
        StrategyBlock(number, number, name, 4, 4 * each)
        for name in ran
        for number, each in timed(steps[name], name, own)
    ]
    anatomy = [
        StepTrace("serial", 1, 1, all_reduces=0, bytes_sent=0, gradient_bytes=460_000),
        StepTrace("dp", 1, replicas, all_reduces=0, bytes_sent=1_380_000, gradient_bytes=460_000),
        StepTrace("ddp", replicas, replicas, all_reduces=3, bytes_sent=460_000, gradient_bytes=460_000),
    ]
    seen = tuple(each for each in anatomy if each.variant in ran)
    shares = [
        StepShares(each.variant, rank, step, 0.2, *SHARES[each.variant])
        for each in seen
        for rank in range(each.processes)
        for step in range(3)
    ]
    return StrategyResults(
        tuple(_variant(name, replicas, skipped.get(name, "")) for name in {**steps, **skipped}),
        tuple(blocks),
        seen,
        tuple(shares),
        cost_steps(own=own) if seen else (),
        cost_messages(own=own) if seen else (),
        tuple(StepEquality(each.variant, gradient_difference) for each in seen),
    )


def _variant(name: str, replicas: int, reason: str) -> StrategyVariant:
    strategy = "serial" if name.startswith("serial") else name
    replicas, threads = 1 if strategy == "serial" else replicas, 2 if name == "serial-all-cores" else 1
    return StrategyVariant(name, strategy, "skipped" if reason else "ok", reason, replicas, threads, 16)


def cost_steps(
    sizes: Sequence[int] = (2, 4, 8, 16), busy: Sequence[int] = (1, 2), own: float = 0.01
) -> tuple[CostStep, ...]:
    """Blocks of 3 steps of one replica, alone and beside another one."""
    return tuple(
        CostStep(number, count, size, 3, 3 * (CONTENTION if count > 1 else 1) * each)
        for count in busy
        for size in sizes
        for number, each in timed(FIXED + PER_EPISODE * size, f"{count}{size}", own)
    )


def cost_messages(own: float = 0.01) -> tuple[CostMessage, ...]:
    """Blocks of 5 all-reduces of two ranks, a ring of two hops."""
    return tuple(
        CostMessage(number, 2, size, 5, 5 * 2 * each)
        for size in (2**12, 2**16, 2**20, 2**24)
        for number, each in timed(HOP_SECONDS + size / 2 / BYTES_PER_SECOND, f"m{size}", own)
    )


def batchsz_results(
    per_episode: Mapping[int, float] | None = None,
    *,
    stopped: Sequence[int] = (2,),
    share: float | Mapping[int, float] = 0.2,
    reached: Mapping[int, float] = REACHED,
    in_fp32: Sequence[float] = (0.001, 0.0, -0.001, 0.002, -0.002),
) -> BatchszResults:
    """Runs of 600 episodes and blocks of 60, at `per_episode` seconds; without the exchange `share` less.

    Trainings with 5 seeds have accuracies around `reached`; what a seed does to all sizes is 0.01, and a
    tenth of that to one. in_fp32: what the baseline's gain, by seed.
    """
    per_episode = per_episode or SIZES
    limit = 600 * per_episode[30]
    runs, blocks = [], []
    for size, seconds in per_episode.items():
        whole = 600 * seconds
        own_limit = None if size == 30 else limit
        ended = BatchszRun(size, "ok", "", 2, whole, own_limit, 600, 600, whole, 0.4, 0.01)
        if size in stopped:
            done, reason = int(600 * limit / whole), "it reached the time of batchsz 30"
            ended = replace(
                ended, status="stopped", reason=reason, seconds=limit, episodes=done, val_accuracy=0.3
            )
        runs.append(ended)
        part = share if isinstance(share, float) else share[size]
        for synchronised, seconds_left in ((True, seconds), (False, seconds * (1 - part))):
            blocks += [
                BatchszBlock(number, size, synchronised, 60, -(-60 // size), each)
                for number, each in timed(60 * seconds_left, f"{size}{synchronised}")
            ]
    luck = 0.01 * np.random.default_rng(13).standard_normal((1 + len(reached), 5))
    trainings = [
        BatchszTraining(
            size, seed, 2.0, 480 // size, 480, 0.003, float(accuracy + luck[0, seed] + own_luck[seed] / 10)
        )
        for (size, accuracy), own_luck in zip(reached.items(), luck[1:], strict=True)
        for seed in range(5)
    ]
    pairs = zip(in_fp32, (each for each in trainings if each.batchsz == 30), strict=False)
    full = [replace(each, val_accuracy=each.val_accuracy + gain) for gain, each in pairs]
    return BatchszResults(tuple(runs), tuple(blocks), tuple(trainings), tuple(full), gradients())


def skipped_batchsz() -> BatchszResults:
    """The same where no size could run."""
    whole = batchsz_results()
    skipped = (replace(run, status="skipped", reason="ddp is off") for run in whole.runs)
    return replace(whole, runs=tuple(skipped), blocks=())


def gradients(count: int = 40) -> tuple[GradientSample, ...]:
    """Gradients of 400 numbers whose mean has length 1, with as much noise as makes a noise scale of 12."""
    draws = np.random.default_rng(17).standard_normal((count, 400)) * (12 / 400) ** 0.5
    draws[:, 0] += 1
    mean = draws.mean(0)
    return tuple(
        GradientSample(number, float(each @ each), float(each @ mean)) for number, each in enumerate(draws)
    )


# --- trainings --------------------------------------------------------------------------------------------


def training(
    strategy: str, *, shift: npt.ArrayLike = 0.0, seconds: float = 21.0, **changes: object
) -> Training:
    """One finished training. Episode accuracies are the same for all strategies, plus `shift` per episode."""
    base = np.random.default_rng(7).normal(0.45, 0.1, 600).round(3)
    accuracies = base + np.asarray(shift)
    replicas = 1 if strategy == "serial" else 2
    result = TrainResult(
        strategy=strategy,
        status="ok",
        reason="",
        device="cpu",
        how=f"{replicas} replicas of {strategy} (CPU)",
        replicas=replicas,
        threads_per_replica=1,
        batchsz=16,
        batch_per="global",
        steps=100,
        items=1600,
        seconds=seconds,
        seconds_per_step=seconds / 100,
        data_share=0.02,
        val_accuracy=float(accuracies.mean()),
        val_accuracy_ci95=1.96 * float(accuracies.std(ddof=1)) / 600**0.5,
        val_episodes=600,
        peak_memory_bytes=400 * MIB * replicas,
        ranks_identical=True if strategy == "ddp" else None,
        parameters=115_000,
    )
    history = []
    for step in range(1, 101):
        times = (seconds * step / 100, seconds / 100, 0.001)
        loss, accuracy = 1.6 - 0.004 * step + 0.02 * float(np.sin(step)), 0.2 + 0.0025 * step
        tried = (accuracy, 0.018) if step % 25 == 0 else (None, None)
        history.append(HistoryRow(step, 16 * step, *times, loss, accuracy, *tried))
    return Training(replace(result, **changes), tuple(history), by_episode(accuracies))  # type: ignore[arg-type]


def with_seeds(whole: Training, gains: Sequence[float], episodes: int = 4) -> Training:
    """The same training with several seeds, each so much better in all of its episodes."""
    return replace(
        whole,
        seeds=tuple(
            SeedAccuracy(seed, episode, 0.4 + 0.001 * (episode % 7) + gain)
            for seed, gain in enumerate(gains)
            for episode in range(episodes)
        ),
    )


def by_episode(accuracies: np.ndarray) -> tuple[EpisodeAccuracy, ...]:
    """Rows of the accuracies of episodes."""
    return tuple(EpisodeAccuracy(number, each) for number, each in enumerate(accuracies.tolist()))


def skipped_training(strategy: str, reason: str) -> Training:
    """A training that could not run."""
    return Training(TrainResult(strategy, "skipped", reason))


def pretraining(seconds: float = 30.0) -> Training:
    """Finished pretraining of three epochs of two steps, all as long."""
    reached = {2: 0.4, 4: 0.45, 6: 0.46}
    history = []
    for step in range(1, 7):
        times = (seconds * step / 6, seconds / 6, 0.001)
        tried = (reached.get(step), 0.01 if step in reached else None)
        history.append(HistoryRow(step, 128 * step, *times, 4 - 0.1 * step, 0.1 * step, *tried))
    done = {"device": "cpu", "steps": 6, "items": 768, "seconds": seconds, "train_accuracy": 0.5}
    judged = {"val_accuracy": 0.46, "val_accuracy_ci95": 0.01, "val_episodes": 600}
    return Training(TrainResult("serial", "ok", "", **done, **judged), tuple(history))  # type: ignore[arg-type]


# --- the test split ---------------------------------------------------------------------------------------


def evaluation() -> Evaluation:
    """DDP's model on 1000 test episodes."""
    accuracies = np.random.default_rng(11).normal(0.44, 0.1, 1000).round(3)
    half = 1.96 * float(accuracies.std(ddof=1)) / 1000**0.5
    result = EvaluateResult("ddp", "validation accuracy", 5, 1, 15, 1000, float(accuracies.mean()), half)
    tasks = (task(1, 0.02), task(5, 0.004))
    return Evaluation(result, by_episode(accuracies), tasks)


def task(k_shot: int, margin: float) -> TaskAccuracy:
    """1000 episodes on which the relation head is worth `margin`, give or take 0.01."""
    ours, half = 0.44 + 0.04 * k_shot, 0.006
    others = (ours - margin, half, ours - 0.1, half, margin, 0.01)
    return TaskAccuracy(5, k_shot, 15, 1000, ours, half, *others, 100, ours + 0.03, 0.02)


def study(**parts: object) -> StudyResults:
    """The whole study; a part can be replaced by keyword."""
    wiggle = 0.004 * np.random.default_rng(3).standard_normal(600)
    whole = StudyResults(
        hardware=HARDWARE,
        tune=tune_results(),
        loader=loader_results(),
        strategies=strategy_results(),
        gain=gain_results(),
        pretraining=skipped_training("serial", "pretrain.epochs is 0"),
        training={
            "serial": training("serial", seconds=41.0),
            "dp": training("dp", shift=wiggle, seconds=21.5),
            "ddp": training("ddp", shift=-wiggle, seconds=20.1),
        },
        batchsz=batchsz_results(),
        warmup=(),
        evaluate=evaluation(),
    )
    return replace(whole, **parts)  # type: ignore[arg-type]
