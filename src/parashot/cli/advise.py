"""`parashot advise`: what to use on this machine, by what the study in this folder measured."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parashot.cli.arguments import Commands
from parashot.errors import RecordError

if TYPE_CHECKING:
    from parashot.questions.advice import Advice
    from parashot.records import Hardware


def add_parser(commands: Commands) -> None:
    """Add `parashot advise`."""
    parser = commands.add_parser(
        "advise",
        help="what to use on this machine, what it buys and how sure that is",
        description="Read out of the measurements of the study in this folder which strategy, loader, batch "
        "size and precision to use, what each choice buys and how sure that is.",
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    from parashot.hardware import inspect_hardware
    from parashot.params import load_params
    from parashot.questions.results import load_results
    from parashot.questions.study import analyse

    params = load_params(Path("params.yaml"))
    results = load_results(Path(), params.parallel.strategies, partial=True)
    study = analyse(results, params)
    if not any(each.choice for each in study.advice):
        raise RecordError("nothing was measured in this folder yet; run `dvc repro`, or `dvc checkout`")
    here = inspect_hardware()
    notes = _notes(results.hardware, here, params.data.source)
    if command.json:
        tree: dict[str, Any] = {
            "answer": study.answer,
            "advice": [vars(each) for each in study.advice],
            "measured_here": results.hardware == here,
            "notes": notes,
        }
        print(json.dumps(tree, indent=2, ensure_ascii=False))
        return
    print(study.answer)
    print("".join(_paragraph(each) for each in study.advice), end="")
    print("".join(f"\nNote: {note}\n" for note in notes), end="")


def _paragraph(advice: Advice) -> str:
    if not advice.choice:
        return f"\n{advice.topic}: not known\n  missing  {advice.sure}\n"
    lines = [("buys", advice.buys), ("sure", advice.sure), ("set", advice.setting and f"-S {advice.setting}")]
    said = "".join(f"  {name:<8} {words}\n" for name, words in lines if words)
    return f"\n{advice.topic}: {advice.choice}{'' if advice.decided else ' (undecided)'}\n{said}"


def _notes(measured: Hardware | None, here: Hardware, source: str) -> list[str]:
    """What a reader must know before following the advice."""
    notes = []
    if measured is None:
        notes.append("which machine measured this is not known; run `dvc repro`")
    elif measured != here:
        notes.append(f"measured on another machine or with other software: {_differences(measured, here)}")
    if source == "synthetic":
        notes.append("measured on synthetic images: times are real, accuracies only compare strategies")
    return notes


def _differences(measured: Hardware, here: Hardware) -> str:
    pairs: Iterable[tuple[str, Any, Any]] = (
        (name, value, getattr(here, name)) for name, value in vars(measured).items()
    )
    changed = [f"{name} {then} then, {now} now" for name, then, now in pairs if then != now]
    return f"{'; '.join(changed)}; `dvc repro` measures again"
