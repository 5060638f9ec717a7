"""A reader finds the old output or the new one, whatever happens in between; errors are one line."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event

import pytest

from parashot import files
from parashot.errors import DataError, one_line
from parashot.files import replacing_file, replacing_folder, write_text

ROOT = Path(__file__).parents[1]
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
    with pytest.raises(OSError, match="No space left"), replacing(old) as temporary:
        _fill(temporary, replacing, "new")
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


# --- killed writers -----------------------------------------------------------------------------------


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


LINES = 5000
WRITER = f"""
import itertools, sys
from pathlib import Path
from parashot.files import write_text
for number in itertools.count(int(sys.argv[2])):
    write_text(Path(sys.argv[1]), f"{{number}}\\n" * {LINES})
    if number == int(sys.argv[2]):
        print("writing", flush=True)
"""
"""Writes a file again and again; each time, all lines in it are the same new number."""


def _number(path: Path) -> int:
    """What all lines say. Fails where one is missing or from another time."""
    lines = path.read_text().splitlines()
    assert len(lines) == LINES and len(set(lines)) == 1
    return int(lines[0])


@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_readers_see_the_old_or_the_new_whatever_is_killed(
    kills: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    moments, done, file = random.Random(kills), Event(), tmp_path / "file"
    write_text(file, "0\n" * LINES)

    def read_on() -> int:
        """Read until all is over; return how often. What was read never goes back."""
        times = last = 0
        while not done.is_set():
            last, times = max(last, number := _number(file)), times + 1
            assert number == last
        return times

    with ThreadPoolExecutor() as pool, contextlib.ExitStack() as at_end:
        at_end.callback(done.set)
        reader = pool.submit(read_on)
        for _ in range(kills):
            command = [sys.executable, "-c", WRITER, str(file), str(_number(file) + 1)]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
                assert writer.stdout and writer.stdout.readline() == b"writing\n"
                time.sleep(moments.uniform(0, 0.05))
                writer.kill()
            assert writer.returncode == -signal.SIGKILL
        done.set()
        assert reader.result() > kills
    write_text(file, "the last")
    assert list(tmp_path.iterdir()) == [file]
    record_property("writers_killed", kills)


# --- what is written ----------------------------------------------------------------------------------


def test_what_is_linked_from_a_cache_is_never_written_into(tmp_path: Path) -> None:
    cached, linked = tmp_path / "cached", tmp_path / "out"
    cached.write_text("old")
    cached.chmod(0o444)
    linked.hardlink_to(cached)
    write_text(linked, "95% ± 2 × 3\n")
    assert (cached.read_text(), linked.read_bytes()) == ("old", "95% ± 2 × 3\n".encode())
    assert linked.stat().st_mode & 0o200


# --- disks that are full, or may not be written to ----------------------------------------------------


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


def test_a_stage_says_it_in_one_line(tmp_path: Path) -> None:
    """On a real disk that is full, and then read-only; root alone can mount one."""

    def mount(options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(tmp_path)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("disks cannot be mounted here")

    def stage() -> str:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        command = [sys.executable, "-m", "stages.hardware"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.stderr.count("\n") == done.returncode
        return done.stderr

    mount("size=64k")
    try:
        assert stage() == ""
        before = _content(tmp_path)
        rest = os.statvfs(tmp_path)
        (tmp_path / "filler").write_bytes(bytes(rest.f_bavail * rest.f_bsize))
        assert stage().startswith("error: the disk is full while writing hardware.json; free some space")
        (tmp_path / "filler").unlink()
        mount("remount,ro")
        assert stage().startswith("error: hardware.json is on a read-only file system; mount it for writing")
        assert _content(tmp_path) == before
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_folder_that_is_read_only(replacing: Replacing) -> None:
    is_root = os.geteuid() == 0  # for whom nothing is forbidden: act as a user who owns nothing
    with tempfile.TemporaryDirectory() as name:  # that of pytest is closed to others
        folder = Path(name)
        folder.chmod(0o555)
        if is_root:
            os.seteuid(65534)
        try:
            for out in (folder / "out", folder / "new/out"):
                with pytest.raises(OSError) as refused, replacing(out) as temporary:
                    _fill(temporary, replacing, "new")
                assert one_line(refused.value).startswith(f"no permission for {folder}/")
        finally:
            if is_root:
                os.seteuid(0)
        assert list(folder.iterdir()) == []
        folder.chmod(0o755)


# --- errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("a.csv:\n  no column\tlabel\n"), "a.csv: no column label"),
        (DataError("a\n.csv: no column"), r"a\n.csv: no column"),
        (ValueError(), "ValueError"),
        (OSError(errno.EDQUOT, "Quota exceeded"), "the disk quota is used up while writing a file; free"),
        (FileNotFoundError(errno.ENOENT, "No such file", "a/b"), "a/b: no such file or folder; "),
        (DataError("x" * 9_000), "x" * 1_500 + " … "),
    ],
)
def test_errors_are_one_line(error: Exception, line: str) -> None:
    assert one_line(error).startswith(line)
    assert one_line(error).isprintable()
