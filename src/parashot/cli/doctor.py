"""`parashot doctor`: what this machine and this checkout have, what that means, and how to mend it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch

from parashot.cli import PARAMS
from parashot.cli.shared import is_study
from parashot.doctor.checkout import checkout_checks
from parashot.doctor.machine import Check, machine_checks, replicas
from parashot.doctor.room import study_bytes
from parashot.errors import DeviceError
from parashot.parallel.abilities import check_options
from parashot.parallel.context import resolve_placement
from parashot.parallel.registry import pretraining_options, step_options
from parashot.params import Params, load_params


def run(command: argparse.Namespace) -> None:
    """Print a line for each check, and one for the fix of what is not ok.

    Outside of a study's folder only the machine is checked.
    """
    checks = machine_checks()
    if is_study():
        checks += _of_study(load_params(PARAMS))
    else:
        checks.append(Check("study", "none in this folder", "only the machine was checked"))
    if command.json:
        print(json.dumps({"checks": [asdict(each) for each in checks]}, indent=2, ensure_ascii=False))
    else:
        _print(checks)
    if problems := [each.topic for each in checks if each.verdict == "problem"]:
        raise DeviceError(f"a study would stop here: {', '.join(problems)}; see the fix beside each")


def _of_study(params: Params) -> list[Check]:
    root = Path.cwd()
    checks = checkout_checks(root, params, study_bytes(params, root))
    try:
        placement = resolve_placement(params.parallel)
        check_options(step_options(params.train), placement.device_type)
        if params.pretrain.epochs:
            check_options(pretraining_options(params), placement.device_type, "pretrain.compile")
    except DeviceError as error:
        fix = "change it in params.yaml"
        return [*checks, Check("params", str(error), "trainings would stop", "problem", fix)]
    return [*checks, replicas(placement, torch.cuda.device_count())]


def _print(checks: list[Check]) -> None:
    width = max(len(each.topic) for each in checks)
    for each in checks:
        mark = "ok" if each.verdict == "ok" else each.verdict.upper()
        print(f"{mark:<8}{each.topic:<{width}}  {each.found}: {each.means}")
        if each.verdict != "ok":
            print(f"{'':<8}{'':<{width}}  fix: {each.fix}")
