"""A leak is found, whatever leaks; the project's own work has none, and leaves nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import leaks_watch
from benchmarks.footprint import QUANTITIES
from benchmarks.growth import Growth
from benchmarks.leaks import WORKS, Work, growing
from benchmarks.leaks_watch import Watched, watch, when_saved, when_told
from benchmarks.leaks_work import PROGRAM, RESTARTS, SERIAL, prepare, scratch
from parashot.errors import DeviceError

LOOKS = 24
BY_NAME = {work.name: replace(work, most_memory_mb=200.0) for work in WORKS}
"""A short work has not settled yet; a leak of a MB per unit is five times as much."""

PLAIN = """
import os, subprocess, sys, tempfile, threading
kept = []
def leak():
    kept.append(bytearray(os.urandom(2**20)))
    os.close(tempfile.mkstemp()[0])
    kept.append(os.open(f"/dev/shm/{sys.argv[2]}-{len(kept)}", os.O_CREAT))
    if len(kept) % 4 == 0:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        subprocess.Popen(["sleep", "30"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
for number in range(int(sys.argv[1])):
    if len(sys.argv) > 2:
        leak()
    print(number + 1, flush=True)
    sys.stdin.readline()
"""
"""Work that leaks everything there is, if it is told a name."""

KEEPING_STATES = f"""
from parashot.train.checkpoint import Checkpoints
kept, save = [], Checkpoints.save
def saved(self, strategy, progress):
    save(self, strategy, progress)
    kept.append((bytearray(b"1" * 2**22), open(self._file(progress.step), "rb")))
Checkpoints.save = saved
{PROGRAM}
"""
KEEPING_LOADERS = f"""
from benchmarks import leaks_work
kept, made = [], leaks_work.episode_loader
leaks_work.episode_loader = lambda *each: kept.append(made(*each)) or kept[-1]
{PROGRAM}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("leaks")
    prepare(made)
    return made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaks_watch, "_PATIENCE_SECONDS", 0.1)


@pytest.fixture
def name() -> Iterator[str]:
    """For files in shared memory, which go in the end."""
    yield (prefix := "parashot-test-leaks")
    for path in Path("/dev/shm").glob(f"{prefix}-*"):
        path.unlink()


def training(folder: Path, steps: int, program: str = PROGRAM) -> list[str]:
    found = watch(
        [sys.executable, "-c", program, str(folder), SERIAL, str(steps)], when_saved(scratch(folder))
    )
    return growing(BY_NAME[SERIAL], found)


def restarts(folder: Path, count: int, program: str = PROGRAM) -> list[str]:
    found = watch([sys.executable, "-c", program, str(folder), RESTARTS, str(count)], when_told)
    return growing(BY_NAME[RESTARTS], found)


# --- growth -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "more"),
    [
        ([5] * 40, 0),
        ([*range(10), *[10] * 30], 0),  # warming up
        ([5, 6, 4, 5] * 10, 0),
        ([5] * 35 + [900] + [5] * 4, 0),  # an odd look
        ([5] * 25 + [6] * 15, 1),  # a single step up
        ([5 + number / 10 for number in range(40)], 2.0),  # creeping
        ([9 - number / 10 for number in range(40)], -2.0),
    ],
)
def test_growth_is_told_from_noise(values: list[float], more: float) -> None:
    growth = Growth.of(range(0, 400, 10), values)
    assert growth.distance == 200
    assert growth.more == pytest.approx(more, abs=1e-9)


def test_few_looks_say_nothing() -> None:
    with pytest.raises(ValueError, match="7 looks"):
        Growth.of(range(7), [0.0] * 7)


# --- plain processes ----------------------------------------------------------------------------------


def plain(*words: str) -> Watched:
    return watch([sys.executable, "-c", PLAIN, str(LOOKS), *words], when_told)


def test_whatever_leaks_is_found(name: str, impatient: None) -> None:
    found = plain(name)
    assert growing(Work("", "", "looks", most_memory_mb=200.0), found) == list(QUANTITIES.values())
    assert found.left.processes == LOOKS // 2  # every other look started one
    assert found.left.shared_files == found.left.temporary_files == LOOKS


def test_what_does_not_leak_is_flat() -> None:
    found = plain()
    assert growing(Work("", "", "looks", most_memory_mb=1.0), found) == []
    assert found.at == list(range(1, LOOKS + 1))
    assert {each.processes for each in found.looks} == {1}


def test_work_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="exit code 3"):
        watch([sys.executable, "-c", "raise SystemExit(3)"], when_saved(tmp_path))


# --- the project's own work ---------------------------------------------------------------------------


def test_a_training_leaks_nothing(folder: Path) -> None:
    assert training(folder, 320) == []


def test_a_training_that_keeps_its_states_is_found(folder: Path) -> None:
    assert training(folder, 240, KEEPING_STATES) == ["memory (MB)", "open descriptors"]


def test_a_loader_that_starts_again_leaks_nothing(folder: Path) -> None:
    assert restarts(folder, 12) == []


def test_loaders_that_are_kept_are_found(folder: Path) -> None:
    grown = restarts(folder, 8, KEEPING_LOADERS)
    assert {"memory (MB)", "open descriptors", "threads", "processes"} <= set(grown)
