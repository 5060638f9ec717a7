"""Tables of the report: columns over typed rows, rounded for reading, and with every digit as CSV."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, Generic, TypeVar

from parashot.plain import aligned, cell, printable
from parashot.questions import text
from parashot.questions.accuracy.rows import AccuracyComparison
from parashot.questions.advice import Advice
from parashot.questions.batchsz.rows import BatchszRow, SizeRow
from parashot.questions.claim import Claim
from parashot.questions.loader.rows import LoaderRow
from parashot.questions.scaling.rows import CheckedRow, ScalingRow
from parashot.questions.statistics import Interval, flat
from parashot.questions.step.rows import StepRow
from parashot.questions.strategies.rows import StrategyRow
from parashot.questions.study import Study
from parashot.questions.ways.records import EpisodeWay
from parashot.questions.ways.rows import WayRow
from parashot.train.records import TaskAccuracy

R = TypeVar("R")
NOTHING = "–"
SIGNS = {
    **dict.fromkeys(("holds", "ok", "equivalent", "one algorithm"), "✓"),
    **dict.fromkeys(("does not hold", "different", "stopped"), "✗"),
    "undecided": "?",
}


@dataclass(frozen=True)
class Cell:
    """Content of a cell: a text with bold words before it and small print below it.

    `badge` marks a verdict or a status, which has a sign and a colour of its own.
    """

    text: str
    lead: str = ""
    notes: tuple[str, ...] = ()
    badge: bool = False

    @property
    def sign(self) -> str:
        """Sign of a badge."""
        return SIGNS.get(self.text, NOTHING)

    @property
    def words(self) -> str:
        """The cell in one line: sign and bold words first, small print in brackets."""
        lead = f"{self.lead}:" if self.lead and self.text else self.lead
        words = [self.sign if self.badge else "", lead, self.text, *(f"({each})" for each in self.notes)]
        return " ".join(" ".join(words).split())


@dataclass(frozen=True)
class Column(Generic[R]):
    """A header, a function of the row, and how a number is said; None is shown as a dash."""

    header: str
    value: Callable[[R], Cell | Interval | float | str | None]
    say: Callable[[float], str] = str
    number: bool = True

    def cell(self, row: R) -> Cell:
        """Return what to show, every character of it printable; an interval is small print."""
        value = self.value(row)
        if value is None or isinstance(value, str):
            return Cell(NOTHING if value is None else printable(value))
        if isinstance(value, Cell):
            notes = tuple(printable(note) for note in value.notes)
            return Cell(printable(value.text), printable(value.lead), notes, value.badge)
        if isinstance(value, Interval):
            between = f"{self.say(value.low)} to {self.say(value.high)}"
            return Cell(self.say(value.value), notes=(between,) if value.low < value.high else ())
        return Cell(self.say(value))


class Table(Generic[R]):
    """One table. On a narrow screen the rows of a `stacked` one become cards; others scroll sideways."""

    def __init__(
        self, name: str, caption: str, *columns: Column[R], rows: Sequence[R] = (), layout: str = ""
    ) -> None:
        self.name, self.caption, self.columns = name, caption, columns
        self.rows, self.layout = rows, layout  # layout: "" or stacked

    def of(self, rows: Sequence[R]) -> Table[R]:
        """Return the same table with `rows`, without the columns that none of them fills."""
        empty = [each for each in self.columns if rows and all(each.value(row) is None for row in rows)]
        columns = [each for each in self.columns if each not in empty]
        return Table(self.name, self.caption, *columns, rows=rows, layout=self.layout)

    def only(self, headers: Sequence[str]) -> Table[R]:
        """Return the same table with the columns of these `headers`; () for all."""
        columns = [each for each in self.columns if not headers or each.header in headers]
        return Table(self.name, self.caption, *columns, rows=self.rows, layout=self.layout)

    def cells(self) -> list[list[tuple[Column[R], Cell]]]:
        """Return what to show of each row."""
        return [[(column, column.cell(row)) for column in self.columns] for row in self.rows]

    def plain(self) -> str:
        """Return the table for a terminal."""
        header = [column.header for column in self.columns]
        return aligned([header, *([cell.words for _, cell in row] for row in self.cells())])

    def csv(self) -> str:
        """Return every field of the rows, unrounded; an interval is three columns, and no text a formula."""
        rows = [_fields(row) for row in self.rows]
        buffer = io.StringIO()
        header = dict.fromkeys(name for row in rows for name in row)
        writer = csv.DictWriter(buffer, list(header), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: cell(printable(v)) if isinstance(v, str) else v for k, v in row.items()})
        return buffer.getvalue()

    def csv_address(self) -> str:
        """Return the CSV as an address, so that a page that was handed on still has it."""
        return f"data:text/csv;charset=utf-8;base64,{base64.b64encode(self.csv().encode()).decode()}"


def _fields(row: Any) -> dict[str, Any]:
    """Fields of a row by name; those of a dataclass or mapping in it are fields of their own."""
    tree: dict[str, Any] = {}
    for name, value in flat(row).items():
        parts = flat(value) if is_dataclass(value) else value
        tree |= parts if isinstance(parts, Mapping) else {name: value}
    return tree


def all_tables(study: Study) -> dict[str, Table[Any]]:
    """Make the tables that have rows, by name."""
    strategies = list(study.strategies.values())
    tables: tuple[Table[Any], ...] = (
        ADVICE.of(study.advice if any(each.choice for each in study.advice) else ()),
        GAIN.of(study.gain),
        STEP.of(study.step),
        LOADING.of(study.loading),
        LOADER.of(study.loader),
        STRATEGIES.of(strategies),
        COSTS.of([row for row in strategies if row.communication_exposed is not None]),
        SCALING.of(study.scaling),
        CHECKED.of(study.checked),
        (SIZES_TO_TARGET if study.params.batchsz_study.target else SIZES).of(study.sizes),
        BATCHSZ.of(list(study.batchsz.values())),
        ACCURACY.of(study.accuracy),
        TASKS.of(study.results.evaluate.tasks if study.results.evaluate else ()),
        CLAIMS.of(study.claims),
    )
    return {table.name: table for table in tables if table.rows}


# --- cells --------------------------------------------------------------------------------------------


def times(value: float) -> str:
    """Say a speedup."""
    return f"{text.ratio(value)}×"


def _points(value: float) -> str:
    return f"{100 * value:+z.1f}"


def _small_points(value: float) -> str:
    return f"{100 * value:+z.2f}"


def _share(value: float) -> str:
    """Say a relative difference: exact ones are of the order of rounding."""
    if value == 0:
        return "0"
    return text.percent(value) if value >= 0.001 else f"{value:.0e}"


def _two_digits(value: float) -> str:
    """Say a prediction: more digits would claim too much."""
    return f"{float(f'{value:.2g}'):g}"


def _accuracy(value: float | None, ci95: float | None, *notes: str) -> Cell | None:
    return None if value is None else Cell(text.accuracy(value, ci95), notes=notes)


def _strategy(row: StrategyRow) -> Cell:
    notes = [row.how] if row.how else []
    if row.status != "ok":
        notes.append(f"{row.status}: {row.reason}")
    if row.training_status not in {"", "ok"} and row.training_reason != row.reason:
        notes.append(f"training {row.training_status}: {row.training_reason}")
    return Cell("", row.variant, tuple(notes))


def _resources(row: StrategyRow) -> str | None:
    return f"{row.replicas} × {row.threads_per_replica}" if row.replicas else None


def _run_accuracy(row: BatchszRow) -> Cell | None:
    after = (f"after {row.episodes:,} episodes",) if row.status == "stopped" else ()
    return _accuracy(row.val_accuracy, row.val_accuracy_ci95, *after)


def _without_cosine(row: TaskAccuracy) -> Cell | None:
    return _accuracy(row.relation_accuracy, row.relation_accuracy_ci95) if row.adds_cosine else None


def _transductive(row: TaskAccuracy) -> Cell | None:
    if not row.transductive_episodes:
        return None
    count = f"{row.transductive_episodes:,} episodes"
    return _accuracy(row.transductive_accuracy, row.transductive_accuracy_ci95, count)


# --- tables -------------------------------------------------------------------------------------------

STEP = Table[StepRow](
    "step",
    "Ways to compute a step, tried in turn on one replica: speedup is over fp32, with pairing concat as in "
    "the paper if that was tried, or over the slowest where fp32 was not tried",
    Column("pairing", lambda row: row.pairing, number=False),
    Column("precision", lambda row: row.precision, number=False),
    Column("compile", lambda row: row.compile, number=False),
    Column("seconds per step", lambda row: row.seconds_per_step, text.number),
    Column("speedup", lambda row: row.speedup, times),
    Column("chosen", lambda row: "yes" if row.chosen else "", number=False),
)
ADVICE = Table[Advice](
    "advice",
    "What to take on this machine, and what it gains over the setting that its row names. Intervals "
    "of strategy, loader and computing hold for all comparisons of a row together, wider than single ones",
    Column("question", lambda row: row.topic, number=False),
    Column("take", lambda row: Cell("", lead=row.choice or "not known"), number=False),
    Column("gain", lambda row: row.buys, number=False),
    Column("how sure", lambda row: row.sure, number=False),
    layout="stacked",
)
OF_A_WAY: tuple[Column[WayRow[EpisodeWay]], ...] = (
    Column("speedup", lambda row: row.speedup, times),
    Column("waiting for data", lambda row: row.waiting, text.percent),
)
GAIN = Table[WayRow[EpisodeWay]](
    "gain",
    "All of the advice against the default: one training in two ways, whose steps, with their loading, are "
    "timed in blocks in turn",
    Column("way", lambda row: row.way.way, number=False),
    Column("strategy", lambda row: row.way.strategy, number=False),
    Column("replicas × threads", lambda row: f"{row.way.replicas} × {row.way.threads_per_replica}"),
    Column("loading", lambda row: str(row.way.loading), number=False),
    Column("computing", lambda row: str(row.way.computing), number=False),
    Column("episodes", lambda row: row.items),
    Column("time", lambda row: row.seconds, text.seconds),
    *OF_A_WAY,
)
LOADING = Table[WayRow[EpisodeWay]](
    "loading",
    "The loader inside the step: training has the cores meanwhile. Speedup is over jpeg without workers, as "
    "a plain DataLoader reads",
    Column("backend", lambda row: row.way.backend, number=False),
    Column("workers", lambda row: row.way.workers),
    Column("training by", lambda row: f"{row.way.strategy} × {row.way.replicas}", number=False),
    Column("seconds per step", lambda row: row.seconds_per_step, text.number),
    *OF_A_WAY,
    Column("memory", lambda row: row.memory_bytes, text.size),
)
LOADER = Table[LoaderRow](
    "loader",
    "Loading alone, as Table 2 of 2020: batches are read and thrown away. Speedup is "
    "over no workers with the same backend",
    Column("backend", lambda row: row.backend, number=False),
    Column("workers", lambda row: row.workers),
    Column("seconds per batch", lambda row: row.seconds_per_batch, text.number),
    Column("speedup", lambda row: row.speedup, times),
    Column("efficiency", lambda row: row.efficiency, text.percent),
    Column("memory", lambda row: row.memory_bytes, text.size),
    Column("episodes/s", lambda row: row.episodes_per_second, text.number),
    Column("first batch", lambda row: row.first_batch_seconds, text.seconds),
)
STRATEGIES = Table[StrategyRow](
    "strategies",
    "Strategies: speedup is over serial, one replica; efficiency is speedup over replicas (or threads). "
    "Seconds are medians, speedups geometric means, over the launches of the processes",
    Column("strategy", _strategy, number=False),
    Column("replicas × threads", _resources),
    Column("seconds per step", lambda row: row.seconds_per_step, text.number),
    Column("speedup", lambda row: row.speedup, times),
    Column("efficiency", lambda row: row.efficiency, text.percent),
    Column("episodes/s", lambda row: row.episodes_per_second, text.number),
    Column("gradient, difference to serial's", lambda row: row.gradient_difference, _share),
    Column("validation accuracy", lambda row: _accuracy(row.val_accuracy, row.val_accuracy_ci95)),
    Column("whole training", lambda row: row.training_seconds, text.seconds),
    Column("peak memory", lambda row: row.peak_memory_bytes, text.size),
)
COSTS = Table[StrategyRow](
    "costs",
    "What a step costs: bytes one process sends, and how its time is shared out, by the profiler; "
    "waiting for a peer's message counts as messages",
    Column("strategy", lambda row: row.variant, number=False),
    Column("sent per process", lambda row: row.bytes_sent, text.size),
    Column("messages, not hidden", lambda row: row.communication_exposed, text.percent),
    Column("messages, hidden", lambda row: row.communication_hidden, text.percent),
    Column("idle", lambda row: row.idle, text.percent),
    Column("memory per process", lambda row: row.peak_memory_per_process_bytes, text.size),
    Column("slower than serial, because", lambda row: row.why_slow, number=False),
)
SCALING = Table[ScalingRow](
    "scaling",
    "Predicted, not measured: DDP on more devices such as these. Strong: the same batchsz, shared out; weak: "
    "as many episodes for each replica, and speedup counts episodes per second",
    Column("link between nodes", lambda row: row.link, number=False),
    Column("scaling", lambda row: row.mode, number=False),
    Column("devices", lambda row: row.devices),
    Column("nodes", lambda row: row.nodes),
    Column("batchsz", lambda row: row.batchsz),
    Column("seconds per step", lambda row: row.seconds_per_step, _two_digits),
    Column("speedup", lambda row: row.speedup, lambda value: f"{_two_digits(value)}×"),
    Column("efficiency", lambda row: row.efficiency, lambda share: text.percent(share, 0)),
)
CHECKED = Table[CheckedRow](
    "scaling_checked",
    "The model checked here: what it says of a step, and what the step took",
    Column("strategy", lambda row: row.variant, number=False),
    Column("replicas", lambda row: row.devices),
    Column("predicted, seconds per step", lambda row: row.predicted, text.number),
    Column("measured", lambda row: row.measured, text.number),
    Column("error", lambda row: row.error, lambda share: f"{_points(share)}%"),
)
SIZES = Table[SizeRow](
    "sizes",
    "Batch sizes in the same time of training: intervals are over trainings, differences paired by seed, "
    "each interval by itself. The learning rate follows batchsz_study.lr_scaling and falls to 0",
    Column("batchsz", lambda row: row.batchsz),
    Column("validation accuracy", lambda row: row.val_accuracy, text.percent),
    Column("minus the baseline's, points", lambda row: row.difference, _points),
    Column("seeds", lambda row: row.seeds),
    Column("steps", lambda row: row.steps),
    Column("episodes", lambda row: row.episodes),
    Column("learning rate", lambda row: row.learning_rate, text.number),
)
SIZES_TO_TARGET = Table[SizeRow](
    SIZES.name,
    SIZES.caption,
    *SIZES.columns,
    Column("time to the target", lambda row: row.seconds_to_target, text.seconds),
)
BATCHSZ = Table[BatchszRow](
    "batchsz",
    "The experiment of 2020, batch sizes under DDP: the same episodes; speedup is over the baseline. A share "
    "of communication below 0 is too short to be seen",
    Column("batchsz", lambda row: row.batchsz),
    Column(
        "whole run",
        lambda row: Cell(row.status, notes=(row.reason,) if row.reason else (), badge=True),
        number=False,
    ),
    Column("time", lambda row: row.seconds, text.seconds),
    Column("projected", lambda row: row.projected_seconds, text.seconds),
    Column("speedup, blocks", lambda row: row.speedup, times),
    Column("speedup, whole runs", lambda row: row.run_speedup, times),
    Column("communication", lambda row: row.communication_share, text.percent),
    Column("validation accuracy", _run_accuracy),
)
ACCURACY = Table[AccuracyComparison](
    "accuracy",
    "Validation accuracy of two trainings; rounding: of a training against itself, first weights off by 1e-7",
    Column("compared", lambda row: f"{row.first} minus {row.second}", number=False),
    Column("difference, points", lambda row: row.difference, _small_points),
    Column("interval", lambda row: row.confidence, lambda share: f"{share:.0%}"),
    Column("the same?", lambda row: Cell(row.verdict, badge=True), number=False),
    Column("margin, points", lambda row: row.margin, lambda share: f"± {100 * share:g}"),
    Column("rounding alone, points", lambda row: row.rounding, _small_points),
    Column("interval over", lambda row: row.over, number=False),
    Column("paired episodes", lambda row: row.episodes),
)
TASKS = Table[TaskAccuracy](
    "tasks",
    "Accuracy on the test split, the margin paired by episode",
    Column("episodes", lambda row: f"{row.n_way}-way {row.k_shot}-shot", number=False),
    Column("accuracy", lambda row: _accuracy(row.accuracy, row.accuracy_ci95)),
    Column(
        "cosine of the same embedding", lambda row: _accuracy(row.cosine_accuracy, row.cosine_accuracy_ci95)
    ),
    Column(
        "margin over the cosine, points",
        lambda row: f"{_points(row.margin)} ± {100 * row.margin_ci95:.1f}",
    ),
    Column("head before the cosine is added", _without_cosine),
    Column("transductive: batch norm by the episode's own images", _transductive),
)
CLAIMS = Table[Claim](
    "claims",
    "Claims of the report of 2020, of which docs/study2020.md tells",
    Column("claim", lambda row: Cell(row.claim, lead=row.id), number=False),
    Column("in 2020", lambda row: row.study_figure, number=False),
    Column("here", lambda row: row.measured, number=False),
    Column("verdict", lambda row: Cell(row.verdict, badge=True), number=False),
    Column("why", lambda row: row.reason, number=False),
    layout="stacked",
)
