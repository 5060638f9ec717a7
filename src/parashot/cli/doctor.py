"""`parashot doctor`: what this machine and this checkout have, what that means, and how to mend it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch

from parashot.cli import PARAMS
from parashot.cli.shared import is_study
from parashot.doctor import forecast
from parashot.doctor.checkout import checkout_checks
from parashot.doctor.machine import Check, machine_checks, replicas
from parashot.errors import DeviceError
from parashot.parallel.abilities import check_options
from parashot.parallel.context import resolve_placement
from parashot.parallel.registry import pretraining_options, step_options
from parashot.params import Params, load_params
from parashot.questions.text import seconds


def run(command: argparse.Namespace) -> None:
    """Print a line for each check, one for the fix of what is not ok, and how long trainings take.

    Outside of a study's folder only the machine is checked.
    """
    checks, parts = machine_checks(), dict[str, float]()
    if is_study():
        of_study, parts = _of_study(load_params(PARAMS))
        checks += of_study
    else:
        checks.append(Check("study", "none in this folder", "only the machine was checked"))
    if command.json:
        tree = {"checks": [asdict(each) for each in checks], "forecast_seconds": parts}
        print(json.dumps(tree, indent=2, ensure_ascii=False))
    else:
        _print(checks, parts)
    if problems := [each.topic for each in checks if each.verdict == "problem"]:
        raise DeviceError(f"a study would stop here: {', '.join(problems)}; see the fix beside each")


def _of_study(params: Params) -> tuple[list[Check], dict[str, float]]:
    root = Path.cwd()
    checks = checkout_checks(root, params, forecast.study_bytes(params, root))
    try:
        placement = resolve_placement(params.parallel)
        check_options(step_options(params.train), placement.device_type)
        if params.pretrain.epochs:
            check_options(pretraining_options(params), placement.device_type, "pretrain.compile")
    except DeviceError as error:
        fix = "change it in params.yaml"
        return [*checks, Check("params", str(error), "trainings would stop", "problem", fix)], {}
    checks.append(replicas(placement, torch.cuda.device_count()))
    return checks, forecast.training_seconds(params, forecast.measure_pace(params, placement))


def _print(checks: list[Check], parts: dict[str, float]) -> None:
    width = max(len(each.topic) for each in checks)
    for each in checks:
        mark = "ok" if each.verdict == "ok" else each.verdict.upper()
        print(f"{mark:<8}{each.topic:<{width}}  {each.found}: {each.means}")
        if each.verdict != "ok":
            print(f"{'':<8}{'':<{width}}  fix: {each.fix}")
    if parts:
        said = ", ".join(f"{name} {seconds(each)}" for name, each in parts.items() if each >= 1)
        whole = seconds(sum(parts.values()))
        print(f"\nThe trainings of params.yaml take about {whole} here ({said}).")
        print("Measuring times takes some minutes more; what DVC has in its cache is not done again.")
