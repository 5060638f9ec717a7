"""What every stage reports, with units in the names; the only reader and writer of result files.

A result folder holds
    metrics.json    a flat dict of numbers and short texts, for `dvc metrics`
    result.json     one dataclass of this file, where the stage has a single result
    *.csv           one row per dataclass of this file (raw measurements, histories, per-episode accuracies)
    records.jsonl   one `Run` per line: what MLflow is told (`parashot.tracking`)
A missing or malformed file raises `RecordError` naming the file and the stage that writes it.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import time
import types
import typing
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from parashot.errors import RecordError, one_line
from parashot.files import replacing_file, write_text
from parashot.plain import cell, from_cell
from parashot.secrets import without_secrets

T = TypeVar("T")

Status = Literal["ok", "skipped", "stopped"]
"""`skipped`: it cannot run here, or is switched off; `stopped`: it met its time limit. Both say why."""


# --- MLflow runs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """One value of one metric; `time_ms` is milliseconds since the epoch."""

    key: str
    value: float
    step: int = 0
    time_ms: int = 0


@dataclass(frozen=True)
class Run:
    """One line of records.jsonl: one run as MLflow shows it.

    `artifacts` are paths relative to the folder of records.jsonl; `model` is the saved model among them, if
    any. `parent` is the uuid of another run of the same file, or None: then it belongs directly under the
    study. `skipped` and `stopped` runs say why in the tag `reason`.
    """

    name: str
    stage: str
    status: Literal["ok", "skipped", "stopped", "running", "failed"]
    start_ms: int
    end_ms: int | None
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: tuple[Metric, ...] = ()
    artifacts: tuple[str, ...] = ()
    model: str | None = None
    parent: str | None = None
    uuid: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        clean = {key: without_secrets(value) for key, value in self.tags.items()}
        object.__setattr__(self, "tags", clean)


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


# --- the machine ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hardware:
    """hardware.json: stable facts of this machine; free memory, time and host name are left out."""

    cpu_model: str
    cores: int  # physical
    threads: int  # hardware threads this process may use
    memory_gib: int
    gpus: tuple[str, ...]
    platform: str
    python: str
    torch: str
    cuda: str | None


# --- loader-bench: results/loader/blocks.csv ------------------------------------------------------


@dataclass(frozen=True)
class LoaderBlock:
    """One timed block of one loader setting in one round; warm-up batches are not in it."""

    round: int
    backend: str
    workers: int
    batchsz: int
    batches: int
    seconds: float
    first_batch_seconds: float  # from making the loader to its first batch
    memory_bytes: int  # summed PSS of the process tree above the same process without a loader


# --- tune: results/choices.json, results/tune/blocks.csv ------------------------------------------


@dataclass(frozen=True)
class Choices:
    """How every strategy computes its steps: what params leave to `auto`, decided by measurement."""

    pairing: str  # concat | split
    precision: str  # fp32 | bf16
    compile: str  # none | default | reduce-overhead


@dataclass(frozen=True)
class TuneBlock:
    """One timed step of one replica, computed in one way, in one round."""

    round: int
    pairing: str
    precision: str
    compile: str
    seconds: float


# --- strategy-bench: results/strategies/{blocks,anatomy,shares,variants,cost_steps,cost_messages}.csv


@dataclass(frozen=True)
class StrategyBlock:
    """One timed block of training steps of one variant in one round."""

    round: int
    variant: str  # `StrategyVariant.variant`
    steps: int
    seconds: float


@dataclass(frozen=True)
class StrategyVariant:
    """What one row of the strategy comparison is: a strategy with its replicas and threads.

    The base case of every speedup is the variant `serial`: one replica with as many threads as any replica
    has. `serial-all-cores` is one replica with all cores (CPU only).
    """

    variant: str
    strategy: str
    status: Status
    reason: str
    replicas: int
    threads_per_replica: int
    batchsz: int  # episodes per step, over all replicas


@dataclass(frozen=True)
class StepAnatomy:
    """What one training step of a variant was seen to do."""

    variant: str
    processes: int  # processes that ran a forward pass
    threads: int  # threads, over all processes, that ran a forward pass
    all_reduces: int  # calls of each kind by one process in one step
    broadcasts: int  # of parameters (dp: copied out) or running statistics (ddp)
    scatters: int  # of inputs, by hand (dp)
    gathers: int  # of outputs, by hand (dp)
    reduces: int  # of gradients to the first replica, by hand (dp)
    all_gathers: int
    reduce_scatters: int
    sends: int  # from one rank to another
    bytes_sent: int  # by one process in one step, the mean over processes (dp: between its replicas)
    gradient_bytes: int  # bytes of gradients one replica contributes


@dataclass(frozen=True)
class StepShares:
    """How one process spent one step of a variant, as the profiler saw it: shares of the step's time."""

    variant: str
    rank: int
    step: int
    seconds: float  # under the profiler, which slows a step: shares are what it is for
    exposed: float  # messages were under way and nothing was computed; waiting for a peer is within
    hidden: float  # messages were under way while this process computed
    idle: float  # neither


