"""A wheel, installed where nothing is but torch and the few libraries that measuring needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
from own_file import write_own
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "src")
WATCHED = "import parashot\nfor _ in parashot.watch(range(3)): pass"

pytestmark = pytest.mark.slow


def run(*command: str | Path, folder: Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command that sees nothing of this checkout."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=outside, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def needed(names: list[str]) -> set[str]:
    """Installed distributions that `names` are, or that they need, without extras."""
    found: set[str] = set()
    while names:
        name = names.pop().lower()
        if name not in found:
            found.add(name)
            wanted = map(Requirement, metadata.requires(name) or ())
            names += [each.name for each in wanted if not each.marker or each.marker.evaluate({"extra": ""})]
    return found


def link_files_of(name: str, site: Path) -> None:
    """Link what the distribution `name` of this environment has at the top of its folder into `site`."""
    distribution = metadata.distribution(name)
    for top in {Path(each).parts[0] for each in distribution.files or ()} - {"..", "__pycache__"}:
        target = site / top
        if not target.exists():
            target.symlink_to(Path(str(distribution.locate_file(top))))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the commands of a fresh environment with the wheel and what it needs, no extra."""
    root = tmp_path_factory.mktemp("install")
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, root / part)
    pip = (sys.executable, "-m", "pip")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", root, root, folder=root)
    venv.create(root / "venv", symlinks=True)
    (site,) = (root / "venv/lib").glob("python*/site-packages")
    (wheel,) = root.glob("*.whl")
    run(*pip, "--python", root / "venv/bin/python", "install", "--no-deps", wheel, folder=root)
    (own,) = metadata.distributions(path=[str(site)])
    wanted = [Requirement(each) for each in own.requires or ()]
    for name in needed([each.name for each in wanted if not each.marker]):
        link_files_of(name, site)
    return root / "venv/bin"


def test_a_file_is_measured_without_any_extra(installed: Path, tmp_path: Path) -> None:
    file = write_own(tmp_path, "own_installed")
    done = run(installed / "parashot", "measure", file, "--budget", "1", "--json", folder=tmp_path)
    assert json.loads(done.stdout)["tried"] > 1
    assert (tmp_path / "parashot-report/index.html").exists()


def test_a_loop_is_watched_without_any_extra(installed: Path, tmp_path: Path) -> None:
    assert "waiting for data (2 steps)" in run(installed / "python", "-c", WATCHED, folder=tmp_path).stdout


@pytest.mark.parametrize("command", ["classify --shots . --images .", "sweep -S seed=0,1"])
def test_a_command_of_the_study_names_its_extra(command: str, installed: Path, tmp_path: Path) -> None:
    said = run(installed / "parashot", *command.split(), folder=tmp_path, status=1).stderr
    assert said.count("\n") == 1 and 'pip install "parashot[study]"' in said
