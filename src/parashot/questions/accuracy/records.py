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


@record
class Confusion:
    """Test queries of class `actual` in the episodes that offered class `taken_for`; the two may be one."""

    actual: str
    taken_for: str
    offered: int  # queries that might have been taken for it
    taken: int  # queries that were


@record
class ShownScore:
    """One score of an episode that is shown: a query's relation with one of the classes on offer.

    Positions count from 0 within the episode. The images are tiles of episode_NUMBER.png: a row per class,
    its support images and then the shown queries.
    """

    episode: int
    n_way: int
    k_shot: int
    actual: int  # position of the query's own class
    query: int  # position among that class's shown queries
    offered: int  # position of the class it is compared with
    score: float  # relation score, 0 to 1


@dataclass(frozen=True)
class Training:
    """`results/train/NAME` or `results/pretrain`; a skipped one has neither history nor episodes."""

    result: TrainResult
    history: tuple[HistoryRow, ...] = ()
    val_episodes: tuple[EpisodeAccuracy, ...] = ()
    seeds: tuple[SeedAccuracy, ...] = ()  # with further seeds, those of all; else none


@dataclass(frozen=True)
class WarmupResults:
    """`results/warmup`; no runs where the study is switched off."""

    runs: tuple[WarmupRun, ...]


@dataclass(frozen=True)
class ShownEpisode:
    """An episode to look at: the scores of its queries, and its images as tiles of one PNG."""

    scores: tuple[ShownScore, ...]
    images: bytes


@dataclass(frozen=True)
class Evaluation:
    """`results/evaluate`."""

    result: EvaluateResult
    test_episodes: tuple[EpisodeAccuracy, ...]
    confusion: tuple[Confusion, ...] = ()
    shown: tuple[ShownEpisode, ...] = ()
    tasks: tuple[TaskAccuracy, ...] = ()