@dataclass(frozen=True)
class CostStep:
    """One timed block of steps of one replica that exchanges nothing: what the model of cost is fitted to."""

    round: int
    busy: int  # replicas that computed meanwhile, this one among them
    episodes: int  # per step of this replica
    steps: int
    seconds: float  # of the slowest of those


@dataclass(frozen=True)
class CostMessage:
    """One timed block of all-reduces of one message: what a link is fitted to."""

    round: int
    ranks: int
    bytes: int  # of one message
    calls: int
    seconds: float


# --- pretrain: results/embedding.pt (a model file, if any), results/pretrain/{result.json,history.csv} ----


@dataclass(frozen=True)
class PretrainRow:
    """One step of pretraining; `val_accuracy` is set where the embedding was tried on episodes."""

    step: int  # optimizer steps done
    images: int  # seen so far
    seconds: float  # so far; validations are not in it
    loss: float
    train_accuracy: float  # of classification
    val_accuracy: float | None  # of few-shot episodes, by the cosine of the embedding
    val_accuracy_ci95: float | None


@dataclass(frozen=True)
class PretrainResult:
    """The embedding's training as a classifier; where `status` is skipped, every number is 0 or None."""

    status: Status
    reason: str
    device: str = ""
    threads: int = 0
    classes: int = 0
    epochs: int = 0
    steps: int = 0
    images: int = 0  # seen, over all epochs
    seconds: float | None = 0.0  # without validations; None where it was taken up again
    images_per_second: float = 0.0  # over all steps, those at a smaller size too
    train_accuracy: float | None = None  # mean of the last epoch
    val_accuracy: float | None = None  # of few-shot episodes, by the cosine of the embedding
    val_accuracy_ci95: float | None = None
    val_episodes: int = 0
    resumed: int = 0


# --- train-NAME: results/train/NAME/{result.json,history.csv,val_episodes.csv,model.pt} -----------


@dataclass(frozen=True)
class HistoryRow:
    """One step of a training, or one validation where `val_accuracy` is set."""

    step: int  # optimizer steps done
    episodes: int  # episodes seen, over all replicas
    seconds: float  # of training so far; validations are not in it
    step_seconds: float
    data_seconds: float  # of step_seconds, spent waiting for the batch
    loss: float
    train_accuracy: float
    val_accuracy: float | None
    val_accuracy_ci95: float | None


@dataclass(frozen=True)
class TrainResult:
    """One whole training; where `status` is skipped, every number is 0 or None."""

    strategy: str
    status: Status
    reason: str
    device: str = ""
    how: str = ""  # in words: what the strategy really ran, e.g. "1 process, 2 replica threads (CPU)"
    replicas: int = 0
    threads_per_replica: int = 0
    batchsz: int = 0  # episodes per step, over all replicas
    batch_per: str = ""
    steps: int = 0
    episodes: int = 0
    seconds: float | None = (
        0.0  # steps with their loading, without validations; None where it was taken up again
    )
    seconds_per_step: float = 0.0  # median over steps
    data_share: float = 0.0  # share of `seconds` spent waiting for batches
    val_accuracy: float | None = None  # after the last step, on `val_episodes` packed episodes
    val_accuracy_ci95: float | None = None  # half width
    val_episodes: int = 0
    peak_memory_bytes: int | None = None  # CPU: summed PSS above idle; CUDA: the largest rank
    memory_by_device: tuple[int, ...] = ()  # CUDA only: max_memory_allocated of each device
    ranks_identical: bool | None = None  # after training, all replicas held the same parameters, bit for bit
    parameters: int = 0
    resumed: int = 0  # how often it was taken up again from a saved state
    nonfinite_steps: int = 0  # left out, since loss or gradient held NaN or infinity


@dataclass(frozen=True)
class EpisodeAccuracy:
    """Accuracy of one packed episode; paired over strategies by `episode`."""

    episode: int
    accuracy: float


# --- batchsz: results/batchsz/{runs,blocks,accuracies}.csv ----------------------------------------


