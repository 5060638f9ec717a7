"""Everything the stages measured, read once: the input of the analysis and of the report."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from parashot.errors import RecordError
from parashot.questions.accuracy.records import (
    Evaluation,
    Training,
    WarmupResults,
    WarmupRun,
)
from parashot.questions.batchsz.records import BatchszResults
from parashot.questions.gain.records import GainResults
from parashot.questions.loader.records import LoaderResults
from parashot.questions.step.records import TuneResults
from parashot.questions.strategies.records import StrategyResults
from parashot.records import Hardware, read_result, read_rows
from parashot.train.records import Choices

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
    results = root / "results"
    missing: dict[str, str] = {}

    def part(name: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except RecordError as error:
            if not partial:
                raise
            missing[name] = _relative(str(error), root)
            return None

    def folder(name: str, kind: type[T]) -> T | None:
        return part(name, lambda: _read_folder(kind, results / name))

    def tune() -> TuneResults:
        choices = read_result(Choices, results / "choices.json")
        return _read_folder(TuneResults, results / "tune", choices=choices)

    trainings = {name: folder(f"train/{name}", Training) for name in strategies}
    warmup = folder("warmup", WarmupResults)
    return StudyResults(
        hardware=part("hardware", lambda: read_result(Hardware, root / "hardware.json")),
        tune=part("tune", tune),
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


def _read_folder(kind: type[T], folder: Path, **given: Any) -> T:
    """Read a dataclass of results: a field of type `tuple[Row, ...]` from NAME.csv, any other from NAME.json.

    A field that has a default may have no file; those that are `given` are not read. Raises `RecordError`.
    """
    hints = typing.get_type_hints(kind)
    found = dict(given)
    for each in dataclasses.fields(kind):  # type: ignore[arg-type]
        hint, is_table = hints[each.name], typing.get_origin(hints[each.name]) is tuple
        path = folder / f"{each.name}.{'csv' if is_table else 'json'}"
        needed = each.default is dataclasses.MISSING
        if each.name in given or not (needed or path.exists()):
            continue
        row = typing.get_args(hint)[0] if is_table else hint
        found[each.name] = tuple(read_rows(row, path)) if is_table else read_result(row, path)
    return kind(**found)


def _relative(message: str, root: Path) -> str:
    """Name files from the study's root, so that a report can be handed on."""
    at = root.as_posix()
    return message.replace(f"make {at} again", "make it again").replace(f"{at}/", "")
