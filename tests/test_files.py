"""A reader finds the old output or the new one, whatever happens in between; errors are one line."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event

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


# --- a kernel, or a file system, that cannot exchange two folders -------------------------------------


@pytest.fixture
def without_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_call(one: Path, other: Path) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(files, "_exchange", no_such_call)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with replacing_folder(tmp_path / "out") as temporary:
        _fill(temporary, replacing_folder, "old")
    return tmp_path / "out"


@pytest.mark.usefixtures("without_exchange")
def test_the_old_folder_steps_aside(folder: Path) -> None:
    with replacing_folder(folder) as temporary:
        _fill(temporary, replacing_folder, "new")
    assert _content(folder) == {"inner/file": "new"}
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.usefixtures("without_exchange")
def test_a_folder_that_cannot_take_its_place_gives_it_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def refuse(source: Path, target: Path) -> Path:
        if source.name.endswith(".tmp"):
            raise OSError(errno.EIO, "Input/output error")
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="Input/output"), replacing_folder(folder) as temporary:
        _fill(temporary, replacing_folder, "new")
    assert _content(folder) == {"inner/file": "old"}
    assert list(folder.parent.iterdir()) == [folder]


def test_what_had_stepped_aside_when_its_writer_was_killed_comes_back(folder: Path) -> None:
    program = """
import errno, os, signal, sys
from pathlib import Path
from parashot import files
def no_such_call(one, other):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
def replace(source, target):
    if source.name.endswith(".tmp"):
        os.kill(os.getpid(), signal.SIGKILL)
    os.replace(source, target)
files._exchange, Path.replace = no_such_call, replace
with files.replacing_folder(Path(sys.argv[1])) as temporary:
    (temporary / "file").write_text("new")
"""
    assert _run(program, folder).returncode == -signal.SIGKILL
    assert not folder.exists()
    with pytest.raises(RuntimeError), replacing_folder(folder):
        raise RuntimeError
    assert _content(folder) == {"inner/file": "old"}
    assert list(folder.parent.iterdir()) == [folder]


# --- what is in the way -------------------------------------------------------------------------------


def test_a_folder_is_never_taken_for_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/own").write_text("mine")
    with pytest.raises(IsADirectoryError) as refused:
        write_text(tmp_path / "out", "new")
    assert one_line(refused.value).startswith(f"{tmp_path}/out is a folder, and a file is needed there")
    assert _content(tmp_path) == {"out/own": "mine"}


def test_a_file_is_never_taken_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    for path in (tmp_path / "out", tmp_path / "out/inner"):
        with pytest.raises(OSError) as refused, replacing_folder(path):
            pytest.fail("nothing can be written there")
        assert str(tmp_path / "out") in one_line(refused.value)
        assert "; move " in one_line(refused.value)
    assert _content(tmp_path) == {"out": "mine"}


# --- killed writers -----------------------------------------------------------------------------------


def _run(program: str, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", program, *map(str, arguments)], check=False)


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
    assert _run(program, old).returncode == -signal.SIGKILL
    assert _content(old) == before
    assert len(list(old.parent.iterdir())) == 2
    with replacing(old) as temporary:
        _fill(temporary, replacing, "new")
    assert set(_content(old).values()) == {"new"}
    assert list(old.parent.iterdir()) == [old]


def test_what_a_living_writer_works_on_stays(old: Path, replacing: Replacing) -> None:
    """Also that of another output, and what only looks like a temporary."""
    program = f"""
