"""Leaks: whatever grows is found, and what does not is flat."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import leaks
from benchmarks.leaks import QUANTITIES, Seen, Work, growths, watch
from benchmarks.leaks_work import PROGRAM, RESTARTS, SERIAL, prepare
from parashot.errors import DeviceError

LEAKING = """
import mmap, os, pathlib, subprocess, sys, tempfile, threading, time
folder, kept = pathlib.Path(sys.argv[1]), []
def leak():
    kept.append(bytearray(os.urandom(2**20)))
    os.close(tempfile.mkstemp()[0])
    shared = os.open(f"/dev/shm/{sys.argv[3]}-{len(kept)}", os.O_CREAT | os.O_RDWR)
    os.ftruncate(shared, 4096)
    kept.append(mmap.mmap(shared, 4096))
    if len(kept) % 4 == 0:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
(folder / "scratch/work").mkdir(parents=True)
for number in range(1, int(sys.argv[2]) + 1):
    if len(sys.argv) > 3:
        leak()
    (folder / f"scratch/work/step-{number}.pt").touch()
    while not (folder / "seen").exists() or (folder / "seen").read_text() != str(number):
        time.sleep(0.005)
"""
"""Work that leaks everything there is, if it is told a name."""

KEEPING_LOADERS = f"""
from benchmarks import feeds
kept, made = [], feeds.step_loader
feeds.step_loader = lambda *each: kept.append(made(*each)) or kept[-1]
{PROGRAM}
"""


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A prefix for files in shared memory, which go in the end."""
    monkeypatch.setattr(leaks, "_PATIENCE_SECONDS", 0.1)
    yield (prefix := f"parashot-test-leaks-{os.getpid()}")
    for path in Path("/dev/shm").glob(f"{prefix}-*"):
        path.unlink()


def growing(seen: Seen, most_memory_mb: float) -> list[str]:
    """Quantities that grew, or of which something was left."""
    found = growths(Work("", "", "looks", most_memory_mb), seen)
    return [QUANTITIES[quantity] for quantity, each in found.items() if each.grows]


@pytest.mark.parametrize(
    ("values", "more"),
    [
        ([*range(10), *[10] * 30], 0),  # warming up
        ([5] * 35 + [900] + [5] * 4, 0),  # an odd look
        ([5] * 25 + [6] * 15, 1),  # a single step up
        ([5 + number / 10 for number in range(40)], 2.0),  # creeping
    ],
)
def test_growth_is_told_from_noise(values: list[float], more: float) -> None:
    looks = [dict.fromkeys(QUANTITIES, value) for value in values]
    seen = Seen(dict.fromkeys(QUANTITIES, 0), list(range(0, 400, 10)), looks)
    threads = growths(Work("", "", "looks", 1.0), seen)["threads"]
    assert threads.more == pytest.approx(more)
    assert threads.grows == bool(more)


def looked_at(folder: Path, looks: int, *words: str) -> Seen:
    return watch([sys.executable, "-c", LEAKING, str(folder), str(looks), *words], folder)


def test_whatever_leaks_is_found(tmp_path: Path, name: str) -> None:
    found = looked_at(tmp_path, 8, name)
    assert growing(found, most_memory_mb=200.0) == list(QUANTITIES.values())
    assert found.left["processes"] == 4  # every other look started one
    assert found.left["shared_files"] == found.left["temporary_files"] == 8


def test_what_does_not_leak_is_flat(tmp_path: Path) -> None:
    found = looked_at(tmp_path, 8)
    assert growing(found, most_memory_mb=100.0) == []
    assert found.at == list(range(1, 9))
    with pytest.raises(DeviceError, match="exit code 3"):
        watch([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "count", "program", "grows"),
    [
        (SERIAL, 320, PROGRAM, set()),
        (RESTARTS, 12, PROGRAM, set()),
        (RESTARTS, 8, KEEPING_LOADERS, {"memory (MB)", "open descriptors", "threads", "processes"}),
    ],
)
def test_the_projects_own_work(tmp_path: Path, work: str, count: int, program: str, grows: set[str]) -> None:
    prepare(tmp_path)
    found = watch([sys.executable, "-c", program, str(tmp_path), work, str(count)], tmp_path)
    # a short work has not settled yet; a leak of a MB per unit is five times as much
    found_growing = set(growing(found, most_memory_mb=200.0))
    assert grows <= found_growing if grows else not found_growing
