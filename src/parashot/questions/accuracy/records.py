"""Records of trainings and of the evaluation: results/pretrain, train, evaluate and warmup."""

from __future__ import annotations

from dataclasses import dataclass

from parashot.records import record
from parashot.train.records import EpisodeAccuracy, HistoryRow, SeedAccuracy, TaskAccuracy, TrainResult


@record
class WarmupRun:
    """A training with or without (0 steps) a warm-up of the learning rate; the rate is the full one."""

    batchsz: int
    seed: int
    warmup_steps: int
    steps: int
    learning_rate: float
    val_accuracy: float


@record
class EvaluateResult:
    """The chosen model on the test split, once."""

    strategy: str  # whose model was chosen
    chosen_by: str  # in words
    n_way: int
    k_shot: int
    k_query: int
    episodes: int
    test_accuracy: float
    test_accuracy_ci95: float  # half width


@dataclass(frozen=True)
class Training:
    """`results/train/NAME` or `results/pretrain`; a skipped one has neither history nor episodes."""

    result: TrainResult
    history: tuple[HistoryRow, ...] = ()
    val_episodes: tuple[EpisodeAccuracy, ...] = ()
    seeds: tuple[SeedAccuracy, ...] = ()  # with further seeds, those of all; else none
    twin: tuple[EpisodeAccuracy, ...] = ()  # of the training that rounding alone sets apart, if it was run


@dataclass(frozen=True)
class WarmupResults:
    """`results/warmup`; no runs where the study is switched off."""

    runs: tuple[WarmupRun, ...]


@dataclass(frozen=True)
class Evaluation:
    """`results/evaluate`."""

    result: EvaluateResult
    test_episodes: tuple[EpisodeAccuracy, ...]
    tasks: tuple[TaskAccuracy, ...] = ()