@dataclass(frozen=True)
class BatchszRun:
    """One training of the batch-size study under DDP, with the study's limit: the baseline's time."""

    batchsz: int
    status: Status
    reason: str
    replicas: int
    seconds: float
    limit_seconds: float | None  # None for the baseline
    episodes: int  # done
    episodes_budget: int
    projected_seconds: float  # of the whole budget at the rate seen; equals `seconds` where it was finished
    val_accuracy: float | None
    val_accuracy_ci95: float | None


@dataclass(frozen=True)
class BatchszBlock:
    """One timed block of steps of one size; `synchronised` False leaves the gradient exchange out."""

    round: int
    batchsz: int
    synchronised: bool
    episodes: int
    steps: int
    seconds: float


# --- warmup: results/warmup/runs.csv ---------------------------------------------------------------


@dataclass(frozen=True)
class WarmupRun:
    """A training with or without (0 steps) a warm-up of the learning rate; the rate is the full one."""

    batchsz: int
    seed: int
    warmup_steps: int
    steps: int
    learning_rate: float
    val_accuracy: float


# --- evaluate: results/evaluate/{result.json,tasks.csv,test_episodes.csv} ---------------------------------


@dataclass(frozen=True)
class SeedAccuracy:
    """Accuracy of one packed validation episode after a training with one seed."""

    seed: int
    episode: int
    accuracy: float


@dataclass(frozen=True)
class EvaluateResult:
    """The chosen model on the test split, once."""

    strategy: str  # whose model was chosen
    chosen_by: str  # in words
    n_way: int
    k_shot: int
    k_query: int
    episodes: int
    test_accuracy: float
    test_accuracy_ci95: float  # half width


@dataclass(frozen=True)
class TaskAccuracy:
    """A network on episodes of one shape: a row of tasks.csv. `ci95` are half widths.

    All but the last are of the same episodes. Transductive: batch norm by an episode's own images, so that
    its queries help each other.
    """

    n_way: int
    k_shot: int
    k_query: int
    episodes: int
    accuracy: float
    accuracy_ci95: float
    cosine_accuracy: float  # of the mean maps, without the relation head
    cosine_accuracy_ci95: float
    relation_accuracy: float  # of the relation head alone
    relation_accuracy_ci95: float
    margin: float  # accuracy less cosine accuracy, episode by episode
    margin_ci95: float
    transductive_episodes: int  # 0: not measured
    transductive_accuracy: float
    transductive_accuracy_ci95: float


@dataclass(frozen=True)
class Confusion:
    """Test queries of class `actual` in the episodes that offered class `taken_for`; the two may be one."""

    actual: str
    taken_for: str
    offered: int  # queries that might have been taken for it
    taken: int  # queries that were


@dataclass(frozen=True)
class ShownScore:
    """One score of an episode that is shown: a query's relation with one of the classes on offer.

    Positions count from 0 within the episode. The images are tiles of episode_NUMBER.png: a row per class,
    its support images and then the shown queries.
    """

    episode: int
    n_way: int
    k_shot: int
    actual: int  # position of the query's own class
    query: int  # position among that class's shown queries
    offered: int  # position of the class it is compared with
    score: float  # relation score, 0 to 1


def followed(
    history: Sequence[HistoryRow] | Sequence[PretrainRow], columns: Sequence[str], start_ms: int
) -> list[Metric]:
    """Those columns of a history as metrics over its steps, each at the time when its step was done."""
    return [
        Metric(name, value, row.step, start_ms + round(1000 * row.seconds))
        for row in history
        for name in columns
        if (value := getattr(row, name)) is not None
    ]


# --- reading and writing ------------------------------------------------------------------------------


def write_result(path: Path, result: Any) -> None:
    """Write one dataclass as JSON."""
    _write_json(path, dataclasses.asdict(result))


def read_result(kind: type[T], path: Path) -> T:
    """Read one dataclass. Raises `RecordError`."""
    return _build(kind, read_json(path), path)


def write_rows(path: Path, kind: type[T], rows: Iterable[T]) -> None:
    """Write dataclasses as CSV: a header, then a row each; None is an empty cell."""
    names = _names(kind)
    with replacing_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows([[_cell(getattr(row, name)) for name in names] for row in rows])


