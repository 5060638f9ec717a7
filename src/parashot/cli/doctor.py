"""`parashot doctor`: what this machine and this checkout have, what that means, and how to mend it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from parashot.cli.arguments import Commands
from parashot.errors import DeviceError

if TYPE_CHECKING:
    from parashot.doctor.check import Check


def add_parser(commands: Commands) -> None:
    """Add `parashot doctor`."""
    parser = commands.add_parser(
        "doctor",
        help="check this machine and this checkout, and estimate the duration of a study",
        description="Check cores, memory, GPUs, PyTorch, DVC, git and MLflow, and time a few steps to "
        "estimate how long the study of params.yaml takes here. Exit status 1 if something would stop it.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    from parashot.doctor.check import Check
    from parashot.doctor.checkout import checkout_checks
    from parashot.doctor.forecast import measure_pace, stage_seconds, study_bytes
    from parashot.doctor.machine import machine_checks
    from parashot.parallel.abilities import check_options
    from parashot.parallel.context import resolve_placement
    from parashot.parallel.registry import step_options
    from parashot.params import load_params

    root = Path.cwd()
    params = load_params(root / "params.yaml")
    checks = [*machine_checks(), *checkout_checks(root, params, study_bytes(params, root))]
    seconds: dict[str, float] = {}
    try:
        placement = resolve_placement(params.parallel)
        check_options(step_options(params.train), placement.device_type)
        seconds = stage_seconds(params, measure_pace(params, placement))
    except DeviceError as error:
        fix = "change it in params.yaml"
        checks.append(Check("params", str(error), "trainings would stop", "problem", fix))
    if command.json:
        tree = {"checks": [asdict(each) for each in checks], "forecast_seconds": seconds}
        print(json.dumps(tree, indent=2, ensure_ascii=False))
    else:
        print(_listed(checks) + _forecast(seconds), end="")
    if problems := [each.topic for each in checks if each.verdict == "problem"]:
        raise DeviceError(f"a study would stop here: {', '.join(problems)}; see the fix beside each")


def _listed(checks: Sequence[Check]) -> str:
    """A line for each check, and one for the fix of what is not ok."""
    width = max(len(each.topic) for each in checks)
    lines = []
    for each in checks:
        mark = "ok" if each.verdict == "ok" else each.verdict.upper()
        lines.append(f"{mark:<8}{each.topic:<{width}}  {each.found}: {each.means}")
        if each.verdict != "ok":
            lines.append(f"{'':<8}{'':<{width}}  fix: {each.fix}")
    return "".join(f"{line}\n" for line in lines)


def _forecast(seconds: Mapping[str, float]) -> str:
    from parashot.questions.text import seconds as said

    if not seconds:
        return ""
    parts = ", ".join(f"{name} {said(each)}" for name, each in seconds.items() if each >= 1)
    return (
        f"\nThe study of params.yaml takes about {said(sum(seconds.values()))} here from nothing ({parts}).\n"
        "What DVC has in its cache is not done again. More: parashot recipe, docs/howto.md.\n"
    )
