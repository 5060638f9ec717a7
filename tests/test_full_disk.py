"""A disk that is full, or may not be written to: one line, the earlier output whole, and nothing beside it.

The disks are real: a small one in memory, which root has to mount, and a limit on the size of files.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from tiny_data import SEED, tiny_params

from parashot.errors import one_line
from parashot.files import replacing_file, replacing_folder, write_text
from parashot.model.network import build_network
from parashot.model.weights import save_weights
from parashot.records import write_rows
from parashot.train.records import EpisodeAccuracy

ROOT = Path(__file__).parents[1]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"disks cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Leave two pages of a disk."""
    rest = os.statvfs(folder)
    filler = folder / "filler"
    filler.write_bytes(bytes(rest.f_bavail * rest.f_bsize - 2 * 4096))
    yield
    filler.unlink()


@contextmanager
def limited() -> Iterator[None]:
    """Let no file of this process grow beyond 300 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where to write, how it comes to be full, and what is said then."""

    folder: Path
    when_full: Callable[[], AbstractContextManager[None]]
    said: str


@pytest.fixture(params=["disk", "limit"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "limit":
        (tmp_path / "limited").mkdir()
        return Place(tmp_path / "limited", limited, "grows larger than a file may be here; raise the limit")
    folder: Path = request.getfixturevalue("disk")
    return Place(folder, lambda: full(folder), "the disk is full while writing ")


def rows(out: Path) -> None:
    write_rows(out, EpisodeAccuracy, [EpisodeAccuracy(number, 0.5) for number in range(2000)])


def weights(out: Path) -> None:
    model = tiny_params().model
    save_weights(out, model, build_network(model, SEED).state_dict())


def page(out: Path) -> None:
    write_text(out, "word " * 20_000)


def folder(out: Path) -> None:
    with replacing_folder(out) as temporary:
        (temporary / "one").write_text("x")
        (temporary / "two").write_bytes(bytes(100_000))


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "filler"
    }


@pytest.mark.parametrize("write", [rows, weights, page, folder])
def test_the_earlier_output_stays(write: Callable[[Path], None], place: Place) -> None:
    out = place.folder / "outputs/out"
    write(out)
    before = content(place.folder)
    with place.when_full(), pytest.raises(OSError) as refused:
        write(out)
    assert content(place.folder) == before
    assert place.said in one_line(refused.value)
    assert str(out) in one_line(refused.value)
    write(out)
    assert content(place.folder).keys() == before.keys()


def run_stage(folder: Path) -> subprocess.CompletedProcess[str]:
    """Let the stage `hardware` write hardware.json in `folder`, as DVC runs it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "stages.hardware"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_stage_says_it_in_one_line(disk: Path) -> None:
    assert run_stage(disk).returncode == 0
    before = content(disk)
    (disk / "filler").write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize))
    done = run_stage(disk)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the disk is full while writing hardware.json; free some space")
    assert done.stderr.count("\n") == 1
    (disk / "filler").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    done = run_stage(disk)
    assert done.returncode == 1
    assert done.stderr.startswith("error: hardware.json is on a read-only file system; mount it for writing")
    assert done.stderr.count("\n") == 1
    assert content(disk) == before


@contextmanager
def as_anyone() -> Iterator[None]:
    """For root nothing is forbidden: act as a user who owns nothing."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_is_read_only() -> None:
    with tempfile.TemporaryDirectory() as name:  # that of pytest is closed to others
        folder = Path(name)
        (folder / "kept").write_text("old")
        folder.chmod(0o555)
        with as_anyone():
            for replacing in (replacing_file, replacing_folder):
                for out in (folder / "out", folder / "new/out"):
                    with pytest.raises(OSError) as refused, replacing(out) as temporary:
                        (temporary / "file" if temporary.is_dir() else temporary).write_text("new")
                    assert one_line(refused.value).startswith(f"no permission for {folder}/")
        assert content(folder) == {"kept": b"old"}
        folder.chmod(0o755)
