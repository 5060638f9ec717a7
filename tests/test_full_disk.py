"""A disk that is full or may not be written to: one line, the earlier output whole, nothing beside it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tiny_data import SEED, tiny_params

from parashot.errors import one_line
from parashot.files import replacing_file, replacing_folder
from parashot.model.network import build_network
from parashot.model.weights import save_weights
from parashot.records import write_rows
from parashot.train.records import EpisodeAccuracy

ROOT = Path(__file__).parents[1]


@contextmanager
def limited() -> Iterator[None]:
    """Let no file of this process grow beyond 300 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


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


def rows(out: Path) -> None:
    write_rows(out, EpisodeAccuracy, [EpisodeAccuracy(number, 0.5) for number in range(2000)])


def weights(out: Path) -> None:
    model = tiny_params().model
    save_weights(out, model, build_network(model, SEED).state_dict())


def folder(out: Path) -> None:
    with replacing_folder(out) as temporary:
        (temporary / "one").write_text("x")
        (temporary / "two").write_bytes(bytes(100_000))


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("write", [rows, weights, folder])
def test_the_earlier_output_stays(write: Callable[[Path], None], tmp_path: Path) -> None:
    out = tmp_path / "outputs/out"
    write(out)
    before = content(tmp_path)
    with limited(), pytest.raises(OSError) as refused:
        write(out)
    assert content(tmp_path) == before
    assert one_line(refused.value).startswith(f"{out} grows larger than a file may be here; raise the limit")
    write(out)
    assert content(tmp_path).keys() == before.keys()


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
        before = (tmp_path / "hardware.json").read_bytes()
        rest = os.statvfs(tmp_path)
        (tmp_path / "filler").write_bytes(bytes(rest.f_bavail * rest.f_bsize))
        assert stage().startswith("error: the disk is full while writing hardware.json; free some space")
        (tmp_path / "filler").unlink()
        mount("remount,ro")
        assert stage().startswith("error: hardware.json is on a read-only file system; mount it for writing")
        assert content(tmp_path) == {"hardware.json": before}
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_folder_that_is_read_only() -> None:
    with tempfile.TemporaryDirectory() as name:  # that of pytest is closed to others
        folder = Path(name)
        (folder / "kept").write_text("old")
        folder.chmod(0o555)
        with as_anyone():
            for replacing in (replacing_file, replacing_folder):
                for out in (folder / "out", folder / "new/out"):
                    with pytest.raises(OSError) as refused, replacing(out) as temporary:
                        temporary.write_text("new")
                    assert one_line(refused.value).startswith(f"no permission for {folder}/")
        assert content(folder) == {"kept": b"old"}
        folder.chmod(0o755)
