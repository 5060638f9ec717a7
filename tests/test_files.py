"""A reader finds the old output or the new one, whatever happens in between; errors are one line."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from parashot import files
from parashot.errors import DataError, one_line
from parashot.files import replacing_file, replacing_folder, write_text

Replacing = Callable[[Path], AbstractContextManager[Path]]


def _fill(temporary: Path, replacing: Replacing, text: str) -> None:
    """Write what a stage would: a file, or a folder with a file in a folder."""
    if replacing is replacing_folder:
        (temporary / "inner").mkdir()
        (temporary / "inner/file").write_text(text)
    else:
        temporary.write_text(text)


def _content(path: Path) -> dict[str, str]:
    """All files at and below `path`."""
    found = [path] if path.is_file() else sorted(path.rglob("*"))
    return {file.relative_to(path).as_posix(): file.read_text() for file in found if file.is_file()}


@pytest.fixture(params=[replacing_file, replacing_folder], ids=["file", "folder"])
def replacing(request: pytest.FixtureRequest) -> Replacing:
    chosen: Replacing = request.param
    return chosen


@pytest.fixture
def old(tmp_path: Path, replacing: Replacing) -> Path:
    path = tmp_path / "above/out"
    with replacing(path) as temporary:
        _fill(temporary, replacing, "old")
    return path


@pytest.mark.parametrize("error", [RuntimeError(), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_and_nothing_else(
    error: BaseException, old: Path, replacing: Replacing
) -> None:
    before = _content(old)
    with pytest.raises(type(error)), replacing(old) as temporary:
        _fill(temporary, replacing, "half of the n")
        raise error
    assert _content(old) == before
    assert list(old.parent.iterdir()) == [old]


def test_everything_is_on_the_disk_before_it_takes_its_place(
    old: Path, replacing: Replacing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full only when it is asked to keep what was written."""
    synced: list[str] = []

    def full(path: Path) -> None:
        synced.append(path.name)
        if path.name == old.parent.name or path.name.endswith(".tmp"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = _content(old)
    monkeypatch.setattr(files, "_fsync", full)
    with pytest.raises(OSError) as refused, replacing(old) as temporary:
        _fill(temporary, replacing, "new")
    assert one_line(refused.value).startswith(f"the disk is full while writing {old};")
    assert synced == (["inner", "file"] if replacing is replacing_folder else []) + [temporary.name]
    assert _content(old) == before
    assert list(old.parent.iterdir()) == [old]


def test_what_is_in_the_way_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/own").write_text("mine")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError) as refused:
        write_text(tmp_path / "folder", "new")
    assert one_line(refused.value).startswith(f"{tmp_path}/folder is a folder, and a file is needed there")
    for path in (tmp_path / "file", tmp_path / "file/inner"):
        with pytest.raises(OSError) as refused, replacing_folder(path):
            pass
        assert str(tmp_path / "file") in one_line(refused.value)
        assert "move " in one_line(refused.value)
    assert _content(tmp_path) == {"folder/own": "mine", "file": "mine"}


def test_a_kill_leaves_the_old_and_the_next_writer_clears_up(old: Path, replacing: Replacing) -> None:
    before = _content(old)
    program = f"""
import os, signal, sys
from pathlib import Path
from parashot.files import {replacing.__name__} as replacing
with replacing(Path(sys.argv[1])) as temporary:
    (temporary / "file" if temporary.is_dir() else temporary).write_text("half of the n")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program, old], check=False).returncode == -signal.SIGKILL
    assert _content(old) == before
    assert len(list(old.parent.iterdir())) == 2
    others = [old.parent / f".out.{os.getppid()}.tmp", old.parent / ".out.own.tmp"]
    for each in others:  # of a process that lives, and what only looks like a temporary
        each.write_text("mine")
    for end in ("tmp", "old"):  # in a container a killed process had the same pid
        (old.parent / f".out.{os.getpid()}.{end}").mkdir()
        (old.parent / f".out.{os.getpid()}.{end}/file").write_text("half of the n")
    with replacing(old) as temporary:
        _fill(temporary, replacing, "new")
    assert set(_content(old).values()) == {"new"}
    assert set(old.parent.iterdir()) == {old, *others}


def test_a_reader_sees_the_old_or_the_new(tmp_path: Path) -> None:
    """All lines are the same number: none is missing or from another time."""
    file = tmp_path / "file"
    write_text(file, "0\n" * 5000)

    def write_on() -> None:
        for number in range(200):
            write_text(file, f"{number}\n" * 5000)

    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write_on)
        while not writing.done():
            lines = file.read_text().splitlines()
            assert len(lines) == 5000 and len(set(lines)) == 1
        writing.result()


def test_what_is_linked_from_a_cache_is_never_written_into(tmp_path: Path) -> None:
    cached, linked = tmp_path / "cached", tmp_path / "out"
    cached.write_text("old")
    cached.chmod(0o444)
    linked.hardlink_to(cached)
    write_text(linked, "95% ± 2 × 3\n")
    assert (cached.read_text(), linked.read_bytes()) == ("old", "95% ± 2 × 3\n".encode())
    assert linked.stat().st_mode & 0o200


def test_a_file_that_may_not_grow_leaves_the_old(old: Path, replacing: Replacing) -> None:
    before, limits = _content(old), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))
    try:
        with pytest.raises(OSError) as refused, replacing(old) as temporary:
            _fill(temporary, replacing, "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (_content(old), list(old.parent.iterdir())) == (before, [old])
    assert one_line(refused.value).startswith(f"{old} grows larger than a file may be here; raise the limit")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("a.csv:\n  no column\tlabel\n"), "a.csv: no column label"),
        (DataError("a\n.csv: no column"), r"a\n.csv: no column"),
        (ValueError(), "ValueError"),
        (OSError(errno.EDQUOT, "Quota exceeded"), "the disk quota is used up while writing a file; free"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a/b"), "a/b: no such file or folder; "),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "no permission for a/b; change its mode"),
        (OSError(errno.EROFS, "Read-only", "a/b"), "a/b is on a read-only file system; mount it"),
        (DataError("x" * 9_000), "x" * 1_500 + " … "),
    ],
)
def test_errors_are_one_line(error: Exception, line: str) -> None:
    assert one_line(error).startswith(line)
    assert one_line(error).isprintable()
