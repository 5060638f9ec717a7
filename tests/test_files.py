"""A reader finds the old output or the new one, whatever happens in between; errors are one line."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
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
    path = tmp_path / "out"
    with replacing(path) as temporary:
        _fill(temporary, replacing, "old")
    return path


def test_the_new_takes_the_place_of_the_old(old: Path, replacing: Replacing) -> None:
    before = _content(old)
    with replacing(old) as temporary:
        _fill(temporary, replacing, "new")
        assert _content(old) == before
    assert set(_content(old).values()) == {"new"}
    assert list(old.parent.iterdir()) == [old]


def test_folders_above_are_made(tmp_path: Path, replacing: Replacing) -> None:
    with replacing(tmp_path / "a/b/out") as temporary:
        _fill(temporary, replacing, "new")
    assert set(_content(tmp_path / "a/b/out").values()) == {"new"}


@pytest.mark.parametrize("error", [RuntimeError(), KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
def test_a_failure_leaves_the_old_and_nothing_else(
    error: BaseException, old: Path, replacing: Replacing
) -> None:
    before = _content(old)
    with pytest.raises(type(error)), replacing(old) as temporary:
        _fill(temporary, replacing, "half of the n")
        raise error
    assert _content(old) == before
    assert list(old.parent.iterdir()) == [old]


def test_a_disk_that_is_full_at_the_last_moment(
    old: Path, replacing: Replacing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = _content(old)
    monkeypatch.setattr(files, "_fsync", full)
    with pytest.raises(OSError, match="No space left"), replacing(old) as temporary:
        _fill(temporary, replacing, "new")
    assert _content(old) == before
    assert list(old.parent.iterdir()) == [old]


def test_a_folder_that_cannot_take_its_place_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"
    with replacing_folder(path) as temporary:
        _fill(temporary, replacing_folder, "old")
    replace = Path.replace

    def refuse(source: Path, target: Path) -> Path:
        if source.name.endswith(".tmp"):
            raise OSError(errno.EIO, "Input/output error")
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="Input/output"), replacing_folder(path) as temporary:
        _fill(temporary, replacing_folder, "new")
    assert _content(path) == {"inner/file": "old"}
    assert list(tmp_path.iterdir()) == [path]


def test_a_kill_leaves_the_old(old: Path, replacing: Replacing) -> None:
    before = _content(old)
    program = f"""
import os, signal, sys
from pathlib import Path
from parashot.files import {replacing.__name__} as replacing
with replacing(Path(sys.argv[1])) as temporary:
    (temporary / "file" if temporary.is_dir() else temporary).write_text("half of the n")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program, str(old)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert _content(old) == before
    with replacing(old) as temporary:
        _fill(temporary, replacing, "new")
    assert set(_content(old).values()) == {"new"}


def test_what_is_linked_from_a_cache_is_never_written_into(tmp_path: Path) -> None:
    cached, linked = tmp_path / "cached", tmp_path / "out"
    cached.write_text("old")
    cached.chmod(0o444)
    linked.hardlink_to(cached)
    write_text(linked, "new")
    assert (cached.read_text(), linked.read_text()) == ("old", "new")
    assert linked.stat().st_mode & 0o200


def test_text_is_utf8(tmp_path: Path) -> None:
    write_text(tmp_path / "out", "95% ± 2 × 3\n")
    assert (tmp_path / "out").read_bytes() == "95% ± 2 × 3\n".encode()


# --- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (DataError("a.csv:\n  no column\tlabel\n"), "a.csv: no column label"),
        (ValueError(), "ValueError"),
        (OSError(errno.ENOSPC, "No space", "a/b"), "the disk is full while writing a/b; free some space"),
        (OSError(errno.EDQUOT, "Quota exceeded"), "the disk is full; free some space"),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "no permission for a/b; change its mode"),
        (OSError(errno.EROFS, "Read-only file system", "a/b"), "no permission for a/b; change its mode"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a/b"), "[Errno 2] No such file"),
    ],
)
def test_errors_are_one_line(error: Exception, line: str) -> None:
    assert one_line(error).startswith(line)
    assert one_line(error).isprintable()
