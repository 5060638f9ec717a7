"""Tables of the report: rows of the summary as HTML, rounded for reading, and as CSV, with every digit."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from parashot.plain import cell, printable
from parashot.questions import text
from parashot.questions.study2020 import BEST_SECONDS, BEST_VALIDATION, TABLE_2
from parashot.report.markup import Markup, element, join

Row = Mapping[str, Any]
NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """One column: the key of the summary's rows, its header, and how a cell is said."""

    key: str
    header: str
    say: Callable[[Row], object]
    number: bool = True


@dataclass(frozen=True)
class Table:
    """One table; `stacked` ones become cards on a narrow screen, the others scroll sideways."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    stacked: bool = False
    narrow: bool = False


def all_tables(summary: Mapping[str, Any]) -> dict[str, Table]:
    """Make the tables that have rows, by name."""
    tables = (
        _step(summary),
        _loader(summary),
        _study_loader(),
        _strategies(summary),
        _costs(summary),
        _comparison(summary),
        scaling_table(summary["scaling"]["rows"]),
        checked_table(summary["scaling"]["checked"]),
        _published(summary),
        _batchsz(summary),
        _accuracy(summary),
        _tasks(summary),
        _time_to_accuracy(summary),
        _confusion(summary),
        _claims(summary),
        _advice(summary),
    )
    return {table.name: table for table in tables if table.rows}


def as_csv(table: Table) -> str:
    """Every key of the rows, unrounded; None is an empty cell, and no text a formula."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(table.rows[0]), lineterminator="\n")
    writer.writeheader()
    rows = (
        {key: cell(printable(value)) if isinstance(value, str) else value for key, value in row.items()}
        for row in table.rows
    )
    writer.writerows(rows)
    return buffer.getvalue()


def as_html(table: Table) -> Markup:
    """Render a table with its caption and its CSV to download.

    Each cell carries its key, and where it shows a number `data-value`, the number with every digit.
    """
    head = element("tr", [_header(column) for column in table.columns])
    body = [element("tr", [_cell(column, row) for column in table.columns]) for row in table.rows]
    label = f"caption-{table.name}"
    whole = element(
        "table",
        element("thead", head),
        element("tbody", body),
        class_="stacked" if table.stacked else None,
        data_table=table.name,
        aria_labelledby=label,
    )
    # The caption stays out of what scrolls sideways: on a phone it would scroll away with a wide table.
    caption = element("p", element("span", table.caption, id=label), " ", _download(table), class_="caption")
    scroll = element("div", whole, class_="scroll", tabindex="0", role="region", aria_labelledby=label)
    return element("div", caption, scroll, class_="table narrow" if table.narrow else "table")


def badge(word: str) -> Markup:
    """A verdict or status that can be told by its words, its sign and its colour."""
    signs = {
        "holds": "✓",
        "does not hold": "✗",
        "undecided": "?",
        "ok": "✓",
        "equivalent": "✓",
        "gain": "✓",
        "loss": "✗",
        "different": "✗",
    }
    kind = {
        "holds": "yes",
        "ok": "yes",
        "equivalent": "yes",
        "gain": "yes",
        "loss": "no",
        "does not hold": "no",
        "different": "no",
        "stopped": "no",
        "undecided": "open",
    }.get(word, "none")
    sign = element("span", f"{signs.get(word, '–')} ", aria_hidden="true")
    return element("span", sign, word, class_=f"badge {kind}")


def _header(column: Column) -> Markup:
    return element("th", column.header, scope="col", class_="number" if column.number else None)


def _cell(column: Column, row: Row) -> Markup:
    value = row.get(column.key)
    counted = column.number and isinstance(value, int | float) and not isinstance(value, bool)
    return element(
        "td",
        column.say(row),
        class_="number" if column.number else None,
        data_label=column.header,
        data_key=column.key,
        data_value=repr(value) if counted else None,
    )


def _download(table: Table) -> Markup:
    """The CSV within the page, so that a page that was handed on still has it."""
    data = base64.b64encode(as_csv(table).encode()).decode()
    address = f"data:text/csv;charset=utf-8;base64,{data}"
    label = f"Download the table {table.name} as CSV"
    return element(
        "a", "CSV", href=address, download=f"{table.name}.csv", class_="download", aria_label=label
    )


def _plain(key: str) -> Callable[[Row], object]:
    def say(row: Row) -> object:
        value = NOTHING if row[key] is None else row[key]
        return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    return say


