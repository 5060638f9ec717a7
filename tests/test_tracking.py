"""Every run reaches MLflow exactly once, whatever happens in between. Real stores, real processes."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tracked import Checkout, a_run, python, start, tiny_model

from parashot.errors import RecordError, TrackingError
from parashot.records import Metric
from parashot.tracking import Published, Study, process, publish, publish_live, store
from parashot.tracking.experiment import PARENT_TAG, PROCESS_TAG
from parashot.tracking.process import ProcessIdentity
from parashot.tracking.study import Row, study_note

NOTE_TAG = "mlflow.note.content"


# --- publishing -----------------------------------------------------------------------------------


def test_a_run_is_all_there(checkout: Checkout) -> None:
    run = a_run("ddp", artifacts=("history.csv", "figures", "more/table.csv"))
    folder = checkout.root / "results/train"
    (folder / "figures").mkdir(parents=True)
    (folder / "figures/loss.png").write_bytes(b"png")
    done = checkout.publish(checkout.record("train", run))

    found = checkout.runs()["ddp"]
    assert done == Published(published=2)
    assert (found.info.status, found.info.start_time, found.info.end_time) == ("FINISHED", 1_000, 61_000)
    assert found.data.params == run.params
    assert found.data.metrics == {"loss": 0.25, "seconds": 60.0}
    assert checkout.points("ddp", "loss") == [(1, 0.5), (2, 0.25)]
    assert checkout.files("ddp") == ["figures/loss.png", "history.csv", "more/table.csv"]
    tags = found.data.tags
    assert (tags["stage"], tags["status"], tags["strategy"]) == ("train", "ok", "ddp")
    assert tags["mlflow.source.git.commit"] == "c0ffee"
    assert "dvc.experiment" not in tags and PROCESS_TAG not in tags
    assert tags[NOTE_TAG] == "- seconds: 60"


def test_publishing_again_does_nothing(checkout: Checkout) -> None:
    folders = [
        checkout.record("train", a_run("dp"), a_run("ddp")),
        checkout.record("loader", a_run("loader")),
    ]
    assert checkout.publish(*folders) == Published(published=4)
    before = {name: run.to_dictionary() for name, run in checkout.runs().items()}
    assert checkout.publish(*folders) == Published(already_there=4)
    assert {name: run.to_dictionary() for name, run in checkout.runs().items()} == before


def test_only_what_is_new_is_published(checkout: Checkout) -> None:
    first = checkout.record("train", a_run("dp"))
    checkout.publish(first)
    both = [first, checkout.record("loader", a_run("loader"))]
    assert checkout.publish(*both, study=Study("second")) == Published(published=2, already_there=1)


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        ("skipped", "fsdp needs 2 GPUs", "FINISHED"),
        ("stopped", "over the limit of 30 s", "FINISHED"),
        ("failed", "", "FAILED"),
    ],
)
def test_what_did_not_end_well_says_so(checkout: Checkout, status: str, reason: str, expected: str) -> None:
    run = a_run("x", status=status, tags={"reason": reason} if reason else {})
    checkout.publish(checkout.record("train", run))
    found = checkout.runs()["x"]
    assert found.info.status == expected
    assert found.data.tags["status"] == status
    note = found.data.tags.get(NOTE_TAG, "")
    assert (f"**{status}**: {reason}" in note) if reason else status not in note


def test_a_run_says_what_it_is(checkout: Checkout) -> None:
    whole = a_run("loader workers", stage="loader-bench")
    below = a_run("jpeg, 2 workers", stage="loader-bench", parent=whole.uuid)
    checkout.publish(checkout.record("loader", whole, below))
    notes = {name: run.data.tags[NOTE_TAG] for name, run in checkout.runs().items()}
    assert notes["loader workers"].startswith("Loader workers by backend")
    assert notes["jpeg, 2 workers"].startswith("One loader setting")


def test_runs_are_nested(checkout: Checkout) -> None:
    child = a_run("batchsz 60", parent="uuid-batchsz")
    checkout.publish(checkout.record("batchsz", child, a_run("batchsz")))
    runs = checkout.runs()
    assert runs["batchsz 60"].data.tags[PARENT_TAG] == runs["batchsz"].info.run_id
    assert runs["batchsz"].data.tags[PARENT_TAG] == runs["study"].info.run_id
    assert PARENT_TAG not in runs["study"].data.tags


def test_more_than_one_call_holds(checkout: Checkout) -> None:
    metrics = tuple(Metric("loss", step / 7, step, 1_000 + step) for step in range(2_345))
    params = {f"key.{number}": str(number) for number in range(234)}
    checkout.publish(checkout.record("train", a_run("long", metrics=metrics, params=params)))
    assert checkout.points("long", "loss") == [(metric.step, metric.value) for metric in metrics]
    assert checkout.runs()["long"].data.params == params


def test_values_that_are_no_numbers_do_no_harm(checkout: Checkout) -> None:
    values = (math.nan, math.inf, -math.inf)
    metrics = tuple(Metric("loss", value, step) for step, value in enumerate(values))
    run = a_run("diverged", metrics=metrics, status="running", end_ms=None)
    publish_live(checkout.store, run)
    publish_live(checkout.store, run)
    found = checkout.points("diverged", "loss")
    assert [step for step, _ in found] == [0, 1, 2]
    assert math.isnan(found[0][1])
    assert found[1][1] > 1e300 and found[2][1] < -1e300


def test_a_plain_client_in_the_root_sees_a_store_that_is_made_silently(checkout: Checkout) -> None:
    """No database, no mlruns: what is on disk comes back, nothing is printed, nothing heavy is imported."""
    (checkout.root / "mlflow.db").unlink()
    folder = checkout.record("train", a_run("dp"), a_run("ddp", artifacts=("history.csv",)))
    done = python(PUBLISH_AND_LOOK, checkout.root, folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


PUBLISH_AND_LOOK = """
import logging, os, sys
from pathlib import Path
from parashot.tracking import Published, Store, Study, publish

