"""A sweep from its points to its folders, with this process as the only node; Ray is in test_sweep_ray.py."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from command_line import Commands
from tiny_data import SEED, dotted, tiny_tree

from parashot.errors import DataError, DeviceError, ParamsError, UsageError
from parashot.parsing import Value
from parashot.records import read_result, read_runs
from parashot.sweep import run as sweep_run
from parashot.sweep import trial
from parashot.sweep.cluster import Nodes, connected
from parashot.sweep.grid import Point, grid
from parashot.sweep.run import Outcome, sweep
from parashot.sweep.trial import Delivery, Trial, attempt, own_cores, receive, send, write_files
from parashot.tasks.relation import RelationTask
from parashot.train.job import Job, episode_job
from parashot.train.records import TrainResult
from parashot.train.run import train

pytestmark = pytest.mark.usefixtures("one_core")
Run = Callable[..., list[Outcome]]
TREE = tiny_tree({"train.episodes": 4, "train.val_episodes": 2, "evaluate.val_episodes": 4})


@pytest.fixture
def this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Nodes]:
    """No Ray: runs one after another, here; returns what was connected to."""
    seen: list[Nodes] = []

    @contextmanager
    def here(nodes: Nodes) -> Iterator[None]:
        seen.append(nodes)
        yield

    def run_trials(trials: Mapping[Path, Trial], nodes: Nodes, ended: Callable[[Path, str], None]) -> None:
        for folder, each in reversed([*trials.items()]):  # they end in any order
            ended(folder, attempt(each, partial(write_files, folder), lambda shared: shared))

    monkeypatch.setattr(sweep_run, "connected", here)
    monkeypatch.setattr(sweep_run, "run_trials", run_trials)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "shelf"))
    (tmp_path / "shelf").mkdir()
    return seen


def points(**choices: list[Value]) -> list[Point]:
    return grid(TREE, dotted(choices))


@pytest.fixture
def run(tiny_packed: Path, tmp_path: Path, this_process: list[Nodes]) -> Run:
    def run(points: list[Point], strategy: str = "serial") -> list[Outcome]:
        return sweep(points, strategy, SEED, tiny_packed, tmp_path / "out", Nodes(), lambda line: None)

    return run


def states(outcomes: list[Outcome]) -> list[str]:
    return [each.status for each in outcomes]


def test_every_point_has_the_folder_of_its_training(run: Run, tiny_packed: Path, tmp_path: Path) -> None:
    outcomes = run(points(seed=[0, 1], train__batchsz=[2]))
    assert states(outcomes) == ["done", "done"]
    assert [each.point.settings["seed"] for each in outcomes] == [0, 1]
    assert set((tmp_path / "out").iterdir()) == {each.folder for each in outcomes}
    for each in outcomes:
        assert read_result(TrainResult, each.folder / "result.json") == each.result
        (record,) = read_runs(each.folder / "records.jsonl")
        assert (record.name, record.stage, record.status) == (each.point.name, "sweep", "ok")
        assert record.params["seed"] == str(each.point.settings["seed"])
        assert record.tags["sweep"] == each.point.name
    assert list((tmp_path / "shelf").rglob("run-*")) == []
    point, alone = outcomes[1].point, tmp_path / "alone"
    job = episode_job("serial", point.params, tiny_packed, alone)
    train(replace(job, task=RelationTask(point.params, tiny_packed, validation_seed=SEED)))
    assert {path.name for path in outcomes[1].folder.iterdir()} == {path.name for path in alone.iterdir()}
    for name in ("val_episodes.csv", "model.safetensors"):
        assert (outcomes[1].folder / name).read_bytes() == (alone / name).read_bytes()


def test_a_sweep_goes_on_where_it_was(run: Run, this_process: list[Nodes]) -> None:
    (first,) = run(points(seed=[1]))
    before = (first.folder / "records.jsonl").read_bytes()
    outcomes = run(points(seed=[0, 1]))
    assert states(outcomes) == ["done", "kept"]
    assert (outcomes[1].folder / "records.jsonl").read_bytes() == before
    assert outcomes[1].result == first.result
    connections = len(this_process)
    assert states(run(points(seed=[1, 0]))) == ["kept", "kept"]
    assert len(this_process) == connections  # nothing was started
    (first.folder / "result.json").write_text("{")
    assert states(run(points(seed=[1]))) == ["done"]


def test_what_a_run_depends_on_makes_another() -> None:
    def key(choices: dict[str, list[Value]], strategy: str = "serial", **changes: Any) -> str:
        (point,) = grid(TREE, choices)
        first = Trial(point, strategy, SEED, Delivery(Path("packed"), "data"), 1, "code")
        return replace(first, **changes).key

    off: dict[str, list[Value]] = {"parallel.dp.enabled": [False]}
    same = [key({}), key({"claims.confidence": [0.9]}), key(off), key({}, cpus=2)]
    others = [key({"seed": [0]}), key({"train.batchsz": [2]}), key({}, "dp"), key(off, "dp")]
    others += [key({}, code="other"), key({}, validation_seed=9)]
    others.append(key({}, data=Delivery(Path("packed"), "other")))
    assert len({*same}) == 1 and len({*same, *others}) == 1 + len(others)


def test_a_run_that_fails_harms_no_other(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    faults: dict[int, Exception | TrainResult] = {
        1: DataError("a bad\nimage"),
        2: ZeroDivisionError("by 0"),
        3: TrainResult("serial", "skipped", "no room"),  # the node cannot run it
    }
    with monkeypatch.context() as patch:
        failing(faults, patch)
        outcomes = run(points(seed=[0, 1, 2, 3]))
    reasons = ["", "a bad\\nimage", "ZeroDivisionError: by 0", "no room"]
    assert [each.reason for each in outcomes] == reasons
    assert states(outcomes) == ["done", "failed", "failed", "failed"]
    assert [each.folder.exists() for each in outcomes] == [True, False, False, False]
    assert states(run(points(seed=[0, 1]))) == ["kept", "done"]


def failing(faults: dict[int, Exception | TrainResult], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let trainings of some seeds raise or return something else."""

    def fails(job: Job) -> TrainResult | None:
        assert isinstance(job.task, RelationTask)
        fault = faults.get(job.task.params.seed)
        if isinstance(fault, Exception):
            raise fault
        return fault or train(job)

    monkeypatch.setattr(trial, "train", fails)


