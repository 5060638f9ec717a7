"""Every run reaches MLflow exactly once, whatever happens in between. Real stores, real processes."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import pwd
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import psutil
import pytest
from tiny_data import tiny_params
from tracked import Checkout, a_run, tiny_model

from parashot.errors import RecordError, TrackingError
from parashot.questions.summary import _plain
from parashot.records import Metric
from parashot.tracking import Live, Published, Store, StudyRun, publish
from parashot.tracking.experiment import NOTE_TAG, PARENT_TAG, PROCESS_TAG
from parashot.tracking.publish import _note
from stages import publish as stage

# --- publishing -----------------------------------------------------------------------------------


def test_all_of_a_run_is_there(checkout: Checkout) -> None:
    metrics = tuple(Metric("loss", step / 7, step, 1_000 + step) for step in range(1_100))
    params = {f"key.{number}": str(number) for number in range(120)}
    runs = [
        a_run("ddp", artifacts=("history.csv", "figures", "more/table.csv")),
        a_run("long", metrics=metrics, params=params),  # more than one call of MLflow holds
        a_run("dp", status="failed"),
    ]
    figure = checkout.root / "results/train/figures/loss.png"
    figure.parent.mkdir(parents=True)
    figure.write_bytes(b"png")
    assert checkout.publish(checkout.record("train", *runs)) == Published(published=4)

    found = checkout.runs()
    ddp, long, failed = (found[run.name] for run in runs)
    assert (ddp.info.status, ddp.info.start_time, ddp.info.end_time) == ("FINISHED", 1_000, 61_000)
    assert ddp.data.params == runs[0].params
    assert ddp.data.metrics == {"loss": 0.25, "seconds": 60.0}
    assert checkout.points("ddp", "loss") == [(1, 0.5), (2, 0.25)]
    assert checkout.files("ddp") == ["figures/loss.png", "history.csv", "more/table.csv"]
    tags = ddp.data.tags
    assert (tags["stage"], tags["status"], tags["strategy"]) == ("train", "ok", "ddp")
    assert tags["mlflow.source.git.commit"] == "c0ffee"
    assert tags["mlflow.user"] == ddp.info.user_id == pwd.getpwuid(os.getuid()).pw_name
    assert not {"dvc.experiment", NOTE_TAG} & set(tags)  # empty

    assert checkout.points("long", "loss") == [(metric.step, metric.value) for metric in metrics]
    assert long.data.params == params
    assert (failed.info.status, failed.data.tags["status"]) == ("FAILED", "failed")


def test_only_what_is_new_is_published_and_what_the_user_deletes_stays_deleted(checkout: Checkout) -> None:
    """A run that is restored keeps its first study, and is linked from the next."""
    first = checkout.record("train", a_run("ddp part", parent="uuid-ddp"), a_run("ddp"))
    assert checkout.publish(first) == Published(published=3)
    before = {name: run.to_dictionary() for name, run in checkout.runs().items()}
    assert checkout.publish(first) == Published(already_there=3)
    assert {name: run.to_dictionary() for name, run in checkout.runs().items()} == before
    both = [first, checkout.record("loader", a_run("loader"))]
    assert checkout.publish(*both, study=StudyRun("second")) == Published(published=2, already_there=2)
    runs = checkout.runs()
    study, ddp, second = (runs[name].info.run_id for name in ("study", "ddp", "second"))
    above = {"study": None, "ddp": study, "ddp part": ddp, "second": None, "loader": second}
    assert {name: run.data.tags.get(PARENT_TAG) for name, run in runs.items()} == above
    assert runs["second"].data.tags[NOTE_TAG].count("| train | ok, restored from the cache |") == 1
    assert "restored" not in runs["study"].data.tags[NOTE_TAG]
    for name in ("ddp part", "study"):
        checkout.client.delete_run(checkout.runs()[name].info.run_id)
        assert checkout.publish(first) == Published(already_there=3)
    assert set(checkout.runs()) == {"ddp", "loader", "second"}


def test_a_store_of_the_users_own(checkout: Checkout, empty_database: Path, tmp_path: Path) -> None:
    own = Path(shutil.copy(empty_database, tmp_path / "own.db"))
    theirs = dataclasses.replace(checkout.store, uri=f"sqlite:///{own}")
    folder = checkout.record("train", a_run("dp", artifacts=("history.csv",)))
    assert publish(theirs, StudyRun("study"), [folder], checkout.load_model) == Published(published=2)
    assert checkout.runs() == {}
    assert list((checkout.root / "mlruns").rglob("history.csv"))


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("sqlite:///own.db", "sqlite:///{root}/own.db"),
        ("sqlite:////srv/own.db", "sqlite:////srv/own.db"),
        ("./mlruns", "file://{root}/mlruns"),
        ("file:mlruns", "file://{root}/mlruns"),
        ("file:///srv/mlruns", "file:///srv/mlruns"),
        ("http://server:5000", "http://server:5000"),
        ("databricks", "databricks"),
    ],
)
def test_a_relative_address_is_one_from_the_checkout(
    uri: str, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """DVC runs the experiments of its queue in folders of its own."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert Store.of_environment(tmp_path, "parashot").uri == expected.format(root=tmp_path)


