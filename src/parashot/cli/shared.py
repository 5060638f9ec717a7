"""What several commands do: look at the folder that they run in, and tell progress."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parashot.cli import PARAMS
from parashot.errors import ParamsError, RecordError, UsageError

if TYPE_CHECKING:
    from parashot.questions.study import Study

SHIPPED = Path(__file__).parents[1] / "weights/best-conv4.safetensors"
"""Trained by recipe `best-conv4` on the real miniImageNet; its model card lies beside it."""


def tell(line: str) -> None:
    """Print progress on stderr, beside what the command prints."""
    print(line, file=sys.stderr, flush=True)


def recommendation(sentence: str, as_good: Sequence[str]) -> str:
    """Lines that say how to train, and what may be changed in it without loss."""
    others = [
        "Undecided; with any one of these changes it may be as fast:",
        *(f"    {each}" for each in as_good),
    ]
    return "\n".join([sentence, *(others if as_good else []), ""])


def is_study() -> bool:
    """Whether this folder is that of a study, by a section that no other project's params.yaml has."""
    from parashot.parsing import read_yaml

    tree = read_yaml(PARAMS) if PARAMS.exists() else None
    return isinstance(tree, dict) and "batchsz_study" in tree


def read_sections(path: Path, may_lack: bool = False) -> Any:
    """Return the sections of a YAML file, with the comments that `keeping_yaml` writes again.

    Where the file may lack and does, there are none. Raises `ParamsError` where it is no file of sections.
    """
    from parashot.knobs import keeping_yaml
    from parashot.parsing import read_yaml

    text = ""
    if path.exists() or not may_lack:
        if not isinstance(read_yaml(path), dict | None):  # whose faults are one line; those of ruamel are not
            raise ParamsError(f"{path}: not a file of sections; correct it there, or name another")
        text = path.read_text(encoding="utf-8")
    sections = keeping_yaml().load(text)
    if sections is None:
        sections = keeping_yaml().load(f"{text}\n{{}}")  # else the comments of a file without keys are lost
        sections.fa.set_block_style()
    return sections


def require_study() -> None:
    """Raise `UsageError` where this folder is not that of a study."""
    if not is_study():
        raise UsageError(f"{Path.cwd()}: no study here; run it in the folder of the study")


def study_here() -> Study:
    """Return the analysis of the study in this folder.

    Raises `UsageError` where there is none, `RecordError` where nothing was measured.
    """
    require_study()
    from parashot.params import load_params
    from parashot.questions.results import load_results
    from parashot.questions.study import analyse

    params = load_params(PARAMS)
    study = analyse(load_results(Path(), params.parallel.strategies, partial=True), params)
    if not study.results.measured:
        raise RecordError("nothing was measured in this folder yet; run `dvc repro`, or `dvc checkout`")
    return study


def chosen_weights(named: Path | None) -> Path:
    """Return the weights that were named, or the default, told on stderr.

    That is the model that stage `evaluate` of this folder chose, unless it saw synthetic images only.
    """
    from parashot.questions.accuracy.records import EvaluateResult
    from parashot.records import read_result, read_runs

    if named is not None:
        return named
    chosen = Path("results/evaluate/result.json")
    if chosen.exists():
        folder = Path("results/train", read_result(EvaluateResult, chosen).strategy)
        model = folder / "model.safetensors"  # not there while another training is under way
        if model.exists() and read_runs(folder / "records.jsonl")[0].params["data.source"] != "synthetic":
            tell(f"network: {model}, which stage evaluate of this folder chose")
            return model
    tell("network: the one that comes with parashot, best-conv4, trained on miniImageNet")
    return SHIPPED
