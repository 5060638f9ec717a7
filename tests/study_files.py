"""Results of a study in files, as its stages write them."""

from __future__ import annotations

import shutil
from pathlib import Path

from parashot.questions.accuracy.records import WarmupResults
from parashot.questions.results import StudyResults
from parashot.questions.runs import Stage
from parashot.records import Provenance, write_result


def write_folder(folder: Path, part: object) -> None:
    """Write a part of the results as its stage does, without runs."""
    Stage("a part", "a-stage", Provenance()).write(folder, part, ())


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
        shutil.copy(folder / "tune/choices.json", folder)