root, folder = map(Path, sys.argv[1:])
logging.basicConfig(level=logging.INFO)  # as stages do
done = publish(Store(root, "few shots"), Study("study"), [folder], None)
assert done == Published(published=3), done
assert not {"torch", "mlflow.pytorch"} & set(sys.modules)

import mlflow

os.chdir(root)
found = mlflow.search_runs(experiment_names=["few shots"], output_format="list")
assert sorted(run.info.run_name for run in found) == ["ddp", "dp", "study"], found
"""


# --- live runs, and what is left of them ----------------------------------------------------------


def test_live_then_final(checkout: Checkout) -> None:
    final = a_run("ddp", artifacts=("history.csv",))
    live = dataclasses.replace(final, status="running", end_ms=None, artifacts=())
    publish_live(checkout.store, dataclasses.replace(live, metrics=final.metrics[:1]))
    assert checkout.runs()["ddp"].info.status == "RUNNING"
    publish_live(checkout.store, dataclasses.replace(live, metrics=final.metrics[:2]))
    assert checkout.points("ddp", "loss") == [(1, 0.5), (2, 0.25)]

    assert checkout.publish(checkout.record("train", final)) == Published(published=1, updated=1)
    runs = checkout.runs()
    assert (runs["ddp"].info.status, runs["ddp"].info.start_time, runs["ddp"].info.end_time) == (
        "FINISHED",
        1_000,
        61_000,
    )
    assert runs["ddp"].data.tags["status"] == "ok"
    assert runs["ddp"].data.tags[PARENT_TAG] == runs["study"].info.run_id
    assert checkout.points("ddp", "loss") == [(1, 0.5), (2, 0.25)]
    assert checkout.files("ddp") == ["history.csv"]

    publish_live(checkout.store, live)
    assert checkout.runs()["ddp"].info.status == "FINISHED"


def test_a_run_that_goes_on_is_left_alone(checkout: Checkout) -> None:
    publish_live(checkout.store, a_run("ddp", status="running", end_ms=None))
    assert checkout.publish(checkout.record("loader", a_run("loader"))) == Published(published=2)
    assert checkout.runs()["ddp"].info.status == "RUNNING"


def test_a_run_whose_process_was_killed_is_closed_and_can_still_be_completed(checkout: Checkout) -> None:
    live = a_run("ddp", status="running", end_ms=None)
    records = checkout.record("live", live) / "records.jsonl"
    assert python(PUBLISH_LIVE_AND_DIE, checkout.root, records).returncode == -signal.SIGKILL
    assert checkout.runs()["ddp"].info.status == "RUNNING"

    other = checkout.record("loader", a_run("loader"))
    assert checkout.publish(other) == Published(published=2, closed_as_killed=1)
    assert checkout.runs()["ddp"].info.status == "KILLED"
    assert checkout.publish(other) == Published(already_there=2)

    final = checkout.record("train", a_run("ddp"))
    assert checkout.publish(final, study=Study("again")) == Published(published=1, updated=1)
    assert checkout.runs()["ddp"].info.status == "FINISHED"


PUBLISH_LIVE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from parashot.records import read_runs
from parashot.tracking import Store, publish_live

root, records = map(Path, sys.argv[1:])
publish_live(Store(root, "few shots"), read_runs(records)[0])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_ends_with_its_last_sign_of_life(checkout: Checkout) -> None:
    metrics = (Metric("loss", 0.5, 1, 7_000), Metric("loss", 0.4, 2, 9_000))
    publish_live(checkout.store, a_run("ddp", status="running", end_ms=None, metrics=metrics))
    _pretend(checkout, "ddp", pid=os.getpid(), started="1")
    checkout.publish(checkout.record("loader", a_run("loader")))
    assert checkout.runs()["ddp"].info.end_time == 9_000


def test_a_resumed_run_belongs_to_the_process_that_resumed_it(checkout: Checkout) -> None:
    live = a_run("ddp", status="running", end_ms=None)
    publish_live(checkout.store, live)
    _pretend(checkout, "ddp", started="1")
    publish_live(checkout.store, live)
    found = checkout.runs()["ddp"]
    assert found.info.status == "RUNNING"
    assert found.data.tags[PROCESS_TAG] == str(ProcessIdentity.current())


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, "RUNNING"),
        ({"started": "1"}, "KILLED"),
        ({"boot": "an earlier one"}, "KILLED"),
        ({"host": "elsewhere", "started": "1"}, "RUNNING"),
    ],
    ids=["this process", "its pid was used again", "before a reboot", "another machine"],
)
def test_who_is_gone(checkout: Checkout, changes: dict[str, Any], status: str) -> None:
    publish_live(checkout.store, a_run("ddp", status="running", end_ms=None))
    _pretend(checkout, "ddp", **changes)
    checkout.publish(checkout.record("loader", a_run("loader")))
    assert checkout.runs()["ddp"].info.status == status


def test_processes_are_told_apart() -> None:
    here = ProcessIdentity.current()
    assert ProcessIdentity.parse(str(here)) == here
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    there = dataclasses.replace(here, pid=child.pid, started=process._started(child.pid))
    assert not here.is_gone() and not there.is_gone()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert there.is_gone()  # though a zombie still has its pid
    child.communicate()
    assert there.is_gone()


def _pretend(checkout: Checkout, name: str, **changes: Any) -> None:
    """Let a run have been opened by another process."""
    identity = dataclasses.replace(ProcessIdentity.current(), **changes)
    checkout.client.set_tag(checkout.runs()[name].info.run_id, PROCESS_TAG, str(identity))


# --- failures half-way ----------------------------------------------------------------------------


def test_what_was_cut_off_is_completed(checkout: Checkout) -> None:
    run = a_run("ddp", artifacts=("history.csv", "table.csv"))
    folder = checkout.record("train", a_run("dp"), run)
    (folder / "table.csv").unlink()
    with pytest.raises(RecordError, match=r"table\.csv: missing"):
        checkout.publish(folder)
    assert checkout.runs()["ddp"].info.status == "RUNNING"

    checkout.record("train", a_run("dp"), run)
    assert checkout.publish(folder) == Published(updated=2, already_there=1)
    assert {name: run.info.status for name, run in checkout.runs().items()} == dict.fromkeys(
        ["dp", "ddp", "study"], "FINISHED"
    )
    assert checkout.points("ddp", "loss") == [(1, 0.5), (2, 0.25)]


def test_two_processes_publish_at_once(checkout: Checkout) -> None:
    folder = checkout.record("train", *[a_run(f"run {number}") for number in range(6)])
    both = [start(PUBLISH_WHEN_TOLD, checkout.root, folder) for _ in range(2)]
    outputs = [process.communicate("go\n", timeout=120) for process in both]
    assert sorted(outputs) == [("0 7\n", ""), ("7 0\n", "")]
    assert len(checkout.runs()) == 7


PUBLISH_WHEN_TOLD = """
import sys
from pathlib import Path
from parashot.tracking import Store, Study, publish

