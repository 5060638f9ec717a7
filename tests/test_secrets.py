"""Passwords and tokens stay where they are: they are in no message, no record and no store."""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import planted
import pytest
import yaml
from faulty_server import refusing_address
from planted import PASSWORD, SIGNATURE
from tiny_data import SETTINGS
from tracked import Checkout

from parashot.doctor.check import Check
from parashot.errors import DataError, one_line
from parashot.progress import OneLine
from parashot.recipes import apply
from parashot.records import Run, read_runs, write_result
from parashot.secrets import without_secrets
from parashot.train.records import Choices

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at http://me:p@ss@host:5000/x failed", "at http://host:5000/x failed"),
        ("fatal: 'https://ghp_abc@git.host/a.git/'", "fatal: 'https://git.host/a.git/'"),
        ("postgresql+psycopg2://me:pass@db/mlflow", "postgresql+psycopg2://db/mlflow"),
        ("(https://s3/x?X-Amz-Signature=abc&b=c).", "(https://s3/x?***)."),
        ("with url: /api?token=abc (Caused by", "with url: /api?token=*** (Caused by"),
        ("{'Authorization': 'Basic bWU6cA=='}", "{'Authorization': 'Basic ***'}"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("HF_TOKEN=abc, then", "HF_TOKEN=***, then"),
        ('{"access_token": "abc", "n": 1}', '{"access_token": "***", "n": 1}'),
        ("secret_key=abc&region=x", "secret_key=***&region=x"),
        ("header planted-hf-token-7d90 refused", "header *** refused"),
        ("git@github.com:a/b.git", "git@github.com:a/b.git"),
        ("http://127.0.0.1:5000/#/experiments/1", "http://127.0.0.1:5000/#/experiments/1"),
        ("is it a token? key: unknown", "is it a token? key: unknown"),
    ],
)
def test_what_is_cut_out(monkeypatch: pytest.MonkeyPatch, text: str, expected: str) -> None:
    monkeypatch.setenv("HF_TOKEN", planted.SECRETS["HF_TOKEN"])
    monkeypatch.setenv("SHORT_TOKEN", "a")  # any text has it
    assert without_secrets(text) == expected
    assert without_secrets(expected) == expected


URL = f"https://me:{PASSWORD}@host/file?signature={SIGNATURE}"


def test_every_way_out_is_guarded(capsys: pytest.CaptureFixture[str]) -> None:
    error = pickle.loads(pickle.dumps(DataError(f"{URL}: gone")))
    assert str(error) == "https://host/file?***: gone"
    assert one_line(OSError(f"cannot reach {URL}")) == "cannot reach https://host/file?***"
    OneLine().handle(logging.LogRecord("x", logging.INFO, "", 0, "downloading %s", (URL,), None))
    assert capsys.readouterr().err == "downloading https://host/file?***\n"
    assert Check("MLflow", URL, "").found == "https://host/file?***"
    assert Run("x", "x", "ok", 0, 1, tags={"reason": URL}).tags == {"reason": "https://host/file?***"}


@pytest.fixture
def workplace(checkout: Checkout, tiny_packed: Path) -> Path:
    """What a stage needs, in a git repository whose remote has a token in its address."""
    root = checkout.root
    for each in ("src", "stages"):
        shutil.copytree(ROOT / each, root / each, ignore=shutil.ignore_patterns("__pycache__"))
    tree = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    turned = {**SETTINGS, "data.source": "miniimagenet", "tracking.live_seconds": 0}
    (root / "params.yaml").write_text(yaml.safe_dump(apply(tree, turned)), encoding="utf-8")
    shutil.copytree(tiny_packed, root / "data/packed")
    write_result(root / "results/choices.json", Choices("split", "fp32", "none"))
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    subprocess.run(["git", "remote", "add", "origin", planted.REMOTE], cwd=root, check=True)
    return root


def stage(root: Path, name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("DVC")}
    path = f"{root}{os.pathsep}{root / 'src'}"
    return subprocess.run(
        [sys.executable, "-m", f"stages.{name}", *arguments],
        cwd=root,
        env={**clean, **planted.SECRETS, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_stages_write_no_secret(workplace: Path, checkout: Checkout) -> None:
    """A training whose server cannot be reached, a download whose proxy cannot; then all is published."""
    host = refusing_address().removeprefix("http://")
    store = f"http://me:{PASSWORD}@{host}?token={SIGNATURE}"
    trained = stage(workplace, "train", "serial", MLFLOW_TRACKING_URI=store)
    assert trained.returncode == 0, trained.stderr
    (warning,) = [line for line in trained.stderr.splitlines() if not line.startswith("train serial")]
    assert f"MLflow at http://{host}" in warning

    proxy = f"http://me:{PASSWORD}@{host}"
    fetched = stage(workplace, "download", https_proxy=proxy, HTTPS_PROXY=proxy, no_proxy="")
    assert fetched.returncode == 1
    assert "could not be downloaded" in fetched.stderr

    checkout.publish(workplace / "results/train/serial")
    (run,) = read_runs(workplace / "results/train/serial/records.jsonl")
    assert checkout.runs()[run.name].info.status == "FINISHED"
    said = "".join(each.stdout + each.stderr for each in (trained, fetched))
    assert planted.found_in(said) == set()
    assert planted.files_with_secrets(workplace, ".git/config") == {}
    assert planted.files_with_secrets(workplace) == {".git/config": {planted.REMOTE_TOKEN}}
