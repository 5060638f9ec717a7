"""A sweep: every point of a grid trained on some node, and its result folder written on this machine.

OUT/KEY/ is one run, whole or not there; KEY names all that its result depends on, the code too. So a sweep
that was interrupted goes on, and a run that is there is not computed again, whichever sweep asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from parashot.data.manifest import read_manifest
from parashot.errors import ParamsError, RecordError, UsageError
from parashot.records import read_result
from parashot.sweep.cluster import Nodes, connected, run_trials
from parashot.sweep.grid import Point
from parashot.sweep.trial import Trial, send
from parashot.train.job import code_digest
from parashot.train.records import TrainResult


@dataclass(frozen=True)
class Outcome:
    """How one point ended; `result` is None where it failed."""

    point: Point
    folder: Path
    status: Literal["done", "kept", "failed"]  # kept: it was there already
    reason: str = ""
    result: TrainResult | None = None


def sweep(
    points: Sequence[Point],
    strategy: str,
    validation_seed: int,
    packed: Path,
    out: Path,
    nodes: Nodes,
    progress: Callable[[str], None],
) -> list[Outcome]:
    """Train every point by `strategy` on the packed data; return how each ended, in their order.

    `validation_seed` draws the validation episodes of all runs. Raises `ParashotError` before anything starts
    where a point cannot be run.
    """
    for point in points:
        _check(point, strategy, nodes)
    read_manifest(packed)  # its error says what to run
    code, data = code_digest(), send(packed, None)
    trials: dict[Path, Trial] = {}
    for point in points:
        trial = Trial(point, strategy, validation_seed, data, nodes.cpus, code)
        other = trials.setdefault(out / trial.key, trial).point
        if other is not point:
            raise ParamsError(f"{other.name} and {point.name} are the same training; leave one out")
    outcomes = {
        folder: Outcome(trial.point, folder, "kept", result=result)
        for folder, trial in trials.items()
        if (result := _result(folder))
    }
    progress(f"runs: {len(trials)}; there already: {len(outcomes)}")

    def ended(folder: Path, reason: str) -> None:
        point = trials[folder].point
        result = None if reason else read_result(TrainResult, folder / "result.json")
        outcomes[folder] = Outcome(point, folder, "done" if result else "failed", reason, result)
        progress(f"[{len(outcomes)}/{len(trials)}] {point.name}: {reason or 'done'}")

    missing = {folder: trial for folder, trial in trials.items() if folder not in outcomes}
    if missing:
        with connected(nodes) as share:
            data = send(packed, share)
            run_trials({folder: replace(missing[folder], data=data) for folder in missing}, nodes, ended)
    return [outcomes[folder] for folder in trials]


def _result(folder: Path) -> TrainResult | None:
    """The result of a run that is there; a damaged one is computed again."""
    with suppress(RecordError):
        return read_result(TrainResult, folder / "result.json")
    return None


def _check(point: Point, strategy: str, nodes: Nodes) -> None:
    """Raise `UsageError` for an unknown strategy, `ParamsError` where it or `nodes` cannot run `point`."""
    params = point.params
    if strategy not in params.parallel.strategies:
        known = ", ".join(params.parallel.strategies)
        raise UsageError(f"--strategy {strategy}: unknown; choose one of: {known}")
    if params.pretrain.epochs:
        raise ParamsError(
            f"pretrain.epochs: {params.pretrain.epochs}, but the runs of a sweep begin from random weights; "
            "set it to 0, or take `dvc exp run --queue`"
        )
    if params.parallel.device == "cuda" and nodes.gpus == 0:
        raise ParamsError("parallel.device: cuda, but a run is given no GPU; set --gpus-per-run")
