"""`parashot advise`: what to use on this machine, by what was measured in this folder.

That is a study, or what `parashot measure` recommended.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parashot.cli import REPORT, TRAINING
from parashot.cli.shared import is_study, read_sections, recommendation, study_here
from parashot.errors import ParamsError, RecordError
from parashot.files import replacing_file
from parashot.hardware import inspect_hardware
from parashot.knobs import arguments, keeping_yaml, write_settings
from parashot.questions.study import Study
from parashot.records import Hardware, holds, read_json

ADVICE = REPORT / "advice.json"
NO_SETTINGS = ("way", "batchsz")
"""Fields of a way that are none: its name, and what the measured file itself says."""


def run(command: argparse.Namespace) -> None:
    """Print what is advised, and apply it where that was asked for."""
    if is_study():
        _advise(command)
    else:
        _advise_own(command)


# --- by the study -------------------------------------------------------------------------------------


def _advise(command: argparse.Namespace) -> None:
    study, here = study_here(), inspect_hardware()
    notes = _notes(study, here)
    if command.apply:
        write_settings(command.apply, study.settings)
    if command.json:
        tree = {
            "answer": study.answer,
            "advice": [asdict(each) for each in study.advice],
            "settings": study.settings,
            "measured_here": study.results.hardware == here,
            "notes": notes,
        }
        print(json.dumps(tree, indent=2, ensure_ascii=False))
        return
    print(study.answer)
    for each in study.advice:
        if not each.choice:
            print(f"\n{each.topic}: not known\n  missing  {each.sure}")
            continue
        print(f"\n{each.topic}: {each.choice}{'' if each.decided else ' (undecided)'}")
        for name, words in (("buys", each.buys), ("sure", each.sure), ("changes", each.changes)):
            if words:
                print(f"  {name:<8} {words}")
    if study.settings:
        print(f"\nset by  dvc exp run {' '.join(arguments(study.settings))}")
    if command.apply:
        done = f"written into {command.apply}; `dvc repro` follows it"
        print(done if study.settings else f"{command.apply} stays as it is: there is nothing to set")
    for note in notes:
        print(f"\nNote: {note}")


def _notes(study: Study, here: Hardware) -> list[str]:
    notes, there = [], study.results.hardware
    if there is None:
        notes.append("which machine measured this is not known; run `dvc repro`")
    elif there != here:
        now = asdict(here)
        changed = [
            f"{key} {then} then, {now[key]} now" for key, then in asdict(there).items() if then != now[key]
        ]
        notes.append(
            f"measured on another machine or with other software: {'; '.join(changed)}; "
            "`dvc repro` measures again"
        )
    summary = Path("results/summary.json")
    if summary.exists() and not holds(read_json(summary).get("params"), study.params):
        notes.append(
            "params.yaml has changed since the last report; `dvc status` names results that are older"
        )
    if study.synthetic:
        notes.append("measured on synthetic images: times are real, accuracies only compare strategies")
    return notes


# --- by `parashot measure` ----------------------------------------------------------------------------


def _advise_own(command: argparse.Namespace) -> None:
    advice = _read_advice()
    if command.apply:
        write_training(command.apply, advice["advised"])
    if command.json:
        print(json.dumps(advice, indent=2, ensure_ascii=False))
        return
    print(recommendation(advice["sentence"], advice.get("as_good", [])), end="")
    for note in advice.get("warnings", []):
        print(f"Note: {note}")
    if advice.get("stopped"):
        print("Note: it was stopped before its end")
    if not holds(advice.get("hardware"), inspect_hardware()):
        print("Note: measured on another machine or with other software; measure again")
    if command.apply:
        print(f"written into {command.apply}, section {TRAINING}")


def _read_advice() -> dict[str, Any]:
    if not ADVICE.exists():
        raise RecordError(
            "nothing was measured in this folder yet; run `parashot measure FILE` or `dvc repro`"
        )
    tree = read_json(ADVICE)
    if not isinstance(tree, dict) or not isinstance(tree.get("advised"), dict) or "sentence" not in tree:
        raise RecordError(f"{ADVICE}: not what `parashot measure` writes; run it again")
    return tree


def training_settings(way: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a way that go into the section `training`."""
    return {key: value for key, value in way.items() if key not in NO_SETTINGS}


def write_training(path: Path, way: Mapping[str, Any]) -> None:
    """Set the section in the YAML file at `path`, where it need not be yet; comments and other keys stay.

    Raises `ParamsError`, and leaves the file as it was, where it is no file of sections.
    """
    tree = read_sections(path)
    section = tree.get(TRAINING) or {}
    if not isinstance(section, dict):
        raise ParamsError(f"{path}: {TRAINING} is no section there; rename it")
    tree[TRAINING] = section
    section.update(training_settings(way))
    with replacing_file(path) as temporary:
        keeping_yaml().dump(tree, temporary)
