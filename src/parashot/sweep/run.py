"""A sweep: every point of a grid trained on some node, and its result folder written on this machine.

OUT/KEY/ is one run, whole or not there; KEY names all that its result depends on, the code too. So a sweep
that was interrupted goes on, and a run that is there is not computed again, whichever sweep asked for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from parashot.data.manifest import MANIFEST, read_manifest, sha256
from parashot.errors import ParamsError, RecordError
from parashot.params import Params, flatten
from parashot.records import read_result
from parashot.sweep.cluster import Nodes, connected, run_trials
from parashot.sweep.delivery import send
from parashot.sweep.grid import Point
from parashot.sweep.trial import Task
from parashot.train.records import TrainResult

Progress = Callable[[str], None]

_CODE = ("data", "model", "parallel", "train", "task.py", "hardware.py", "params.py", "records.py")
"""Parts of parashot that a training's result depends on."""

_BESIDE = (
    "batchsz_study",
    "warmup_study",
    "seeds_study",
    "claims",
    "tracking",
    "loader.bench",
    "parallel.bench",
)
"""Sections of params.yaml that no single training depends on."""


@dataclass(frozen=True)
class Outcome:
    """How one point ended; `result` is None where it failed."""

    point: Point
    folder: Path
    status: Literal["done", "kept", "failed"]  # kept: it was there already
    reason: str = ""
    result: TrainResult | None = None


def sweep(
    points: Sequence[Point], strategy: str, packed: Path, out: Path, nodes: Nodes, progress: Progress
) -> list[Outcome]:
    """Train every point by `strategy` on the packed data; return how each ended, in their order.

    Raises `ParashotError` before anything starts where a point cannot be run.
    """
    points = [replace(point, params=_switched_on(point.params, strategy)) for point in points]
    for point in points:
        _check(point, nodes)
    read_manifest(packed)  # its error says what to run
    code = _code()
    folders = _folders(points, strategy, out, [sha256(packed / MANIFEST), code])
    outcomes: dict[int, Outcome] = {}
    for index, folder in enumerate(folders):
        if result := _result(folder):
            outcomes[index] = Outcome(points[index], folder, "kept", result=result)
    missing = [index for index in range(len(points)) if index not in outcomes]
    progress(f"runs: {len(points)}; there already: {len(outcomes)}")

    def ended(position: int, reason: str) -> None:
        index = missing[position]
        point, folder = points[index], folders[index]
        result = None if reason else read_result(TrainResult, folder / "result.json")
        outcomes[index] = Outcome(point, folder, "done" if result else "failed", reason, result)
        progress(f"[{len(outcomes)}/{len(points)}] {point.name}: {reason or 'done'}")

    if missing:
        with connected(nodes) as share:
            data = send(packed, share)
            chosen = [points[index] for index in missing]
            tasks = [Task(each.name, strategy, each.params, data, nodes.cpus, code) for each in chosen]
            run_trials(tasks, [folders[index] for index in missing], nodes, ended)
    return [outcomes[index] for index in range(len(points))]


def _result(folder: Path) -> TrainResult | None:
    """The result of a run that is there; a damaged one is computed again."""
    try:
        return read_result(TrainResult, folder / "result.json")
    except RecordError:
        return None


def _switched_on(params: Params, strategy: str) -> Params:
    """`params` with the strategy enabled: it was asked for by name."""
    parallel = params.parallel
    if strategy not in parallel.strategies:
        raise ParamsError(f"--strategy {strategy}: unknown; choose one of: {', '.join(parallel.strategies)}")
    section = replace(getattr(parallel, strategy), enabled=True)
    return replace(params, parallel=replace(parallel, **{strategy: section}))


def _check(point: Point, nodes: Nodes) -> None:
    """Raise `ParamsError` where the nodes asked for cannot serve `point`."""
    if epochs := point.params.pretrain.epochs:
        raise ParamsError(
            f"pretrain.epochs: {epochs}, but the runs of a sweep begin from random weights; "
            "set it to 0, or take `dvc exp run --queue`"
        )
    if point.params.parallel.device == "cuda" and nodes.gpus == 0:
        raise ParamsError("parallel.device: cuda, but a run is given no GPU; set --gpus-per-run")


def _folders(points: Sequence[Point], strategy: str, out: Path, common: Sequence[str]) -> list[Path]:
    """A folder for each point, by everything that its result depends on."""
    owners: dict[Path, Point] = {}
    for point in points:
        others = {f"parallel.{name}" for name in point.params.parallel.strategies} - {f"parallel.{strategy}"}
        beside = tuple(f"{section}." for section in (*_BESIDE, *others))
        params = {key: value for key, value in flatten(point.params).items() if not key.startswith(beside)}
        identity = json.dumps([*common, strategy, params], sort_keys=True)
        folder = out / hashlib.sha256(identity.encode()).hexdigest()[:16]
        if folder in owners:
            raise ParamsError(f"{owners[folder].name} and {point.name} are the same training; leave one out")
        owners[folder] = point
    return list(owners)


def _code() -> str:
    """Name the code that trains."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        name = file.relative_to(package)
        if name.parts[0] in _CODE:
            digest.update(f"{name.as_posix()}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]
