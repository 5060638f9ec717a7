"""Everything the stages measured, read once: the input of every finding and of the report.

A part whose files are not there can be left out (`partial`), so that an unfinished study still has a report;
`missing` then says why, in one line that names the file and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from parashot.errors import RecordError
from parashot.questions.accuracy.records import Confusion, EvaluateResult, ShownScore, WarmupRun
from parashot.questions.batchsz.records import BatchszBlock, BatchszRun
from parashot.questions.loader.records import LoaderBlock
from parashot.questions.scaling.records import CostMessage, CostStep
from parashot.questions.step.records import TuneBlock
from parashot.questions.strategies.records import StepAnatomy, StepShares, StrategyBlock, StrategyVariant
from parashot.records import Hardware, read_json, read_result, read_rows
from parashot.train.records import (
    Choices,
    EpisodeAccuracy,
    HistoryRow,
    PretrainResult,
    PretrainRow,
    SeedAccuracy,
    TaskAccuracy,
    TrainResult,
)

T = TypeVar("T")


@dataclass(frozen=True)
class TuneResults:
    """`results/choices.json` and `results/tune`; no blocks where params left nothing open."""

    choices: Choices
    blocks: tuple[TuneBlock, ...]


@dataclass(frozen=True)
class LoaderResults:
    """`results/loader`."""

    blocks: tuple[LoaderBlock, ...]
    metrics: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class StrategyResults:
    """`results/strategies`."""

    variants: tuple[StrategyVariant, ...]
    blocks: tuple[StrategyBlock, ...]
    anatomy: tuple[StepAnatomy, ...]
    shares: tuple[StepShares, ...] = ()
    metrics: Mapping[str, float | str] = field(default_factory=dict)
    cost_steps: tuple[CostStep, ...] = ()
    cost_messages: tuple[CostMessage, ...] = ()


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
class BatchszResults:
    """`results/batchsz`."""

    runs: tuple[BatchszRun, ...]
    blocks: tuple[BatchszBlock, ...]


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


@dataclass(frozen=True)
class StudyResults:
    """The whole study. A part is None where `missing` (by folder, `train/NAME` for a training) says why."""

    hardware: Hardware | None = None
    tune: TuneResults | None = None
    loader: LoaderResults | None = None
    strategies: StrategyResults | None = None
    pretraining: Pretraining | None = None
    training: Mapping[str, Training] = field(default_factory=dict)
    batchsz: BatchszResults | None = None
    warmup: tuple[WarmupRun, ...] | None = None
    evaluate: Evaluation | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


def load_results(root: Path, strategies: Sequence[str], *, partial: bool = False) -> StudyResults:
    """Read the results of a study under `root`; `strategies` names the trainings to look for.

    Raises `RecordError` for a missing or malformed file; with `partial` that part is None, and `missing` has
    the reason.
    """
    missing: dict[str, str] = {}

    def part(name: str, read: Callable[[Path], T], path: Path) -> T | None:
        try:
            return read(path)
        except RecordError as error:
            if not partial:
                raise
            missing[name] = _relative(str(error), root)
            return None

    folder = root / "results"
    trainings = {name: part(f"train/{name}", _training, folder / "train" / name) for name in strategies}
    return StudyResults(
        hardware=part("hardware", _hardware, root / "hardware.json"),
        tune=part("tune", _tune, folder),
        loader=part("loader", _loader, folder / "loader"),
        strategies=part("strategies", _strategies, folder / "strategies"),
        pretraining=part("pretrain", _pretraining, folder / "pretrain"),
        training={name: training for name, training in trainings.items() if training is not None},
        batchsz=part("batchsz", _batchsz, folder / "batchsz"),
        warmup=part("warmup", _warmup, folder / "warmup"),
        evaluate=part("evaluate", _evaluation, folder / "evaluate"),
        missing=missing,
    )


def _relative(message: str, root: Path) -> str:
    """Name files from the study's root, so that a report can be handed on."""
    at = root.as_posix()
    return message.replace(f"make {at} again", "make it again").replace(f"{at}/", "")


def _hardware(path: Path) -> Hardware:
    return read_result(Hardware, path)


def _tune(results: Path) -> TuneResults:
    choices = read_result(Choices, results / "choices.json")
    return TuneResults(choices, tuple(read_rows(TuneBlock, results / "tune/blocks.csv")))


def _loader(folder: Path) -> LoaderResults:
    return LoaderResults(
        tuple(read_rows(LoaderBlock, folder / "blocks.csv")), read_json(folder / "metrics.json")
    )


def _strategies(folder: Path) -> StrategyResults:
    variants = tuple(read_rows(StrategyVariant, folder / "variants.csv"))
    metrics = read_json(folder / "metrics.json")
    if all(variant.status == "skipped" for variant in variants):
        return StrategyResults(variants, (), (), (), metrics)
    return StrategyResults(
        variants,
        tuple(read_rows(StrategyBlock, folder / "blocks.csv")),
        tuple(read_rows(StepAnatomy, folder / "anatomy.csv")),
        tuple(read_rows(StepShares, folder / "shares.csv")),
        metrics,
        _rows_if_there(CostStep, folder / "cost_steps.csv"),
        _rows_if_there(CostMessage, folder / "cost_messages.csv"),
    )


def _rows_if_there(kind: type[T], path: Path) -> tuple[T, ...]:
    """Read rows that a study made before there were any does not have."""
    return tuple(read_rows(kind, path)) if path.exists() else ()


def _pretraining(folder: Path) -> Pretraining:
    rows = read_rows(PretrainRow, folder / "history.csv")
    return Pretraining(read_result(PretrainResult, folder / "result.json"), tuple(rows))


def _training(folder: Path) -> Training:
    result = read_result(TrainResult, folder / "result.json")
    if result.status == "skipped":
        return Training(result)
    return Training(
        result,
        tuple(read_rows(HistoryRow, folder / "history.csv")),
        tuple(read_rows(EpisodeAccuracy, folder / "val_episodes.csv")),
        _rows_if_there(SeedAccuracy, folder / "seeds.csv"),
    )


def _batchsz(folder: Path) -> BatchszResults:
    runs = tuple(read_rows(BatchszRun, folder / "runs.csv"))
    ran = any(run.status != "skipped" for run in runs)
    return BatchszResults(runs, tuple(read_rows(BatchszBlock, folder / "blocks.csv")) if ran else ())


def _warmup(folder: Path) -> tuple[WarmupRun, ...]:
    return tuple(read_rows(WarmupRun, folder / "runs.csv"))


def _evaluation(folder: Path) -> Evaluation:
    return Evaluation(
        read_result(EvaluateResult, folder / "result.json"),
        tuple(read_rows(EpisodeAccuracy, folder / "test_episodes.csv")),
        _rows_if_there(Confusion, folder / "confusion.csv"),
        _shown(folder),
        _rows_if_there(TaskAccuracy, folder / "tasks.csv"),
    )


def _shown(folder: Path) -> tuple[ShownEpisode, ...]:
    scores = _rows_if_there(ShownScore, folder / "shown.csv")
    return tuple(
        ShownEpisode(tuple(each for each in scores if each.episode == number), _bytes(folder, number))
        for number in sorted({each.episode for each in scores})
    )


def _bytes(folder: Path, episode: int) -> bytes:
    path = folder / f"episode_{episode}.png"
    try:
        return path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: missing; run `dvc repro -f -s evaluate` to make it again") from error
