"""Everything the stages measured, read once: the input of the analysis and of the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from parashot.errors import RecordError
from parashot.questions.accuracy.records import WarmupRun
from parashot.questions.accuracy.results import (
    Evaluation,
    ShownEpisode,
    Training,
    WarmupResults,
    load_evaluation,
)
from parashot.questions.batchsz.rows import BatchszResults
from parashot.questions.folder import read_folder
from parashot.questions.loader.rows import LoaderResults
from parashot.questions.step.rows import TuneResults, load_tune
from parashot.questions.strategies.rows import StrategyResults
from parashot.records import Hardware, read_result

__all__ = [
    "BatchszResults",
    "Evaluation",
    "LoaderResults",
    "ShownEpisode",
    "StrategyResults",
    "StudyResults",
    "Training",
    "TuneResults",
    "load_results",
]

T = TypeVar("T")


@dataclass(frozen=True)
class StudyResults:
    """The whole study. A part is None where `missing` (by folder, `train/NAME` for a training) says why."""

    hardware: Hardware | None = None
    tune: TuneResults | None = None
    loader: LoaderResults | None = None
    strategies: StrategyResults | None = None
    pretraining: Training | None = None
    training: Mapping[str, Training] = field(default_factory=dict)
    batchsz: BatchszResults | None = None
    warmup: tuple[WarmupRun, ...] | None = None
    evaluate: Evaluation | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


def load_results(root: Path, strategies: Sequence[str], *, partial: bool = False) -> StudyResults:
    """Read the results of a study under `root`; `strategies` names the trainings to look for.

    Raises `RecordError` for a missing or malformed file. With `partial` that part is None, so that an
    unfinished study still has a report, and `missing` says in one line which file it was and what to do.
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

    def folder(name: str, kind: type[T]) -> T | None:
        return part(name, lambda path: read_folder(kind, path), root / "results" / name)

    trainings = {name: folder(f"train/{name}", Training) for name in strategies}
    warmup = folder("warmup", WarmupResults)
    return StudyResults(
        hardware=part("hardware", lambda path: read_result(Hardware, path), root / "hardware.json"),
        tune=part("tune", load_tune, root / "results"),
        loader=folder("loader", LoaderResults),
        strategies=folder("strategies", StrategyResults),
        pretraining=folder("pretrain", Training),
        training={name: training for name, training in trainings.items() if training is not None},
        batchsz=folder("batchsz", BatchszResults),
        warmup=warmup.runs if warmup else None,
        evaluate=part("evaluate", load_evaluation, root / "results/evaluate"),
        missing=missing,
    )


def _relative(message: str, root: Path) -> str:
    """Name files from the study's root, so that a report can be handed on."""
    at = root.as_posix()
    return message.replace(f"make {at} again", "make it again").replace(f"{at}/", "")
