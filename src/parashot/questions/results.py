"""Everything the stages measured, read once: the input of the analysis and of the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from parashot.errors import RecordError
from parashot.questions.accuracy.records import Evaluation, Training, WarmupResults, WarmupRun
from parashot.questions.batchsz.records import BatchszResults
from parashot.questions.gain.records import GainResults
from parashot.questions.loader.records import LoaderResults
from parashot.questions.runs import files_of
from parashot.questions.step.records import TuneResults
from parashot.questions.strategies.records import StrategyResults
from parashot.records import Hardware, read_result, read_rows

T = TypeVar("T")


@dataclass(frozen=True)
class StudyResults:
    """The whole study. A part is None where `missing` (by folder, `train/NAME` for a training) says why."""

    hardware: Hardware | None = None
    tune: TuneResults | None = None
    loader: LoaderResults | None = None
    strategies: StrategyResults | None = None
    gain: GainResults | None = None
    pretraining: Training | None = None
    training: Mapping[str, Training] = field(default_factory=dict)
    batchsz: BatchszResults | None = None
    warmup: tuple[WarmupRun, ...] | None = None
    evaluate: Evaluation | None = None
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        """Whether there is a measurement of any kind."""
        return any((self.tune, self.loader, self.strategies, self.training, self.batchsz, self.evaluate))


def load_results(root: Path, strategies: Sequence[str], *, partial: bool = False) -> StudyResults:
    """Read the results of a study under `root`; `strategies` names the trainings to look for.

    Raises `RecordError` for a missing or malformed file. With `partial` that part is None, so that an
    unfinished study still has a report, and `missing` says in one line which file it was and what to do.
    """
    results, at = root / "results", root.as_posix()
    missing: dict[str, str] = {}

    def part(name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except RecordError as error:
            if not partial:
                raise
            # files are named from the study's root, so that a report can be handed on
            missing[name] = str(error).replace(f"make {at} again", "make it again").replace(f"{at}/", "")
            return None

    def folder(name: str, kind: type[T]) -> T | None:
        return part(name, lambda: _read_folder(kind, results / name))

    trainings = {name: folder(f"train/{name}", Training) for name in strategies}
    warmup = folder("warmup", WarmupResults)
    return StudyResults(
        hardware=part("hardware", lambda: read_result(Hardware, root / "hardware.json")),
        tune=folder("tune", TuneResults),
        loader=folder("loader", LoaderResults),
        strategies=folder("strategies", StrategyResults),
        gain=folder("gain", GainResults),
        pretraining=folder("pretrain", Training),
        training={name: training for name, training in trainings.items() if training is not None},
        batchsz=folder("batchsz", BatchszResults),
        warmup=warmup.runs if warmup else None,
        evaluate=folder("evaluate", Evaluation),
        missing=missing,
    )


def _read_folder(kind: type[T], folder: Path) -> T:
    """Read a dataclass of results from its files (`files_of`). Raises `RecordError`.

    A field that has a default may have no file.
    """
    found: dict[str, Any] = {}
    for each, name, record in files_of(kind):
        path = folder / name
        if each.default is not MISSING and not path.exists():
            continue
        table = path.suffix == ".csv"
        found[each.name] = tuple(read_rows(record, path)) if table else read_result(record, path)
    return kind(**found)
