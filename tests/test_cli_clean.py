"""`parashot clean`: sizes are shown, nothing goes without a yes, results stay."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest

from parashot.cli import main

GONE = {
    "checkpoints": [".scratch/abc/step_100.pt"],
    "cache": [".dvc/cache/files/md5/ab/cdef"],
    "mlflow": ["mlflow.db", "mlflow.db-wal", "mlruns/parashot/1/artifacts/a.txt", "mlruns/.lock"],
}
KEPT = ["results/summary.json", "data/raw/a.jpg", "mlruns/.gitkeep", ".dvc/config", "dvc.yaml", "params.yaml"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [*KEPT, *(each for names in GONE.values() for each in names)]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * 2**20)
    (tmp_path / ".dvc/cache/files/md5/ab/cdef").chmod(0o444)
    (tmp_path / ".dvc/cache/files/md5/ab").chmod(0o555)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def there(folder: Path) -> set[str]:
    return {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}


def test_all_of_it_with_yes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", "--yes"]) == 0
    assert there(here) == set(KEPT)
    printed = capsys.readouterr().out
    assert "checkpoints: 1.00 MiB" in printed and "mlflow: 4.00 MiB" in printed
    assert printed.endswith("6.00 MiB given back\n")


def test_one_kind_alone(here: Path) -> None:
    assert main(["clean", "checkpoints", "--yes"]) == 0
    assert there(here) == {*KEPT, *GONE["cache"], *GONE["mlflow"]}


def test_without_a_terminal_nothing_goes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = there(here)
    assert main(["clean"]) == 0
    assert there(here) == before
    printed = capsys.readouterr()
    assert printed.out.endswith("0 MiB given back\n") and printed.err.count("--yes removes it") == 3


def test_each_kind_is_asked_for(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["n", "yes", ""])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(builtins, "input", lambda _: next(answers))
    assert main(["clean"]) == 0
    assert there(here) == {*KEPT, *GONE["checkpoints"], *GONE["mlflow"]}


def test_a_cache_that_outputs_are_links_into_stays(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "data/raw/b.jpg").symlink_to(here / GONE["cache"][0])
    assert main(["clean", "cache", "--yes"]) == 0
    assert GONE["cache"][0] in there(here)
    assert "cache: kept" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["everything"], ["cache", "cash"]])
def test_an_unknown_kind_is_one_line(
    here: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["clean", *words, "--yes"]) == 1
    assert "not one of checkpoints, cache, mlflow" in capsys.readouterr().err
    assert set(KEPT) < there(here)


def test_elsewhere_it_touches_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "dvc.yaml").unlink()
    before = there(here)
    assert main(["clean", "--yes"]) == 1
    assert there(here) == before and "no dvc.yaml here" in capsys.readouterr().err


def test_no_answer_is_a_no(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(builtins, "input", ends)
    before = there(here)
    assert main(["clean"]) == 0
    assert there(here) == before