def _with(key: str, say: Callable[[float], str]) -> Callable[[Row], object]:
    """Say a number, and its interval below where it has one."""

    def inner(row: Row) -> object:
        if row[key] is None:
            return NOTHING
        low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
        if low is None or high is None or low == high:
            return say(row[key])
        return join(say(row[key]), " ", element("small", f"{say(low)} to {say(high)}"))

    return inner


def _times(value: float) -> str:
    return f"{text.ratio(value)}×"


def _column(key: str, header: str, say: Callable[[float], str] | None = None) -> Column:
    return Column(key, header, _with(key, say) if say else _plain(key))


def _words(key: str, header: str) -> Column:
    return Column(key, header, _plain(key), number=False)


def _step(summary: Mapping[str, Any]) -> Table:
    columns = (
        _words("pairing", "pairing"),
        _words("precision", "precision"),
        _words("compile", "compile"),
        _column("seconds_per_step", "seconds per step", text.number),
        _column("speedup", "speedup", _times),
        Column("chosen", "chosen", lambda row: "yes" if row["chosen"] else "", number=False),
    )
    caption = "Ways to compute a step, tried in turn on one replica: speedup is over the slowest"
    return Table("step", caption, columns, tuple(summary["step"]))


def _loader(summary: Mapping[str, Any]) -> Table:
    columns = (
        _words("backend", "backend"),
        _column("workers", "workers"),
        _column("seconds_per_batch", "seconds per batch", text.number),
        _column("speedup", "speedup", _times),
        _column("efficiency", "efficiency", text.percent),
        _column("memory_bytes", "memory", text.size),
        _column("episodes_per_second", "episodes/s", text.number),
        _column("first_batch_seconds", "first batch", text.seconds),
    )
    caption = "Table 2, measured here: loader workers. Speedup is over no workers with the same backend"
    return Table("loader", caption, columns, tuple(summary["loader"]))


def _study_loader() -> Table:
    columns = (
        _column("workers", "workers"),
        _column("seconds", "seconds", text.number),
        _column("speedup", "speedup", _times),
        _column("efficiency", "efficiency", lambda value: f"{100 * value:.3g}%"),
    )
    rows = tuple(asdict(row) for row in TABLE_2)
    return Table(
        "loader_study",
        "Table 2, as the study printed it: 40 threads, 0.00044 s without workers",
        columns,
        rows,
        narrow=True,
    )


def _strategies(summary: Mapping[str, Any]) -> Table:
    columns = (
        Column("variant", "strategy", _strategy, number=False),
        Column("replicas", "replicas × threads", _resources),
        _column("seconds_per_step", "seconds per step", text.number),
        _column("speedup", "speedup", _times),
        _column("efficiency", "efficiency", text.percent),
        _column("episodes_per_second", "episodes/s", text.number),
        Column("val_accuracy", "validation accuracy", _val_accuracy),
        _column("training_seconds", "whole training", text.seconds),
        _column("peak_memory_bytes", "peak memory", text.size),
    )
    caption = (
        "Strategies: speedup is over serial, one replica; efficiency is speedup over replicas (or threads)"
    )
    return Table("strategies", caption, columns, tuple(summary["strategies"].values()))


def _costs(summary: Mapping[str, Any]) -> Table:
    columns = (
        _words("variant", "strategy"),
        _column("bytes_sent", "sent per process", text.size),
        _column("communication_exposed", "messages, not hidden", text.percent),
        _column("communication_hidden", "messages, hidden", text.percent),
        _column("idle", "idle", text.percent),
        _column("peak_memory_per_process_bytes", "memory per process", text.size),
        _words("why_slow", "slower than serial, because"),
    )
    rows = tuple(row for row in summary["strategies"].values() if row["communication_exposed"] is not None)
    caption = (
        "What a step costs: bytes one process sends, and how its time is shared out, by the profiler; "
        "waiting for a peer's message counts as messages"
    )
    return Table("costs", caption, columns, rows)


def _strategy(row: Row) -> Markup:
    notes = [row["how"]] if row["how"] else []
    if row["status"] != "ok":
        notes.append(f"{row['status']}: {row['reason']}")
    if row["training_status"] not in {"", "ok"}:
        notes.append(f"training {row['training_status']}: {row['training_reason']}")
    return join(element("strong", row["variant"]), [element("small", note) for note in dict.fromkeys(notes)])


