"""What `parashot measure` recommended in this folder, for `parashot advise`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parashot.cli.measure import REPORT
from parashot.cli.training import TRAINING, write_training
from parashot.errors import RecordError

ADVICE = REPORT / "advice.json"


def advise_own(apply: Path | None, *, as_json: bool) -> None:
    """Print the recommendation; `apply` is a YAML file whose section `training` then follows it."""
    advice = read_advice()
    if apply is not None:
        write_training(apply, advice["advised"])
    if as_json:
        print(json.dumps(advice, indent=2, ensure_ascii=False))
        return
    print(advice["sentence"])
    print("".join(f"Note: {note}\n" for note in _notes(advice)), end="")
    if apply is not None:
        print(f"written into {apply}, section {TRAINING}")


def read_advice() -> dict[str, Any]:
    """Read advice.json. Raises `RecordError`."""
    from parashot.records import read_json

    if not ADVICE.exists():
        raise RecordError(
            "nothing was measured in this folder yet; run `parashot measure FILE` or `dvc repro`"
        )
    tree = read_json(ADVICE)
    if not isinstance(tree, dict) or not isinstance(tree.get("advised"), dict) or "sentence" not in tree:
        raise RecordError(f"{ADVICE}: not what `parashot measure` writes; run it again")
    return tree


def _notes(advice: Mapping[str, Any]) -> list[str]:
    """What a reader must know before following the advice."""
    from parashot.hardware import inspect_hardware

    notes = [*advice.get("warnings", [])]
    if advice.get("stopped"):
        notes.append("it was stopped before its end")
    if advice.get("hardware") != json.loads(json.dumps(asdict(inspect_hardware()))):
        notes.append("measured on another machine or with other software; measure again")
    return notes
