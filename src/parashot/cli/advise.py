"""`parashot advise`: what to use on this machine, by what was measured in this folder."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from parashot.cli.arguments import PARAMS, Commands, is_study, study_here
from parashot.cli.own_advice import advise_own

if TYPE_CHECKING:
    from parashot.questions.study import Study
    from parashot.records import Hardware


def add_parser(commands: Commands) -> None:
    """Add `parashot advise`."""
    parser = commands.add_parser(
        "advise",
        help="recommend strategy, loader, batch size and precision for this machine",
        description="Recommend a strategy, loader, batch size and precision from the measurements of the "
        "study in this folder, with the gain and the certainty of each; or the way to train that "
        "`parashot measure` found here.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--apply",
        metavar="FILE",
        nargs="?",
        type=Path,
        const=PARAMS,
        help=f"write the advised settings into FILE ({PARAMS})",
    )
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    if is_study():
        _advise(command)
    else:
        advise_own(command.apply, as_json=command.json)


def _advise(command: argparse.Namespace) -> None:
    """Print what the study here says, and apply it where that was asked for."""
    from parashot.hardware import inspect_hardware
    from parashot.knobs import arguments, write_settings

    study, here = study_here(), inspect_hardware()
    notes = _notes(study, here)
    if command.apply:
        write_settings(command.apply, study.settings)
    if command.json:
        tree = {
            "answer": study.answer,
            "advice": [asdict(each) for each in study.advice],
            "settings": study.settings,
            "measured_here": study.hardware == here,
            "notes": notes,
        }
        print(json.dumps(tree, indent=2, ensure_ascii=False))
    else:
        print(study.answer)
        print(_text(study), end="")
        if study.settings:
            print(f"\nset by  dvc exp run {' '.join(arguments(study.settings))}")
        if command.apply:
            print(f"written into {command.apply}; `dvc repro` follows it")
        print("".join(f"\nNote: {note}\n" for note in notes), end="")


def _text(study: Study) -> str:
    """A paragraph for each piece of advice."""
    lines: list[str] = []
    for each in study.advice:
        if not each.choice:
            lines += [f"\n{each.topic}: not known", f"  missing  {each.sure}"]
            continue
        lines.append(f"\n{each.topic}: {each.choice}{'' if each.decided else ' (undecided)'}")
        told = (("buys", each.buys), ("sure", each.sure), ("changes", each.changes))
        lines += [f"  {name:<8} {words}" for name, words in told if words]
    return "".join(f"{line}\n" for line in lines)


def _notes(study: Study, here: Hardware) -> list[str]:
    """What a reader must know before following the advice."""
    notes = []
    if study.hardware is None:
        notes.append("which machine measured this is not known; run `dvc repro`")
    elif study.hardware != here:
        now = asdict(here)
        changed = [
            f"{key} {then} then, {now[key]} now"
            for key, then in asdict(study.hardware).items()
            if then != now[key]
        ]
        notes.append(
            f"measured on another machine or with other software: {'; '.join(changed)}; "
            "`dvc repro` measures again"
        )
    if study.synthetic:
        notes.append("measured on synthetic images: times are real, accuracies only compare strategies")
    return notes