@pytest.fixture
def staged(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """A checkout that stage `publish` is run in."""
    monkeypatch.setattr(stage, "store", lambda settings: checkout.store)
    monkeypatch.setattr(stage, "params", tiny_params)
    monkeypatch.chdir(checkout.root)
    return checkout


def test_runs_of_a_sweep_are_published_once(
    staged: Checkout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Under a study of their own, also beside one that is being written, and where nothing else was run."""
    stage.main()
    assert staged.runs() == {}  # there is no sweep
    for number in range(2):
        staged.record(f"sweep/key{number}", a_run(f"seed={number}"))
    half = staged.record("sweep/.key2.1.tmp", a_run("seed=2")) / "records.jsonl"
    half.write_text("{")
    for _ in range(2):
        stage.main()
        runs = staged.runs()
        study = runs["sweep on synthetic data"].info.run_id
        above = {name: run.data.tags.get(PARENT_TAG) for name, run in runs.items()}
        assert above == {"sweep on synthetic data": None, "seed=0": study, "seed=1": study}
    damaged = half.parent.replace(half.parent.with_name("key2")) / half.name
    with pytest.raises(RecordError, match=str(damaged.relative_to(staged.root))):
        stage.main()
    monkeypatch.setenv("DVC_STAGE", "publish")
    stage.main()
    assert [each.message for each in caplog.records if "warning: " in each.message and "key2" in each.message]


def test_a_study_is_published_by_its_own_report_and_a_network_without_one(
    staged: Checkout, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Beside no report, or one of another network, as after `dvc exp run ... evaluate`; with its name."""
    monkeypatch.setattr("stages.published.tags", lambda: {"dvc.experiment": "keen-name"})
    parts = ("tune", "pretrain", "evaluate", "loader", "strategies", "gain", "batchsz", "warmup")
    for name in (*parts, *(f"train/{each}" for each in tiny_params().parallel.strategies)):
        staged.record(name, a_run(name))
    results = staged.root / "results"
    (results / "evaluate/result.json").write_text('{"test_accuracy": 0.5}')
    (results / "evaluate/metrics.json").write_text('{"test_1_shot": {"accuracy": 0.5}}')
    stage.main()
    before = staged.runs()
    network = before["training on synthetic data, keen-name"]
    assert network.data.metrics == {"test_1_shot.accuracy": 0.5}
    assert before["evaluate"].data.tags[PARENT_TAG] == network.info.run_id
    assert "loader" not in before
    (results / "metrics.json").write_text('{"test_accuracy": 0.25}')
    stage.main()
    (staged.root / "reports").mkdir()
    (results / "metrics.json").write_text('{"test_accuracy": 0.5}')
    for seed in (1, tiny_params().seed):
        params = _plain(tiny_params({"seed": seed}), "params")
        (results / "summary.json").write_text(json.dumps({"params": params, "answer": "ddp"}))
        caplog.clear()
        assert staged.runs().keys() == before.keys()  # a report of other params brings in nothing
        with caplog.at_level("INFO"):
            stage.main()
        assert ("the report is of other params" in caplog.text) == (seed == 1)
    assert staged.runs().keys() - before.keys() >= {"study on synthetic data, keen-name", "loader"}


# --- live runs, and what is left of them ----------------------------------------------------------


def test_live_then_final(checkout: Checkout, caplog: pytest.LogCaptureFixture) -> None:
    final = a_run("ddp", artifacts=("history.csv",))
    so_far = dataclasses.replace(final, status="running", end_ms=None, artifacts=())
    live = Live(checkout.store)
    live(dataclasses.replace(so_far, metrics=final.metrics[:1]))
    assert checkout.runs()["ddp"].info.status == "RUNNING"
    live(dataclasses.replace(so_far, metrics=final.metrics[:2]))
    assert checkout.points("ddp", "loss") == [(1, 0.5), (2, 0.25)]
    other = checkout.record("loader", a_run("loader"))
    assert checkout.publish(other) == Published(published=2)  # a run that goes on is left alone
    assert checkout.runs()["ddp"].info.status == "RUNNING"
    live(dataclasses.replace(final, status="unpublished"))
    assert checkout.runs()["ddp"].info.status == "FINISHED"
    assert checkout.files("ddp") == []

    assert checkout.publish(checkout.record("train", final), study=StudyRun("two")) == Published(published=2)
    found, study = checkout.runs()["ddp"], checkout.runs()["two"]
    assert (found.info.status, found.info.start_time, found.info.end_time) == ("FINISHED", 1_000, 61_000)
    assert (found.data.tags["status"], found.data.tags[PARENT_TAG]) == ("ok", study.info.run_id)
    assert "restored" not in study.data.tags[NOTE_TAG]
    assert checkout.points("ddp", "loss") == [(1, 0.5), (2, 0.25)]
    assert checkout.files("ddp") == ["history.csv"]

    live(so_far)
    assert checkout.runs()["ddp"].info.status == "FINISHED"
    assert caplog.text == ""


def test_a_training_that_diverged_and_failed_is_closed(checkout: Checkout) -> None:
    values = (math.nan, math.inf, -math.inf)
    metrics = tuple(Metric("loss", value, step) for step, value in enumerate(values))
    run = a_run("ddp", metrics=metrics, status="running", end_ms=None)
    for each in (run, run, dataclasses.replace(run, status="failed", end_ms=5_000)):
        Live(checkout.store)(each)
    points = checkout.points("ddp", "loss")
    assert [step for step, _ in points] == [0, 1, 2]
    assert math.isnan(points[0][1])
    assert points[1][1] > 1e300 and points[2][1] < -1e300
    found = checkout.runs()["ddp"]
    assert (found.info.status, found.data.tags["status"]) == ("FAILED", "failed")

    Live(checkout.store)(run)  # it is taken up again
    assert checkout.runs()["ddp"].info.status == "RUNNING"
    Live(checkout.store)(dataclasses.replace(run, status="failed", end_ms=6_000))
    final = checkout.record("train", a_run("ddp"))
    assert checkout.publish(final) == Published(published=2)
    found = checkout.runs()["ddp"]
    assert (found.info.status, found.data.tags["status"]) == ("FINISHED", "ok")
    assert checkout.publish(final) == Published(already_there=2)


def test_a_run_whose_process_was_killed_is_closed_and_can_still_be_completed(checkout: Checkout) -> None:
    live = a_run("ddp", status="running", end_ms=None)
    child = os.fork()
    if child == 0:
        Live(checkout.store)(dataclasses.replace(live, metrics=live.metrics[:2]))
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert checkout.runs()["ddp"].info.status == "RUNNING"

    other = checkout.record("loader", a_run("loader"))
    assert checkout.publish(other) == Published(published=2)
    found = checkout.runs()["ddp"]
    assert (found.info.status, found.info.end_time) == ("KILLED", 3_000)  # its last sign of life
    assert checkout.publish(other) == Published(already_there=2)

    final = checkout.record("train", a_run("ddp"))
    assert checkout.publish(final, study=StudyRun("again")) == Published(published=2)
    assert checkout.runs()["ddp"].info.status == "FINISHED"


def test_who_is_gone(checkout: Checkout) -> None:
    host, pid, started = platform.node(), os.getpid(), psutil.Process().create_time()
    expected = {
        f"{host}/{pid}/{started}": "RUNNING",
        f"{host}/{pid}/1.0": "KILLED",  # its pid was used again, or the machine was started again
        f"elsewhere/{pid}/1.0": "RUNNING",
    }
    lives = [a_run(process, status="running", end_ms=None) for process in expected]
    for live in lives:
        Live(checkout.store)(live)
        checkout.client.set_tag(checkout.runs()[live.name].info.run_id, PROCESS_TAG, live.name)
    checkout.publish(checkout.record("loader", a_run("loader")))
    found = checkout.runs()
    assert {process: found[process].info.status for process in expected} == expected
    for live in lives:  # who resumes it answers for it
        Live(checkout.store)(live)
    found = checkout.runs()
    assert {found[process].info.status for process in expected} == {"RUNNING"}


def test_what_was_cut_off_is_completed(checkout: Checkout) -> None:
    run = a_run("ddp", artifacts=("history.csv", "table.csv"))
    folder = checkout.record("train", a_run("dp"), run)
    (folder / "table.csv").unlink()
    with pytest.raises(RecordError, match=r"table\.csv: missing"):
        checkout.publish(folder)
    assert checkout.runs()["ddp"].info.status == "RUNNING"

    checkout.record("train", a_run("dp"), run)
    assert checkout.publish(folder) == Published(published=2, already_there=1)
    found = {name: run.info.status for name, run in checkout.runs().items()}
    assert found == dict.fromkeys(["dp", "ddp", "study"], "FINISHED")
    assert checkout.points("ddp", "loss") == [(1, 0.5), (2, 0.25)]
    with pytest.raises(RecordError, match=r"nowhere/records\.jsonl"):
        checkout.publish(checkout.root / "nowhere")


# --- the study ------------------------------------------------------------------------------------


def test_the_study_holds_its_report_and_links_its_runs(checkout: Checkout) -> None:
    skipped = a_run("fsdp", status="skipped", tags={"reason": "no GPU"}, metrics=())
    off = a_run("long", status="skipped", tags={"reason": "off"}, parent="uuid-warm-up", metrics=())
    folder = checkout.record("train", a_run("ddp"), skipped, a_run("warm-up"), off)
    reports, summary = checkout.root / "reports", checkout.root / "results/summary.json"
    reports.mkdir()
    (reports / "index.html").write_text("the report")
    summary.write_text("{}")
    report = StudyRun(
        "today",
        params={"train.batchsz": "30"},
        tags={"data.source": "synthetic"},
        metrics={"speedup": 1.8},
        artifacts=(reports, summary),
        note="Train with ddp.",
    )
    checkout.publish(folder, study=report)
    runs = checkout.runs()
    study = runs["today"]
    assert (study.data.params, study.data.metrics) == (report.params, report.metrics)
    assert study.data.tags["data.source"] == "synthetic"
    assert study.info.end_time - study.info.start_time == 60_000
    assert checkout.files("today") == ["reports/index.html", "summary.json"]
    link = f"(#/experiments/{study.info.experiment_id}/runs/{runs['ddp'].info.run_id})"
    assert study.data.tags[NOTE_TAG].startswith("Train with ddp.\n\n| run |")
    assert f"[ddp]{link}" in study.data.tags[NOTE_TAG]
    assert study.data.tags["skipped.train.fsdp"] == "no GPU"
    assert study.data.tags["skipped.train.long"] == "off"
    assert runs.keys() == {"ddp", "today"}  # what was skipped is no run

    assert checkout.publish(folder, study=dataclasses.replace(report, name="x")) == Published(already_there=2)
    for changes in ({"metrics": {"claims.confidence": 0.9}}, {"params": {"claims.confidence": "0.9"}}, {}):
        if not changes:
            (reports / "index.html").write_text("another report")
        another = dataclasses.replace(report, name=f"other {[*changes]}", **changes)
        assert checkout.publish(folder, study=another) == Published(published=1, already_there=1)
        assert checkout.files(another.name) == ["reports/index.html", "summary.json"]


def test_a_long_list_of_runs_is_cut_where_mlflow_would_cut_it() -> None:
    experiment: Any = SimpleNamespace(id="1", run_id=lambda uuid: f"{uuid:>40}", is_under=lambda *_: True)
    runs = [a_run(f"a rather long name of a run {number:03}") for number in range(90)]
    note = _note(StudyRun("study"), experiment, runs, "uuid-study")
    assert 7000 < len(note) < 8000
    assert all(line.endswith("| train | ok |") for line in note.splitlines()[2:])


def test_the_model_is_there_once_and_predicts(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow
    import mlflow.pytorch
    import torch

    folder = checkout.record("train", a_run("ddp", model="model.safetensors"))

    with monkeypatch.context() as patch:
        full = OSError(28, "No space left on device", "model.pt2")
        patch.setattr(mlflow.pytorch, "save_model", Mock(side_effect=full))
        with pytest.raises(TrackingError, match="the disk is full"):
            checkout.publish(folder)
    assert checkout.publish(folder) == Published(published=2)
    assert checkout.publish(folder) == Published(already_there=2)
    assert checkout.models_loaded == [folder / "model.safetensors"] * 2
    run = checkout.runs()["ddp"]
    [output] = run.outputs.model_outputs
    [model] = checkout.client.search_logged_models([run.info.experiment_id])
    assert (model.model_id, model.source_run_id) == (output.model_id, run.info.run_id)
    assert model.status == "READY"

    images = np.random.default_rng(0).random((7, 3, 4), dtype=np.float32)
    with torch.no_grad():
        expected = tiny_model().module.eval()(torch.from_numpy(images)).numpy()
    loaded = mlflow.pyfunc.load_model(model.artifact_location)
    assert loaded.predict(images) == pytest.approx(expected)
    assert loaded.predict(images[:1]) == pytest.approx(expected[:1])
    assert loaded.metadata.signature.inputs.inputs[0].shape == (-1, 3, 4)
