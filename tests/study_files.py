"""Results of a study in files, as its stages write them."""

from __future__ import annotations

from pathlib import Path

from parashot.questions.accuracy.records import WarmupResults
from parashot.questions.results import StudyResults
from parashot.questions.runs import files_of
from parashot.records import write_result, write_rows


def write_folder(folder: Path, part: object) -> None:
    """Write each field of a part of the results to a file of its name."""
    for each, name, kind in files_of(type(part)):
        if name.endswith(".csv"):
            write_rows(folder / name, kind, getattr(part, each.name))
        else:
            write_result(folder / name, getattr(part, each.name))


def write_study(root: Path, study: StudyResults) -> None:
    """Write what there is of a study as the stages do."""
    folder = root / "results"
    write_result(root / "hardware.json", study.hardware)
    parts = {
        "tune": study.tune,
        "loader": study.loader,
        "strategies": study.strategies,
        "gain": study.gain,
        "pretrain": study.pretraining,
        "batchsz": study.batchsz,
        "warmup": None if study.warmup is None else WarmupResults(study.warmup),
        "evaluate": study.evaluate,
        **{f"train/{name}": training for name, training in study.training.items()},
    }
    for name, part in parts.items():
        if part is not None:
            write_folder(folder / name, part)
    if study.tune:
        (folder / "tune/choices.json").rename(folder / "choices.json")
