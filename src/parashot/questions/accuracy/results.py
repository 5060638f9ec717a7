"""Results of trainings and of the evaluation: results/pretrain, results/train, results/evaluate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from parashot.errors import RecordError
from parashot.questions.accuracy.records import Confusion, EvaluateResult, ShownScore, WarmupRun
from parashot.questions.folder import read_folder
from parashot.records import read_rows
from parashot.train.records import (
    EpisodeAccuracy,
    HistoryRow,
    SeedAccuracy,
    TaskAccuracy,
    TrainResult,
)


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


def load_evaluation(folder: Path) -> Evaluation:
    """Read `results/evaluate`. Raises `RecordError`."""
    path = folder / "shown.csv"
    scores = read_rows(ShownScore, path) if path.exists() else []
    shown = tuple(
        ShownEpisode(tuple(each for each in scores if each.episode == number), _picture(folder, number))
        for number in sorted({each.episode for each in scores})
    )
    return read_folder(Evaluation, folder, shown=shown)


def _picture(folder: Path, episode: int) -> bytes:
    path = folder / f"episode_{episode}.png"
    try:
        return path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: missing; run `dvc repro -f -s evaluate` to make it again") from error
