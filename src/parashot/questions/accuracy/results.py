"""Trainings and the evaluation, as their stages left them in results/pretrain, results/train and others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parashot.errors import RecordError
from parashot.questions.accuracy.records import Confusion, EvaluateResult, ShownScore, WarmupRun
from parashot.records import read_result, read_rows
from parashot.train.records import (
    EpisodeAccuracy,
    HistoryRow,
    PretrainResult,
    PretrainRow,
    SeedAccuracy,
    TaskAccuracy,
    TrainResult,
)


@dataclass(frozen=True)
class Pretraining:
    """`results/pretrain`; no history where there was none."""

    result: PretrainResult
    history: tuple[PretrainRow, ...] = ()


@dataclass(frozen=True)
class Training:
    """`results/train/NAME`; a skipped training has neither history nor episodes."""

    result: TrainResult
    history: tuple[HistoryRow, ...] = ()
    val_episodes: tuple[EpisodeAccuracy, ...] = ()
    seeds: tuple[SeedAccuracy, ...] = ()
    """With further seeds, those of all seeds; else none."""


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


def load_pretraining(folder: Path) -> Pretraining:
    """Read `results/pretrain`. Raises `RecordError`, as all of these do."""
    rows = read_rows(PretrainRow, folder / "history.csv")
    return Pretraining(read_result(PretrainResult, folder / "result.json"), tuple(rows))


def load_training(folder: Path) -> Training:
    """Read `results/train/NAME`."""
    result, seeds = read_result(TrainResult, folder / "result.json"), folder / "seeds.csv"
    if result.status == "skipped":
        return Training(result)
    return Training(
        result,
        tuple(read_rows(HistoryRow, folder / "history.csv")),
        tuple(read_rows(EpisodeAccuracy, folder / "val_episodes.csv")),
        tuple(read_rows(SeedAccuracy, seeds)) if seeds.exists() else (),
    )


def load_warmup(folder: Path) -> tuple[WarmupRun, ...]:
    """Read `results/warmup`; no runs where the study is switched off."""
    return tuple(read_rows(WarmupRun, folder / "runs.csv"))


def load_evaluation(folder: Path) -> Evaluation:
    """Read `results/evaluate`."""
    scores = read_rows(ShownScore, folder / "shown.csv")
    shown = (
        ShownEpisode(tuple(each for each in scores if each.episode == number), _picture(folder, number))
        for number in sorted({each.episode for each in scores})
    )
    return Evaluation(
        read_result(EvaluateResult, folder / "result.json"),
        tuple(read_rows(EpisodeAccuracy, folder / "test_episodes.csv")),
        tuple(read_rows(Confusion, folder / "confusion.csv")),
        tuple(shown),
        tuple(read_rows(TaskAccuracy, folder / "tasks.csv")),
    )


def _picture(folder: Path, episode: int) -> bytes:
    path = folder / f"episode_{episode}.png"
    try:
        return path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: missing; run `dvc repro -f -s evaluate` to make it again") from error