import sys
from pathlib import Path
from parashot.files import {replacing.__name__} as replacing
with replacing(Path(sys.argv[1])) as temporary:
    (temporary / "file" if temporary.is_dir() else temporary).write_text("of the other")
    print("writing", flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", program, str(old)]
    (old.parent / ".out.own.tmp").write_text("mine")
    (old.parent / ".out.csv.7.tmp").write_text("of out.csv")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout and other.stdout.readline() == b"writing\n"
        with replacing(old) as temporary:
            _fill(temporary, replacing, "new")
        assert set(_content(old).values()) == {"new"}
        assert (old.parent / f".out.{other.pid}.tmp").exists()
    assert other.returncode == 0
    assert set(_content(old).values()) == {"of the other"}
    assert {each.name for each in old.parent.iterdir()} == {"out", ".out.own.tmp", ".out.csv.7.tmp"}


LINES = 5000
WRITER = f"""
import itertools, sys
from pathlib import Path
from parashot.files import replacing_file, replacing_folder
where = Path(sys.argv[1])
for number in itertools.count(int(sys.argv[2])):
    text = f"{{number}}\\n" * {LINES}
    with replacing_file(where / "file") as temporary:
        temporary.write_text(text)
    with replacing_folder(where / "folder") as temporary:
        (temporary / "inner").mkdir()
        (temporary / "a").write_text(text)
        (temporary / "inner/b").write_text(text)
    if number == int(sys.argv[2]):
        print("writing", flush=True)
"""
"""Writes a file and a folder again and again; each time, all lines in them are the same new number."""


def _number(*texts: str) -> int:
    """What all lines say. Fails where one is missing or from another time."""
    lines = [line for text in texts for line in text.splitlines()]
    assert len(lines) == LINES * len(texts) and len(set(lines)) == 1
    return int(lines[0])


def _read_file(where: Path) -> int:
    return _number((where / "file").read_text())


def _read_folder(where: Path) -> int:
    """What one folder holds; where another takes its place meanwhile, it vanishes, and is read again."""
    for _ in range(1000):
        folder = os.open(where / "folder", os.O_RDONLY | os.O_DIRECTORY)
        try:
            return _number(*(_read_at(name, folder) for name in ("a", "inner/b")))
        except FileNotFoundError:
            continue
        finally:
            os.close(folder)
    raise AssertionError("a folder that is never whole")


def _read_at(name: str, folder: int) -> str:
    with os.fdopen(os.open(name, os.O_RDONLY, dir_fd=folder)) as file:
        return file.read()


@pytest.mark.parametrize("kills", [24, pytest.param(300, marks=pytest.mark.slow)])
def test_readers_see_the_old_or_the_new_whatever_is_killed(
    kills: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    moments = random.Random(kills)
    done = Event()

    def read_on(read: Callable[[Path], int]) -> int:
        """Read until all is over; return how often. What was read never goes back."""
        times = last = 0
        while not done.is_set():
            last, times = max(last, number := read(tmp_path)), times + 1
            assert number == last
        return times

    with ThreadPoolExecutor() as pool, contextlib.ExitStack() as at_end:
        at_end.callback(done.set)
        readers: list[Future[int]] = []
        for _ in range(kills):
            first = _read_folder(tmp_path) + 1 if readers else 1
            command = [sys.executable, "-c", WRITER, str(tmp_path), str(first)]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
                assert writer.stdout and writer.stdout.readline() == b"writing\n"
                readers = readers or [pool.submit(read_on, each) for each in (_read_file, _read_folder)]
                time.sleep(moments.uniform(0, 0.05))
                writer.kill()
            assert writer.returncode == -signal.SIGKILL
            assert _read_file(tmp_path) >= _read_folder(tmp_path) >= first
        done.set()
        assert all(reader.result() > kills for reader in readers)
    write_text(tmp_path / "file", "the last")
    with replacing_folder(tmp_path / "folder") as temporary:
        _fill(temporary, replacing_folder, "the last")
    assert {each.name for each in tmp_path.iterdir()} == {"file", "folder"}
    record_property("writers_killed", kills)


# --- what is written ----------------------------------------------------------------------------------


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
        (ValueError("a.csv:\n  no column\tlabel\n"), "a.csv: no column label"),
        (DataError("a\n.csv: no column"), r"a\n.csv: no column"),
        (ValueError(), "ValueError"),
        (OSError(errno.ENOSPC, "No space", "a/b"), "the disk is full while writing a/b; free some space"),
        (OSError(errno.EDQUOT, "Quota exceeded"), "the disk is full; free some space"),
        (PermissionError(errno.EACCES, "Permission denied", "a/b"), "no permission for a/b; change its mode"),
        (OSError(errno.EROFS, "Read-only file system", "a/b"), "a/b is on a read-only file system; mount"),
        (OSError(errno.EFBIG, "File too large", "a/b"), "a/b grows larger than a file may be here; raise"),
        (OSError(errno.EISDIR, "Is a directory", "a/b"), "a/b is a folder, and a file is needed there; move"),
        (OSError(errno.ENOTDIR, "Not a directory", "a/b"), "a/b: a folder is needed there, and a file is in"),
        (OSError(errno.EEXIST, "File exists", "a/b"), "a/b is there already; move it away"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a/b"), "[Errno 2] No such file"),
    ],
)
def test_errors_are_one_line(error: Exception, line: str) -> None:
    assert one_line(error).startswith(line)
    assert one_line(error).isprintable()