def read_rows(kind: type[T], path: Path) -> list[T]:
    """Read dataclasses from CSV. Raises `RecordError`."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        trees = [dict(zip(header, map(from_cell, row), strict=True)) for row in rows]
    except (OSError, ValueError, csv.Error) as error:
        raise RecordError(f"{path}: cannot be read ({one_line(error)}); {_remedy(path)}") from error
    if header != _names(kind):
        raise RecordError(f"{path}: not a {kind.__name__} (its columns are {header}); {_remedy(path)}")
    return [_build(kind, tree, path) for tree in trees]


def write_metrics(path: Path, metrics: Mapping[str, float | int | str | None]) -> None:
    """Write metrics.json: a flat dict; None values are left out, since DVC compares numbers."""
    _write_json(path, {key: value for key, value in metrics.items() if value is not None})


def write_runs(path: Path, runs: Sequence[Run]) -> None:
    """Write records.jsonl."""
    trees = [_plain(dataclasses.asdict(run)) for run in runs]
    write_text(path, "".join(json.dumps(tree, allow_nan=False) + "\n" for tree in trees))


def read_runs(path: Path) -> list[Run]:
    """Read records.jsonl. Raises `RecordError`."""
    try:
        trees = [_parsed(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: cannot be read ({one_line(error)}); {_remedy(path)}") from error
    return [_build(Run, tree, path) for tree in trees]


def read_json(path: Path) -> Any:
    """Read any JSON result. Raises `RecordError`."""
    try:
        return _parsed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path}: cannot be read ({one_line(error)}); {_remedy(path)}") from error


def _parsed(text: str) -> Any:
    """Read JSON as the standard has it. Raises `ValueError`, and `RecursionError` where it is too deep."""
    return json.loads(text, parse_constant=_no_number)


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _write_json(path: Path, tree: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(_plain(tree), indent=2, sort_keys=True, allow_nan=False) + "\n")


def _plain(tree: Any) -> Any:
    """`tree` with "nan" and "inf" for what JSON does not know: the loss of a training that diverged."""
    if isinstance(tree, Mapping):
        return {key: _plain(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_plain(value) for value in tree]
    return str(tree) if isinstance(tree, float) and not math.isfinite(tree) else tree


def _remedy(path: Path) -> str:
    return f"run `dvc repro` to make {path.parent.as_posix()} again"


def _names(kind: type[Any]) -> list[str]:
    return [each.name for each in dataclasses.fields(kind)]


def _cell(value: Any) -> Any:
    """Floats keep their full precision; None becomes an empty cell, and no text a formula."""
    if value is None:
        return ""
    if isinstance(value, str):
        return cell(value)
    return repr(value) if isinstance(value, float) else value


def _build(kind: type[T], tree: Any, path: Path) -> T:
    """Make a `kind` from JSON values or CSV cells. Raises `RecordError`."""
    try:
        return _convert(kind, tree)
    except (TypeError, ValueError, OverflowError) as error:
        raise RecordError(f"{path}: not a {kind.__name__} ({one_line(error)}); {_remedy(path)}") from error


def _convert(kind: type[T], tree: Any) -> T:
    """Make a `kind`, each field by its type. Raises `TypeError` or `ValueError`."""
    if not isinstance(tree, dict):
        raise TypeError("an object is needed")
    if unknown := tree.keys() - set(_names(kind)):
        raise TypeError(f"unknown: {', '.join(sorted(unknown))}")
    hints = typing.get_type_hints(kind)
    return kind(**{name: _value(hints[name], raw, name) for name, raw in tree.items()})


def _value(hint: Any, raw: Any, name: str) -> Any:
    """`raw` as `hint` wants it. Raises `TypeError` or `ValueError`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {types.UnionType, typing.Union}:
        inner = next(each for each in arguments if each is not type(None))
        return None if raw is None or raw == "" else _value(inner, raw, name)
    if origin is tuple and isinstance(raw, list):
        return tuple(_value(arguments[0], each, name) for each in raw)
    if origin is dict and isinstance(raw, dict):
        return {key: _value(arguments[1], each, name) for key, each in raw.items()}
    if dataclasses.is_dataclass(hint):
        return _convert(typing.cast("type[Any]", hint), raw)
    return _scalar(hint, raw, name)


def _scalar(hint: Any, raw: Any, name: str) -> Any:
    """One text, number or truth value; in a CSV file each of them is text."""
    if isinstance(raw, str) and hint is bool:
        raw = {"True": True, "False": False}.get(raw, raw)
    elif isinstance(raw, str) and hint in {int, float}:
        raw = hint(raw)
    elif type(raw) is int and hint is float:
        raw = float(raw)
    fits = raw in typing.get_args(hint) if typing.get_origin(hint) is Literal else type(raw) is hint
    if not fits:
        raise ValueError(f"{name}: {raw!r}")
    return raw