@pytest.mark.parametrize(
    ("choices", "strategy", "message"),
    [
        ({"seed": [0]}, "tpu", "--strategy tpu: unknown; choose one of: serial, dp"),
        ({"pretrain.epochs": [0, 5]}, "serial", "pretrain.epochs: 5, but the runs of a sweep begin from"),
        ({"parallel.device": ["cuda"]}, "serial", "parallel.device: cuda, but a run is given no GPU"),
        ({"claims.confidence": [0.9, 0.95]}, "serial", "are the same training; leave one out"),
    ],
)
def test_what_cannot_run_is_said_before_anything_starts(
    run: Run,
    this_process: list[Nodes],
    choices: dict[str, list[Value]],
    strategy: str,
    message: str,
) -> None:
    with pytest.raises(UsageError if message.startswith("--strategy") else ParamsError) as raised:
        run(grid(TREE, choices), strategy)
    assert message in str(raised.value)
    assert this_process == []


def test_elsewhere_the_files_are_written_once_and_one_machine_needs_none(
    tiny_packed: Path, tmp_path: Path
) -> None:
    nothing = Mock(side_effect=AssertionError("fetched"))
    away = Path(shutil.copytree(tiny_packed, tmp_path / "away"))
    sent, alone = send(away, lambda files: files), send(away, None)
    assert receive(alone, tmp_path, nothing) == away and alone.files is None
    (away / "manifest.json").write_text("{}")  # changed since
    with pytest.raises(DataError, match="gone or changed since the sweep began"):
        receive(alone, tmp_path, nothing)
    here = receive(sent, tmp_path, lambda shared: shared)
    for file in tiny_packed.iterdir():
        assert (here / file.name).read_bytes() == file.read_bytes()
    assert receive(sent, tmp_path, nothing) == here


