"""`parashot clean`: what would go is listed, nothing goes without --yes, results stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parashot.cli import main

GONE = {
    "checkpoints": [".scratch/abc/step_100.pt"],
    "mlflow": ["mlflow.db", "mlflow.db-wal", "mlruns/parashot/1/artifacts/a.txt"],
}
KEPT = [
    "results/summary.json",
    "data/raw/a.jpg",
    "mlruns/.gitkeep",
    ".dvc/cache/x",
    "dvc.yaml",
    "params.yaml",
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [*KEPT, *(each for names in GONE.values() for each in names)]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "params.yaml").write_text("batchsz_study: {}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def there(folder: Path) -> set[str]:
    return {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}


def test_nothing_goes_without_yes_then_one_kind_and_then_all(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = there(here)
    assert main(["clean"]) == main(["clean", "mlflow"]) == 0
    assert there(here) == before
    assert "would remove .scratch\n" in capsys.readouterr().out
    assert main(["clean"]) == 0 and "mlflow" not in capsys.readouterr().out
    assert main(["clean", "checkpoints", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": False, "files": [".scratch"]}
    assert main(["clean", "--yes"]) == 0
    assert there(here) == {*KEPT, *GONE["mlflow"]}
    assert main(["clean", "mlflow", "--yes"]) == 0
    assert there(here) == set(KEPT)


def test_elsewhere_and_of_another_kind_it_touches_nothing(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = there(here)
    assert main(["clean", "everything", "--yes"]) == 2
    assert there(here) == before
    (here / "params.yaml").write_text("training: {}")  # a project of the user's own
    assert main(["clean", "--yes"]) == 2
    assert there(here) == before and "no study here" in capsys.readouterr().err
