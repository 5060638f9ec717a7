"""Fixtures and rules for all tests; its place lets every one of them import `tiny_data`."""

from __future__ import annotations

import os

# Before torch loads: tensors here are so small that threads only wait for each other.
for _library in ("OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"
# Tests start hundreds of processes: each would compile the source anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402
from standing_ranks import StandingRanks  # noqa: E402

if TYPE_CHECKING:
    from command_line import Commands
    from playwright.sync_api import Browser
    from tracked import Checkout

settings.register_profile("parashot", deadline=None, derandomize=True)  # the same examples in every run
settings.load_profile("parashot")

WITH_RANKS = ("tests/measure/", "tests/parallel/", "tests/train/", "tests/tasks/test_own_file.py")
"""Where tests call standing ranks, the same for all."""

STUDY_AND_KILLS = ("tests/pipeline/test_study.py", "tests/pipeline/test_kills.py")
"""Files whose tests go before others where cores are few; kills do not wait for ever for trainings to end."""

LONGEST_FIRST = (
    *STUDY_AND_KILLS,
    "tests/pipeline/test_docs_commands.py",
    *WITH_RANKS,
    "tests/pipeline/",
    "tests/benchmarks/",
)
"""Where tests begin that take long, so that no worker is left alone with them at the end."""

SLOW_SECONDS = 900
"""Time-out of a slow test that sets none itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes long first, and give slow tests the time they take."""

    def turn(item: pytest.Item) -> int:
        places = (number for number, start in enumerate(LONGEST_FIRST) if item.nodeid.startswith(start))
        return next(places, len(LONGEST_FIRST))

    items.sort(key=turn)
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give one worker all tests of a file, or of all files that share ranks."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "ranks" if nodeid.startswith(WITH_RANKS) else nodeid.split("::", 1)[0]

    return ByFile(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the study and the kills go before the other tests where cores are few."""
    if not item.nodeid.startswith(STUDY_AND_KILLS) and os.nice(0) == 0:
        os.nice(5)


@pytest.fixture(scope="session")
def tiny_packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed folder of the smallest study."""
    from tiny_data import CLASSES, pack_colours

    return pack_colours(tmp_path_factory.mktemp("tiny"), CLASSES, 16)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's own folder, as the one that a user is in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Commands:
    """`command(*words)` calls `parashot` in this process and returns what it prints."""
    from command_line import Commands

    return Commands(capsys)


@pytest.fixture(scope="session")
def ranks() -> Iterator[StandingRanks]:
    """`ranks(count, function, *args)` calls `function(context, *args)` in `count` processes on the CPU."""
    standing = StandingRanks()
    yield standing
    standing.close()


@pytest.fixture
def standing_launch(ranks: StandingRanks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings and measurements of several processes run in the standing ranks."""
    from parashot.parallel.launch import launch

    def call(function: Any, placement: Any, processes: int, *args: Any) -> Any:
        if processes == 1:
            return launch(function, placement, 1, *args)
        return ranks(processes, function, *args)

    for module in ("train.run", "questions.batchsz.measure"):
        monkeypatch.setattr(f"parashot.{module}.launch", call)
    for module in ("strategies.measure", "ways.measure", "own.measure", "own.checks"):
        monkeypatch.setattr(f"parashot.questions.{module}.launch_apart", call)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium without a window."""
    from browser import CHROMIUM
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def one_core() -> Iterator[None]:
    """A machine of one core: tensors here are so small that several threads would only wait for each other.

    The threads that a training in this process takes for itself are given back.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("parashot.parallel.context.usable_cores", lambda: 1)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's tables, made once: making them takes seconds."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from parashot.tracking import Store, store

    root = tmp_path_factory.mktemp("template")
    with store.opened(Store(root, "template")):
        return root / "mlflow.db"


@pytest.fixture
def checkout(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checkout]:
    """A checkout with an empty store. No test may see one that an earlier one told other libraries of."""
    from tracked import Checkout

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    yield Checkout(tmp_path / "a checkout", empty_database)
    assert "MLFLOW_TRACKING_URI" not in os.environ
