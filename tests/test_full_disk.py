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

import numpy as np
import pytest
from tiny_data import CLASSES, IMAGES, SEED, pack_tiny, tiny_params

from parashot.data.images import encode_jpeg
from parashot.data.pack import pack
from parashot.data.raw import ImageStream, RawImage, write_raw
from parashot.data.splits import write_split
from parashot.errors import one_line
from parashot.files import replacing_file, replacing_folder, write_text
from parashot.model.network import build_network
from parashot.model.weights import save_weights
from parashot.parallel.context import Context, Placement
from parashot.records import write_rows
from parashot.sweep.delivery import receive, send
from parashot.train.assemble import new_strategy
from parashot.train.checkpoint import Checkpoints, Progress
from parashot.train.records import EpisodeAccuracy

ROOT = Path(__file__).parents[1]


def mount(folder: Path, options: str) -> None:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"disks cannot be mounted here: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount(folder, "size=8m")
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


# --- all kinds of outputs -----------------------------------------------------------------------------

Writer = Callable[[Path], object]


def picture(number: int) -> bytes:
    return encode_jpeg(np.random.default_rng(number).integers(0, 256, (40, 40, 3), dtype=np.uint8))


def raw(out: Path) -> None:
    images = [RawImage(label, f"{number}.jpg", picture(number)) for label in "abc" for number in range(8)]
    write_raw(out, ImageStream(images), "folder", "fail", lambda line: None)


def rows(out: Path) -> None:
    write_rows(out, EpisodeAccuracy, [EpisodeAccuracy(number, 0.5) for number in range(2000)])


def weights(out: Path) -> None:
    model = tiny_params().model
    save_weights(out, model, build_network(model, SEED).state_dict())


def state(out: Path) -> None:
    """A training that is not done; `out` is the file of its second step."""
    alone = Context(0, 1, 0, 1, Placement("cpu", 1, 1, 1))
    checkpoints = Checkpoints(out.parent, alone)
    try:
        checkpoints.save(new_strategy("serial", tiny_params(), alone), Progress(step=2))
    finally:
        checkpoints.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw and packed images, on a disk with room."""
    folder = tmp_path_factory.mktemp("made")
    pack_tiny(folder)
    return folder


@pytest.fixture
def writers(made: Path) -> dict[str, Writer]:
    """By the name of the output."""

    def packed(out: Path) -> None:
        names = [f"{number}.jpg" for number in range(IMAGES)]
        split = {
            name: {label: [f"{label}/{each}" for each in names] for label in labels}
            for name, labels in CLASSES.items()
        }
        pack(made / "raw", split, out, pack_size=16, progress=lambda line: None)

    def split(out: Path) -> None:
        write_split(made / "raw", out, SEED, n_way=2, images_needed=4)

    def delivered(out: Path) -> None:
        sent = send(made / "packed", lambda data: data)
        gone = dataclasses.replace(sent, path=Path("/nowhere"))
        receive(gone, out.parent, lambda data: data)

    return {
        "raw": raw,
        "split": split,
        "packed": packed,
        "rows.csv": rows,
        "model.pt": weights,
        "step-000000000002.pt": state,
        "page.html": lambda out: write_text(out, "word " * 20_000),
        "delivered": delivered,
    }


NAMES = ("raw", "split", "packed", "rows.csv", "model.pt", "step-000000000002.pt", "page.html")


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in _files(folder)}


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "filler"]


@pytest.mark.parametrize("name", NAMES)
def test_the_earlier_output_stays(name: str, place: Place, writers: dict[str, Writer]) -> None:
    out = place.folder / "outputs" / name
    writers[name](out)
    before = content(place.folder)
    assert f"outputs/{name}" in " ".join(before)
    with place.when_full(), pytest.raises(OSError) as refused:
        writers[name](out)
    assert content(place.folder) == before
    assert place.said in one_line(refused.value)
    assert str(out) in one_line(refused.value)
    writers[name](out)
    assert content(place.folder).keys() == before.keys()


def test_a_delivery_is_whole_or_not_there(place: Place, writers: dict[str, Writer]) -> None:
    with place.when_full(), pytest.raises(OSError) as refused:
        writers["delivered"](place.folder / "any")
    assert place.said in one_line(refused.value)
    assert [each.suffix for each in _files(place.folder)] == [".lock"]


# --- a stage, as DVC runs it --------------------------------------------------------------------------


def run_stage(folder: Path) -> subprocess.CompletedProcess[str]:
    """Let the stage `hardware` write hardware.json in `folder`."""
    return subprocess.run(
        [sys.executable, "-m", "stages.hardware"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_stage_says_it_in_one_line(disk: Path) -> None:
    assert run_stage(disk).returncode == 0
    before = content(disk)
    (disk / "filler").write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize))
    done = run_stage(disk)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the disk is full while writing hardware.json; free some space")
    assert done.stderr.count("\n") == 1
    assert content(disk) == before
    (disk / "filler").unlink()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    done = run_stage(disk)
    assert done.returncode == 1
    assert done.stderr.startswith("error: hardware.json is on a read-only file system; mount it for writing")
    assert done.stderr.count("\n") == 1
    assert content(disk) == before


# --- a folder that may not be written to --------------------------------------------------------------


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


@pytest.mark.parametrize("replacing", [replacing_file, replacing_folder])
def test_a_folder_that_is_read_only(
    replacing: Callable[[Path], AbstractContextManager[Path]],
) -> None:
    with tempfile.TemporaryDirectory() as name:  # that of pytest is closed to others
        folder = Path(name)
        (folder / "kept").write_text("old")
        folder.chmod(0o555)
        with as_anyone():
            for out in (folder / "out", folder / "new/out"):
                with pytest.raises(OSError) as refused, replacing(out):
                    pytest.fail("nothing can be written there")
                assert one_line(refused.value).startswith(f"no permission for {folder}/")
        assert content(folder) == {"kept": b"old"}
        folder.chmod(0o755)