def _resources(row: Row) -> str:
    return f"{row['replicas']} × {row['threads_per_replica']}" if row["replicas"] else NOTHING


def _val_accuracy(row: Row) -> object:
    return (
        NOTHING
        if row["val_accuracy"] is None
        else text.accuracy(row["val_accuracy"], row["val_accuracy_ci95"])
    )


def scaling_table(rows: Sequence[Row]) -> Table:
    """Predictions by link, mode and devices."""
    columns = (
        _words("link", "link between nodes"),
        _words("mode", "scaling"),
        _column("devices", "devices"),
        _column("nodes", "nodes"),
        _column("batchsz", "batchsz"),
        _column("seconds_per_step", "seconds per step", text.number),
        _column("speedup", "speedup", _times),
        _column("efficiency", "efficiency", text.percent),
    )
    caption = (
        "Predicted, not measured: DDP on more devices such as these. Strong: the same batchsz, shared out; "
        "weak: as many episodes for each replica, and speedup counts episodes per second"
    )
    return Table("scaling", caption, columns, tuple(rows))


def checked_table(rows: Sequence[Row]) -> Table:
    """Predictions beside measurements."""
    columns = (
        _words("variant", "strategy"),
        _column("devices", "replicas"),
        _column("predicted", "predicted, seconds per step", text.number),
        _column("measured", "measured", text.number),
        _column("error", "error", _signed),
    )
    caption = "The model checked here: what it says of a step, and what the step took"
    return Table("scaling_checked", caption, columns, tuple(rows))


def _published(summary: Mapping[str, Any]) -> Table:
    columns = (
        _words("study", "training"),
        _column("devices", "GPUs"),
        _column("nodes", "nodes"),
        _words("link", "link"),
        _column("base_devices", "from GPUs"),
        _column("base_seconds", "seconds per step, stated", text.number),
        _column("predicted", "predicted", text.number),
        _column("measured", "measured there", text.number),
        _column("error", "error", _signed),
        _words("source", "source"),
    )
    caption = (
        "Published scalings, predicted from their own figures: none of the messages hidden, down to all that "
        "the backward pass can hide"
    )
    return Table("scaling_published", caption, columns, tuple(summary["scaling"]["published"]))


def _signed(share: float) -> str:
    return f"{100 * share + 0.0:+.1f}%"


def _comparison(summary: Mapping[str, Any]) -> Table:
    columns = (
        _words("aspect", "aspect"),
        _words("study_dp", "DataParallel, the study"),
        Column("dp", "DataParallel, here", _origin("dp"), number=False),
        _words("study_ddp", "DistributedDataParallel, the study"),
        Column("ddp", "DistributedDataParallel, here", _origin("ddp"), number=False),
    )
    return Table(
        "table1",
        "Table 1: DP and DDP, each cell measured here or cited",
        columns,
        tuple(summary["table1"]),
        True,
    )


def _origin(name: str) -> Callable[[Row], Markup]:
    return lambda row: join(row[name], " ", element("small", row[f"{name}_origin"]))


def _batchsz(summary: Mapping[str, Any]) -> Table:
    columns = (
        _column("batchsz", "batchsz"),
        Column("status", "whole run", _run, number=False),
        _column("seconds", "time", text.seconds),
        _column("projected_seconds", "projected", text.seconds),
        _column("speedup", "speedup, blocks", _times),
        _column("run_speedup", "speedup, whole runs", _times),
        _column("communication_share", "communication", _share),
        Column("val_accuracy", "validation accuracy", _batchsz_accuracy),
    )
    caption = "Batch sizes under DDP: the same episodes; speedup is over the baseline"
    return Table("batchsz", caption, columns, tuple(summary["batchsz"]))


def _run(row: Row) -> Markup:
    return join(badge(row["status"]), element("small", row["reason"]) if row["reason"] else None)


def _batchsz_accuracy(row: Row) -> object:
    if row["status"] != "stopped":
        return _val_accuracy(row)
    return join(_val_accuracy(row), element("small", f"after {row['episodes']:,} episodes"))


def _share(value: float) -> str:
    return text.percent(max(value, 0.0))