root, folder = map(Path, sys.argv[1:])
input()
done = publish(Store(root, "few shots"), Study("study"), [folder], None)
print(done.published, done.already_there)
"""


def test_records_that_are_missing_are_named(checkout: Checkout) -> None:
    with pytest.raises(RecordError, match=r"nowhere/records\.jsonl"):
        checkout.publish(checkout.root / "nowhere")


def test_a_lock_that_is_held_is_given_up(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        import_module("parashot.tracking.publish"), "PUBLISHING", store.Patience(0.1, 1, None)
    )
    folder = checkout.record("train", a_run("dp"))
    (checkout.root / "mlruns").mkdir()
    held = store._locked(checkout.root / "mlruns/.lock", 1)
    with held, pytest.raises(TrackingError, match="held by another"):
        checkout.publish(folder)


def _corrupt(checkout: Checkout) -> None:
    (checkout.root / "mlflow.db").write_bytes(b"not a database" * 1000)


def _move(checkout: Checkout) -> None:
    checkout.client.create_experiment("few shots", artifact_location="file:///some/other/place")


def _delete_experiment(checkout: Checkout) -> None:
    checkout.client.delete_experiment(checkout.client.create_experiment("few shots"))


def _make_unwritable(checkout: Checkout) -> None:
    (checkout.root / "mlruns").write_text("a file where a folder should be")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (_corrupt, "file is not a database"),
        (_move, "belongs to another place .file:///some/other/place.; delete mlflow.db and mlruns"),
        (_delete_experiment, "mlflow experiments restore --experiment-id 1"),
        (_make_unwritable, "mlruns"),
    ],
)
def test_failures_are_one_line(
    tmp_path: Path, empty_database: Path, harm: Callable[[Checkout], None], says: str
) -> None:
    checkout = Checkout(tmp_path / "root", empty_database)
    folder = checkout.record("train", a_run("dp"))
    harm(checkout)
    with pytest.raises(TrackingError, match=says) as raised:
        checkout.publish(folder)
    assert "\n" not in str(raised.value)


def test_a_server_that_is_not_there(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    away = dataclasses.replace(checkout.store, uri="http://me:secret@127.0.0.1:1")
    with pytest.raises(
        TrackingError, match=r"MLflow at http://127\.0\.0\.1:1 failed: .*no result is lost"
    ) as raised:
        publish(away, Study("study"), [checkout.record("train", a_run("dp"))], checkout.load_model)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_without_mlflow(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(TrackingError, match="mlflow is not installed here"):
        checkout.publish(checkout.record("train", a_run("dp")))


# --- what the user does in MLflow -----------------------------------------------------------------


def test_what_the_user_deletes_stays_deleted(checkout: Checkout) -> None:
    folder = checkout.record("train", a_run("dp"), a_run("ddp"))
    checkout.publish(folder)
    checkout.client.delete_run(checkout.runs()["dp"].info.run_id)
    assert checkout.publish(folder) == Published(already_there=3)
    checkout.client.delete_run(checkout.runs()["study"].info.run_id)
    assert checkout.publish(folder) == Published(already_there=3)
    assert set(checkout.runs()) == {"ddp"}


def test_a_store_of_the_users_own(checkout: Checkout, empty_database: Path, tmp_path: Path) -> None:
    own = Path(shutil.copy(empty_database, tmp_path / "own.db"))
    theirs = dataclasses.replace(checkout.store, uri=f"sqlite:///{own}")
    folder = checkout.record("train", a_run("dp", artifacts=("history.csv",)))
    assert publish(theirs, Study("study"), [folder], checkout.load_model) == Published(published=2)
    assert checkout.runs() == {}
    assert list((checkout.root / "mlruns").rglob("history.csv"))


# --- the study ------------------------------------------------------------------------------------


@pytest.fixture
def report(checkout: Checkout) -> Study:
    (checkout.root / "reports").mkdir()
    (checkout.root / "reports/index.html").write_text("the report")
    (checkout.root / "results").mkdir()
    (checkout.root / "results/summary.json").write_text("{}")
    return Study(
        "study of today",
        params={"train.batchsz": "30"},
        tags={"data.source": "synthetic"},
        metrics={"speedup": 1.8},
        artifacts=(checkout.root / "reports", checkout.root / "results/summary.json"),
    )


def test_the_study_holds_the_report_and_lists_its_runs(checkout: Checkout, report: Study) -> None:
    skipped = a_run("fsdp", status="skipped", tags={"reason": "no GPU"}, metrics=())
    checkout.publish(checkout.record("train", a_run("ddp"), skipped), study=report)
    runs = checkout.runs()
    study = runs["study of today"]
    assert study.data.params == report.params
    assert study.data.metrics == report.metrics
    assert study.data.tags["data.source"] == "synthetic"
    assert study.info.end_time - study.info.start_time == 2 * 60_000
    assert checkout.files("study of today") == ["reports/index.html", "study.json", "summary.json"]
    listed = _study_json(checkout, "study of today")["runs"]
    assert [(run["name"], run["status"], run["reason"]) for run in listed] == [
        ("ddp", "ok", ""),
        ("fsdp", "skipped", "no GPU"),
    ]
    assert listed[0]["metrics"] == {"loss": 0.25, "seconds": 60.0}
    for name in ("ddp", "fsdp"):
        assert f"[{name}](#/experiments/1/runs/{runs[name].info.run_id})" in study.data.tags[NOTE_TAG]


def test_a_changed_report_takes_the_place_of_the_old_one(checkout: Checkout, report: Study) -> None:
    folder = checkout.record("train", a_run("ddp"))
    page = checkout.root / "reports/index.html"
    (checkout.root / "reports/old.png").write_bytes(b"png")
    checkout.publish(folder, study=report)
    (checkout.root / "reports/old.png").unlink()
    page.write_text("another report")
    for speedup in (1.2, 1.9, 1.2):
        changed = dataclasses.replace(report, metrics={"speedup": speedup})
        assert checkout.publish(folder, study=changed) == Published(updated=1, already_there=1)
        assert checkout.runs()["study of today"].data.metrics == {"speedup": speedup}
        assert checkout.publish(folder, study=changed) == Published(already_there=2)
    assert checkout.files("study of today") == ["reports/index.html", "study.json", "summary.json"]


def test_a_restored_run_keeps_its_first_study_and_is_linked_from_the_next(checkout: Checkout) -> None:
    restored, nested = a_run("ddp"), a_run("ddp part", parent="uuid-ddp")
    kept = checkout.record("train", restored, nested)
    checkout.publish(kept, checkout.record("first", a_run("loader 1")), study=Study("first"))
    checkout.publish(kept, checkout.record("second", a_run("loader 2")), study=Study("second"))
    runs = checkout.runs()
    assert runs["ddp"].data.tags[PARENT_TAG] == runs["first"].info.run_id
    assert runs["loader 2"].data.tags[PARENT_TAG] == runs["second"].info.run_id
    listed = {run["name"]: run["restored"] for run in _study_json(checkout, "second")["runs"]}
    assert listed == {"ddp": True, "ddp part": False, "loader 2": False}
    assert "| train | ok, restored from the cache |" in runs["second"].data.tags[NOTE_TAG]
    assert "restored" not in runs["first"].data.tags[NOTE_TAG]


def test_other_params_are_another_study_of_the_same_runs(checkout: Checkout) -> None:
    folder = checkout.record("train", a_run("ddp"))
    checkout.publish(folder, study=Study("strict", params={"claims.confidence": "0.99"}))
    assert checkout.publish(folder, study=Study("lax", params={"claims.confidence": "0.9"})) == Published(
        published=1, already_there=1
    )
    assert checkout.runs()["lax"].data.params == {"claims.confidence": "0.9"}


def test_a_long_list_of_runs_is_cut_where_mlflow_would_cut_it() -> None:
    rows = [
        Row(a_run(f"a rather long name of a run {number:03}"), "0123456789abcdef", False)
        for number in range(90)
    ]
    note = study_note("1", rows)
    assert len(note) < 8000
    assert note.endswith("All of them: study.json among the artifacts.")
    assert all(line.endswith("| train | ok |") for line in note.splitlines()[2:-2])
    assert study_note("1", rows[:3]).count("\n") == 4


def _study_json(checkout: Checkout, name: str) -> dict[str, Any]:
    path = checkout.client.download_artifacts(checkout.runs()[name].info.run_id, "study.json")
    tree: dict[str, Any] = json.loads(Path(path).read_text())
    return tree


# --- the model ------------------------------------------------------------------------------------


def test_the_model_is_there_once_and_predicts(checkout: Checkout) -> None:
    import mlflow
    import mlflow.pytorch
    import torch

    folder = checkout.record("train", a_run("ddp", model="model.pt", artifacts=("model.pt",)))
    checkout.publish(folder)
    checkout.publish(folder)
    assert checkout.models_loaded == [folder / "model.pt"]
    run = checkout.runs()["ddp"]
    [output] = run.outputs.model_outputs
    [model] = checkout.client.search_logged_models([run.info.experiment_id])
    assert (model.model_id, model.source_run_id) == (output.model_id, run.info.run_id)
    assert model.status == "READY"

    images = np.random.default_rng(0).random((7, 3, 4), dtype=np.float32)
    with torch.no_grad():
        expected = tiny_model().module.eval()(torch.from_numpy(images)).numpy()
    place = model.artifact_location
    loaded = mlflow.pytorch.load_model(place)
    assert loaded(torch.from_numpy(images)).detach().numpy() == pytest.approx(expected)
    as_function = mlflow.pyfunc.load_model(place)
    assert as_function.predict(images) == pytest.approx(expected)
    assert as_function.predict(images[:1]) == pytest.approx(expected[:1])
    assert as_function.metadata.signature.inputs.inputs[0].shape == (-1, 3, 4)
    assert as_function.input_example.shape == (2, 3, 4)


def test_a_model_that_was_cut_off_is_logged_anew(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow.pytorch

    folder = checkout.record("train", a_run("ddp", model="model.pt"))

    def fill_the_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "model.pt2")

    with monkeypatch.context() as patch:
        patch.setattr(mlflow.pytorch, "save_model", fill_the_disk)
        with pytest.raises(TrackingError, match="the disk is full"):
            checkout.publish(folder)
    assert checkout.publish(folder) == Published(updated=2)
    run = checkout.runs()["ddp"]
    [model] = checkout.client.search_logged_models([run.info.experiment_id])
    assert [output.model_id for output in run.outputs.model_outputs] == [model.model_id]