def pretend(monkeypatch: pytest.MonkeyPatch, cores: set[int]) -> Callable[[], set[int]]:
    """A machine of these cores; returns what this process may use of them."""
    mine = set(cores)

    def keep(pid: int, chosen: list[int]) -> None:
        mine.clear()
        mine.update(chosen)

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(mine))
    monkeypatch.setattr(os, "sched_setaffinity", keep)
    return lambda: set(mine)


def test_runs_at_the_same_time_have_different_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = pretend(monkeypatch, {0, 1, 2})
    with own_cores(tmp_path, 2):
        assert mine() == {0, 1}
        pretend(monkeypatch, {0, 1, 2})  # another process
        with own_cores(tmp_path, 1):
            assert os.sched_getaffinity(0) == {2}
        with own_cores(tmp_path, 2):  # too few are free
            assert os.sched_getaffinity(0) == {0, 2}
        assert os.sched_getaffinity(0) == {0, 1, 2}


@pytest.mark.parametrize(
    ("ray", "address", "message"),
    [
        (None, None, r'Ray is not installed; pip install "parashot\[sweep\]"'),
        (Mock(), "127.0.0.1:1", "--address 127.0.0.1:1: no Ray cluster answers there"),
        (Mock(), "nonsense", "--address nonsense: no Ray cluster answers there"),
    ],
)
def test_no_ray_and_no_cluster(
    monkeypatch: pytest.MonkeyPatch, ray: Mock | None, address: str | None, message: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", ray)
    with pytest.raises(DeviceError, match=message), connected(Nodes(address)):
        pass


@pytest.fixture
def checkout(tiny_packed: Path, here: Path, this_process: list[Nodes]) -> Path:
    """A folder as the command sees it: params.yaml and the packed data."""
    (here / "params.yaml").write_text(json.dumps(TREE))  # JSON is YAML
    (here / "data").mkdir()
    (here / "data/packed").symlink_to(tiny_packed)
    return here


def test_the_command(checkout: Path, command: Commands, this_process: list[Nodes]) -> None:
    """What params leave to auto is what stage tune has measured."""
    (checkout / "results").mkdir()
    measured = {"pairing": "concat", "precision": "fp32", "compile": "none"}
    (checkout / "results/choices.json").write_text(json.dumps(measured))
    printed = command("sweep", "-S", "seed=0,1", "-S", "train.batchsz=2", "--cpus-per-run", 2)
    header, *rows = printed.splitlines()
    assert header.split() == ["seed", "val", "accuracy", "seconds", "run"]
    assert [row.split()[0] for row in rows] == ["0", "1"]
    assert "runs: 2; there already: 0" in command.said
    assert this_process == [Nodes(cpus=2)]
    runs = json.loads(command("sweep", "-S", "train.batchsz=2", "-S", "seed=1,0", "--json"))["runs"]
    assert [(each["status"], each["settings"]["seed"]) for each in runs] == [("kept", 1), ("kept", 0)]
    assert all(0 <= each["val_accuracy"] <= 1 and each["seconds"] > 0 for each in runs)
    for each in runs:
        assert Path(each["folder"], "result.json").exists()
        (record,) = read_runs(Path(each["folder"], "records.jsonl"))
        assert (record.params["model.pairing"], record.params["train.precision"]) == ("concat", "fp32")


@pytest.mark.usefixtures("checkout")
def test_a_failed_run_is_the_commands_failure(command: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    failing({1: DataError("a bad image")}, monkeypatch)
    assert "a bad image" in command("sweep", "-S", "seed=0,1", status=1)
    assert command.said.splitlines()[-1] == "error: 1 of 2 runs failed; the same command tries them again"


def test_what_the_user_can_mend_is_one_line(
    checkout: Path, command: Commands, this_process: list[Nodes]
) -> None:
    (checkout / "data/packed").unlink()
    assert command.refused("sweep", "--recipe", "none", status=2).startswith("recipe 'none' is unknown")
    assert command.refused("sweep", "--out", "elsewhere").startswith("data/packed")
    assert this_process == []
