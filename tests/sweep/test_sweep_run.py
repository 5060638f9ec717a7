"""A sweep from its points to its folders, with this process as the only node; Ray is in test_sweep_ray.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tiny_data import tiny_tree

from parashot.cli import main
from parashot.errors import DataError, ParamsError
from parashot.params import Params
from parashot.recipes import Value
from parashot.records import read_result, read_runs
from parashot.sweep import node
from parashot.sweep.engine import Nodes
from parashot.sweep.grid import Point, grid
from parashot.sweep.run import Outcome, sweep
from parashot.sweep.table import as_json, table
from parashot.train.job import Job
from parashot.train.records import TrainResult
from parashot.train.run import train

pytestmark = pytest.mark.usefixtures("one_core", "this_process")
TREE = tiny_tree()
FILES = {"history.csv", "metrics.json", "model.pt", "records.jsonl", "result.json", "val_episodes.csv"}


class ThisProcess:
    """Calls one after another, here."""

    def share(self, value: object) -> object:
        raise AssertionError("one machine needs no delivery")

    def call_all(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        for index, argument in reversed(list(enumerate(arguments))):  # answers come in any order
            yield index, function(argument)


@pytest.fixture
def this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Nodes]:
    """No Ray; returns what was connected to."""
    connected: list[Nodes] = []

    @contextmanager
    def engine(nodes: Nodes) -> Iterator[ThisProcess]:
        connected.append(nodes)
        yield ThisProcess()

    monkeypatch.setattr("parashot.sweep.run.engine", engine)
    (tmp_path / "shelf").mkdir()
    monkeypatch.setattr(node, "node_folder", lambda: tmp_path / "shelf")
    return connected


def points(**choices: list[Value]) -> list[Point]:
    return grid(TREE, {key.replace("__", "."): values for key, values in choices.items()})


@pytest.fixture
def run(tiny_packed: Path, tmp_path: Path) -> Callable[..., list[Outcome]]:
    def run(points: list[Point], strategy: str = "serial") -> list[Outcome]:
        return sweep(points, strategy, tiny_packed, tmp_path / "out", Nodes(), lambda line: None)

    return run


def test_every_point_has_its_folder(run: Callable[..., list[Outcome]], tmp_path: Path) -> None:
    outcomes = run(points(seed=[0, 1], train__batchsz=[2]))
    assert [each.status for each in outcomes] == ["done", "done"]
    assert [each.point.settings["seed"] for each in outcomes] == [0, 1]
    assert set((tmp_path / "out").iterdir()) == {each.folder for each in outcomes}
    for each in outcomes:
        assert {path.name for path in each.folder.iterdir()} == FILES
        assert read_result(TrainResult, each.folder / "result.json") == each.result
        (record,) = read_runs(each.folder / "records.jsonl")
        assert (record.name, record.stage, record.status) == (each.point.name, "sweep", "ok")
        assert record.params["seed"] == str(each.point.settings["seed"])
        assert record.tags["sweep"] == each.point.name
    assert list((tmp_path / "shelf").glob("run-*")) == []


def test_a_run_is_the_training_by_itself(
    run: Callable[..., list[Outcome]], tiny_packed: Path, tmp_path: Path
) -> None:
    (outcome,) = run(points(seed=[5]))
    train(Job("serial", outcome.point.params, tiny_packed, tmp_path / "alone"))
    for name in ("model.pt", "val_episodes.csv"):
        assert (outcome.folder / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


def test_a_sweep_goes_on_where_it_was(run: Callable[..., list[Outcome]], this_process: list[Nodes]) -> None:
    (first,) = run(points(seed=[1]))
    before = (first.folder / "records.jsonl").read_bytes()
    outcomes = run(points(seed=[0, 1, 2]))
    assert [each.status for each in outcomes] == ["done", "kept", "done"]
    assert (outcomes[1].folder / "records.jsonl").read_bytes() == before
    assert outcomes[1].result == first.result
    connections = len(this_process)
    assert [each.status for each in run(points(seed=[2, 0]))] == ["kept", "kept"]
    assert len(this_process) == connections  # nothing was started


def test_what_a_run_depends_on_makes_another(run: Callable[..., list[Outcome]]) -> None:
    run(points(seed=[0]))
    assert [each.status for each in run(points(train__batchsz=[2]))] == ["done"]
    assert [each.status for each in run(points(seed=[0]), "dp")] == ["done"]
    (same,) = run(points(seed=[0], claims__resamples=[300]))
    assert same.status == "kept"


def test_a_damaged_result_is_computed_again(run: Callable[..., list[Outcome]]) -> None:
    (first,) = run(points())
    (first.folder / "result.json").write_text("{")
    assert run(points())[0].status == "done"
    assert run(points())[0].status == "kept"


def failing_on(seed: int, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(job: Job) -> TrainResult | None:
        if job.params.seed == seed:
            raise error
        return train(job)

    monkeypatch.setattr(node, "train", fails)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DataError("val.images.npy:\n not a packed array"), "val.images.npy:\\n not a packed array"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
    ],
)
def test_a_run_that_fails_harms_no_other(
    run: Callable[..., list[Outcome]], monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    with monkeypatch.context() as patch:
        failing_on(1, error, patch)
        outcomes = run(points(seed=[0, 1, 2]))
    assert [each.status for each in outcomes] == ["done", "failed", "done"]
    assert outcomes[1].reason == reason
    assert not outcomes[1].folder.exists()
    assert [each.status for each in run(points(seed=[0, 1, 2]))] == ["kept", "done", "kept"]


def test_what_a_node_cannot_run_has_failed(
    run: Callable[..., list[Outcome]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "train", lambda job: TrainResult("serial", "skipped", "no room"))
    (outcome,) = run(points())
    assert (outcome.status, outcome.reason, outcome.folder.exists()) == ("failed", "no room", False)


def test_another_version_of_the_code_is_refused(
    run: Callable[..., list[Outcome]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parashot.sweep.run.code_digest", lambda: "older")
    (outcome,) = run(points())
    assert "another version of parashot" in outcome.reason


def test_a_strategy_asked_for_by_name_is_on(run: Callable[..., list[Outcome]]) -> None:
    (outcome,) = run(points(parallel__dp__enabled=[False]), "dp")
    assert outcome.status == "done"
    assert outcome.result is not None
    assert outcome.result.strategy == "dp"


@pytest.mark.parametrize(
    ("choices", "strategy", "message"),
    [
        ({"seed": [0]}, "tpu", "--strategy tpu: unknown; choose one of: serial, dp"),
        ({"evaluate.k_query": [3, 4]}, "serial", "evaluate.k_query=4: does not fit the packed episodes"),
        (
            {"pretrain.epochs": [0, 5]},
            "serial",
            "pretrain.epochs: 5, but the runs of a sweep begin from random",
        ),
        ({"parallel.device": ["cuda"]}, "serial", "parallel.device: cuda, but a run is given no GPU"),
        ({"claims.resamples": [100, 200]}, "serial", "are the same training; leave one out"),
    ],
)
def test_what_cannot_run_is_said_before_anything_starts(
    run: Callable[..., list[Outcome]],
    this_process: list[Nodes],
    choices: dict[str, list[Value]],
    strategy: str,
    message: str,
) -> None:
    with pytest.raises(ParamsError) as raised:
        run(grid(TREE, choices), strategy)
    assert message in str(raised.value)
    assert this_process == []


def outcome(
    settings: dict[str, Value], params: Params, result: TrainResult | None, reason: str = ""
) -> Outcome:
    return Outcome(Point(settings, params), Path("out/a1"), "done" if result else "failed", reason, result)


def test_the_table_shows_what_differs_and_what_came_of_it() -> None:
    (point,) = points()
    good = TrainResult("serial", "ok", "", seconds=12.34, val_accuracy=0.7, val_accuracy_ci95=0.0123)
    outcomes = [
        outcome({"seed": 0, "train.batchsz": 4}, point.params, good),
        outcome({"seed": 1, "train.batchsz": 4}, point.params, None, "lost"),
    ]
    assert table(outcomes, ["seed"]).splitlines() == [
        "seed  val accuracy  seconds  run",
        "0     70.0 ± 1.2%   12.3     a1",
        "1     failed                 lost",
    ]
    runs = json.loads(as_json(outcomes))["runs"]
    assert runs[0]["val_accuracy"] == 0.7
    assert runs[0]["settings"] == {"seed": 0, "train.batchsz": 4}
    assert (runs[1]["status"], runs[1]["reason"], runs[1]["val_accuracy"]) == ("failed", "lost", None)


# --- the command ------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tiny_packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the command sees it: params.yaml and the packed data."""
    (tmp_path / "params.yaml").write_text(json.dumps(TREE))  # JSON is YAML
    (tmp_path / "data").mkdir()
    (tmp_path / "data/packed").symlink_to(tiny_packed)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command(checkout: Path, capsys: pytest.CaptureFixture[str], this_process: list[Nodes]) -> None:
    assert main(["sweep", "-S", "seed=0,1", "-S", "train.batchsz=2", "--cpus-per-run", "2"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3
    assert printed.out.startswith("seed  val accuracy")
    assert "runs: 2; there already: 0" in printed.err
    assert this_process == [Nodes(cpus=2)]
    assert main(["sweep", "-S", "train.batchsz=2", "-S", "seed=1,0", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [each["status"] for each in runs] == ["kept", "kept"]
    assert all(Path(each["folder"], "model.pt").exists() for each in runs)


def test_what_tune_has_measured_settles_auto(checkout: Path) -> None:
    (checkout / "results").mkdir()
    measured = {"pairing": "concat", "precision": "fp32", "compile": "none"}
    (checkout / "results/choices.json").write_text(json.dumps(measured))
    assert main(["sweep", "-S", "train.batchsz=2"]) == 0
    (folder,) = (checkout / "results/sweep").iterdir()
    (record,) = read_runs(folder / "records.jsonl")
    assert (record.params["model.pairing"], record.params["train.precision"]) == ("concat", "fp32")


def test_a_failed_run_is_the_commands_failure(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_on(1, DataError("a bad image"), monkeypatch)
    assert main(["sweep", "-S", "seed=0,1"]) == 1
    printed = capsys.readouterr()
    assert "a bad image" in printed.out
    assert printed.err.splitlines()[-1] == "error: 1 of 2 runs failed; the same command tries them again"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-S", "train.bachsz=2"], "error: train.bachsz: unknown key"),
        (["-S", "train.batchsz=2,x"], "error: train.batchsz: 'x' is not allowed"),
        (["--recipe", "none"], "error: recipe 'none' is unknown"),
        (["--recipe", "miniimagenet"], "error: data: a sweep trains on the images that are packed"),
        (["--strategy", "tpu"], "error: --strategy tpu: unknown"),
    ],
)
def test_what_the_user_can_mend_is_one_line(
    checkout: Path,
    capsys: pytest.CaptureFixture[str],
    this_process: list[Nodes],
    arguments: list[str],
    message: str,
) -> None:
    assert main(["sweep", *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(message)
    assert printed.err.count("\n") == 1
    assert (printed.out, this_process) == ("", [])


def test_without_packed_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "params.yaml").write_text(json.dumps(TREE))
    monkeypatch.chdir(tmp_path)
    assert main(["sweep"]) == 1
    assert "run `dvc repro pack` to make it" in capsys.readouterr().err
