"""Results of a study in files, as its stages write them."""

from __future__ import annotations

import typing
from pathlib import Path

from parashot.questions.accuracy.records import WarmupRun
from parashot.questions.results import StudyResults
from parashot.questions.step.records import TuneBlock
from parashot.records import write_result, write_rows


def write_folder(folder: Path, part: object) -> None:
    """Write each field of a part of the results to a file of its name."""
    for name, hint in typing.get_type_hints(type(part)).items():
        if typing.get_origin(hint) is tuple:
            write_rows(folder / f"{name}.csv", typing.get_args(hint)[0], getattr(part, name))
        else:
            write_result(folder / f"{name}.json", getattr(part, name))


def write_study(root: Path, study: StudyResults) -> None:
    """Write what there is of a study as the stages do."""
    folder = root / "results"
    write_result(root / "hardware.json", study.hardware)
    if study.tune:
        write_result(folder / "choices.json", study.tune.choices)
        write_rows(folder / "tune/blocks.csv", TuneBlock, study.tune.blocks)
    if study.warmup is not None:
        write_rows(folder / "warmup/runs.csv", WarmupRun, study.warmup)
    parts = {
        "loader": study.loader,
        "strategies": study.strategies,
        "gain": study.gain,
        "pretrain": study.pretraining,
        "batchsz": study.batchsz,
        "evaluate": study.evaluate,
        **{f"train/{name}": training for name, training in study.training.items()},
    }
    for name, part in parts.items():
        if part is not None:
            write_folder(folder / name, part)
