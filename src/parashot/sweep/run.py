"""A sweep: every point of a grid trained on some node, and its result folder written on this machine.

OUT/KEY/ is one run, whole or not there; KEY names all that its result depends on, the code too. So a sweep
that was interrupted goes on, and a run that is there is not computed again, whichever sweep asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from parashot.data.manifest import read_manifest
from parashot.data.packed import PackedSplit
from parashot.errors import ParamsError, RecordError
from parashot.files import replacing_folder
from parashot.params import Params
from parashot.records import read_result
from parashot.sweep.delivery import send
from parashot.sweep.engine import Failure, Nodes, engine
from parashot.sweep.grid import Point
from parashot.sweep.node import Files, Task, code_digest, run_task
from parashot.train.checkpoint import key
from parashot.train.knobs import params_of
from parashot.train.records import TrainResult

Progress = Callable[[str], None]


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
        _check(point, packed, nodes)
    folders = _folders(points, strategy, packed, out)
    outcomes = {
        index: Outcome(point, folder, "kept", result=result)
        for index, (point, folder) in enumerate(zip(points, folders, strict=True))
        if (result := _result(folder)) is not None
    }
    missing = [index for index in range(len(points)) if index not in outcomes]
    progress(f"runs: {len(points)}; there already: {len(outcomes)}")
    if missing:
        todo = [(points[index], folders[index]) for index in missing]
        for position, outcome in _train(todo, strategy, packed, nodes):
            outcomes[missing[position]] = outcome
            progress(f"[{len(outcomes)}/{len(points)}] {outcome.point.name}: {in_words(outcome)}")
    return [outcomes[index] for index in range(len(points))]


def in_words(outcome: Outcome) -> str:
    """How a point ended, in one line."""
    result = outcome.result
    if result is None:
        return f"failed: {outcome.reason}"
    return f"val {accuracy(result)}, {seconds(result)} s"


def accuracy(result: TrainResult) -> str:
    """Validation accuracy with its interval."""
    if result.val_accuracy is None or result.val_accuracy_ci95 is None:
        return "?"
    return f"{100 * result.val_accuracy:.1f} ± {100 * result.val_accuracy_ci95:.1f}%"


def seconds(result: TrainResult) -> str:
    """Time of the training's steps."""
    return "?" if result.seconds is None else f"{result.seconds:.1f}"


def _train(
    todo: Sequence[tuple[Point, Path]], strategy: str, packed: Path, nodes: Nodes
) -> Iterator[tuple[int, Outcome]]:
    """Train on the nodes; yield positions and outcomes as they come, each written already."""
    code = code_digest()
    with engine(nodes) as connection:
        data = send(packed, connection.share if nodes.address else None)
        tasks = [Task(point.name, strategy, point.params, data, nodes.cpus, code) for point, _ in todo]
        for position, answer in connection.call_all(run_task, tasks):
            yield position, _outcome(*todo[position], answer)


def _outcome(point: Point, folder: Path, answer: Files | Failure) -> Outcome:
    if isinstance(answer, Failure):
        return Outcome(point, folder, "failed", answer.reason)
    with replacing_folder(folder) as new:
        for name, data in answer.items():
            (new / name).write_bytes(data)
    return Outcome(point, folder, "done", result=read_result(TrainResult, folder / "result.json"))


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


def _check(point: Point, packed: Path, nodes: Nodes) -> None:
    """Raise `ParamsError` where the data or the nodes asked for cannot serve `point`."""
    params = point.params
    episode, evaluate = params.episode, params.evaluate
    there = PackedSplit(packed, "val").episodes.shape
    if there != (evaluate.val_episodes, episode.n_way, episode.k_shot + evaluate.k_query):
        raise ParamsError(
            f"{point.name}: does not fit the packed episodes; set episode.n_way, episode.k_shot and "
            "evaluate.* in params.yaml, then run `dvc repro pack`"
        )
    if params.pretrain.epochs:
        raise ParamsError(
            f"pretrain.epochs: {params.pretrain.epochs}, but the runs of a sweep begin from random weights; "
            "set it to 0, or take `dvc exp run --queue`"
        )
    if params.parallel.device == "cuda" and nodes.gpus == 0:
        raise ParamsError("parallel.device: cuda, but a run is given no GPU; set --gpus-per-run")


def _folders(points: Sequence[Point], strategy: str, packed: Path, out: Path) -> list[Path]:
    """A folder for each point, by everything that its result depends on."""
    data, code = sorted(read_manifest(packed).sha256.items()), code_digest()
    owners: dict[Path, Point] = {}
    for point in points:
        folder = out / key(strategy, params_of(point.params, strategy), data, code)
        if folder in owners:
            raise ParamsError(f"{owners[folder].name} and {point.name} are the same training; leave one out")
        owners[folder] = point
    return list(owners)