def _accuracy(summary: Mapping[str, Any]) -> Table:
    columns = (
        Column("first", "compared", lambda row: f"{row['first']} minus {row['second']}", number=False),
        _column("difference", "difference, points", lambda value: f"{100 * value + 0.0:+.2f}"),
        Column("verdict", "the same?", lambda row: badge(row["verdict"]), number=False),
        _column("margin", "margin, points", lambda value: f"± {100 * value:g}"),
        _column("episodes", "paired episodes"),
        _column("seeds", "seeds"),
    )
    return Table("accuracy", "Equivalence of validation accuracy", columns, tuple(summary["accuracy"]))


def _tasks(summary: Mapping[str, Any]) -> Table:
    columns = (
        Column("k_shot", "episodes", lambda row: f"{row['n_way']}-way {row['k_shot']}-shot", number=False),
        Column("accuracy", "accuracy", _task_accuracy("")),
        Column("cosine_accuracy", "cosine of the same embedding", _task_accuracy("cosine_")),
        Column("margin", "margin over the cosine, points", _task_margin),
        Column("verdict", "a gain?", lambda row: badge(row["verdict"]), number=False),
        Column("relation_accuracy", "relation head alone", _task_accuracy("relation_")),
        Column("transductive_accuracy", "transductive", _transductive),
    )
    caption = (
        "Accuracy on the test split, the margin paired by episode. Transductive: batch norm by the episode's "
        "own images, which is another task"
    )
    return Table("tasks", caption, columns, tuple(summary.get("tasks", ())))


def _task_accuracy(kind: str) -> Callable[[Row], object]:
    return lambda row: text.accuracy(row[f"{kind}accuracy"], row[f"{kind}accuracy_ci95"])


def _task_margin(row: Row) -> object:
    return f"{100 * row['margin'] + 0.0:+.1f} ± {100 * row['margin_ci95']:.1f}"


def _transductive(row: Row) -> object:
    if not row["transductive_episodes"]:
        return NOTHING
    said = text.accuracy(row["transductive_accuracy"], row["transductive_accuracy_ci95"])
    return join(said, element("small", f"{row['transductive_episodes']:,} episodes"))


_LEVELS = {
    "seconds_to_50": "to 50%",
    "seconds_to_55": "to 55%",
    "seconds_to_58_2": "to 58.2%",
    "seconds_to_62": "to 62%",
}


def _time_to_accuracy(summary: Mapping[str, Any]) -> Table:
    columns = (
        _words("strategy", "training"),
        _column("pretraining_seconds", "pretraining", text.seconds),
        _column("training_seconds", "training", text.seconds),
        _column("images", "images seen", lambda value: f"{value:,.0f}"),
        Column("val_accuracy", "validation accuracy", _val_accuracy),
        *(_column(key, header, text.seconds) for key, header in _LEVELS.items()),
    )
    caption = (
        "Time to accuracy, pretraining counted in: when validation came to a level and stayed there. "
        f"{100 * BEST_VALIDATION:g}% is the study's best validation, after {BEST_SECONDS:,} s"
    )
    rows = tuple(summary.get("time_to_accuracy", ()))
    is_told = any(row["pretraining_seconds"] or any(row[key] for key in _LEVELS) for row in rows)
    return Table("time_to_accuracy", caption, columns, rows if is_told else ())


def _confusion(summary: Mapping[str, Any]) -> Table:
    columns = (
        _words("actual", "class"),
        _words("taken_for", "taken for"),
        _column("share", "share of its queries", text.percent),
        _column("taken", "queries"),
        _column("offered", "of those that met it"),
    )
    caption = "The classes of the test split that are mistaken most often"
    return Table("confusion", caption, columns, tuple(summary.get("confusion", ())), narrow=True)


def _claims(summary: Mapping[str, Any]) -> Table:
    columns = (
        Column(
            "id", "claim", lambda row: join(element("strong", row["id"]), " ", row["claim"]), number=False
        ),
        _words("study_figure", "the study"),
        _words("measured", "here"),
        Column("verdict", "verdict", lambda row: badge(row["verdict"]), number=False),
        _words("reason", "why"),
    )
    return Table("claims", "The study's claims", columns, tuple(summary["claims"]), True)


def _advice(summary: Mapping[str, Any]) -> Table:
    columns = (
        _words("topic", "what"),
        Column("choice", "use", lambda row: row["choice"] or NOTHING, number=False),
        _words("buys", "buys"),
        _words("sure", "how sure"),
    )
    return Table("advice", "What to use on this machine", columns, tuple(summary["advice"]), True)
