"""`parashot clean`: give disk back, asking first."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from parashot.cli.arguments import Commands, tell
from parashot.errors import UsageError


@dataclass(frozen=True)
class Kind:
    """Something that can be made again, and what it costs to be without it."""

    name: str
    places: Callable[[Path], list[Path]]
    loss: str


KINDS = (
    Kind("checkpoints", lambda root: [root / ".scratch"], "killed trainings and downloads begin anew"),
    Kind("cache", lambda root: [root / ".dvc/cache"], "dvc repro computes everything again"),
    Kind(
        "mlflow",
        lambda root: [*root.glob("mlflow.db*"), *(each for each in (root / "mlruns").glob("*"))],
        "dvc repro publishes what is in results/ again; older runs are gone",
    ),
)


def add_parser(commands: Commands) -> None:
    """Add `parashot clean`."""
    parser = commands.add_parser(
        "clean",
        help="give disk back: checkpoints, DVC's cache, MLflow's runs",
        description="Show what checkpoints, DVC's cache and MLflow's runs take; remove what you agree to. "
        "Results, reports and data in the workspace stay.",
    )
    names = ", ".join(each.name for each in KINDS)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {names}; all of them by default")
    parser.add_argument("--yes", action="store_true", help="remove without asking")
    parser.set_defaults(run=_run)


def _run(command: argparse.Namespace) -> None:
    from parashot.questions.text import size

    kinds = _chosen(command.kinds)
    root = Path.cwd()
    if not (root / "dvc.yaml").exists():
        raise UsageError(f"{root}: no dvc.yaml here; run it in the folder of the project")
    freed = 0
    for kind in kinds:
        if kind.name == "cache" and _links_into_cache(root):
            print("cache: kept, since outputs of this checkout are links into it; see `dvc gc --workspace`")
            continue
        places = [each for each in kind.places(root) if each.name != ".gitkeep" and each.exists()]
        found = sum(map(_bytes, places))
        print(f"{kind.name}: {size(found)} ({kind.loss})")
        if places and (command.yes or _agreed(f"remove {kind.name}?")):
            for place in places:
                _remove(place)
            freed += found
    print(f"{size(freed)} given back")


def _links_into_cache(root: Path) -> bool:
    """Whether outputs would be gone with the cache."""
    outputs = (path for top in ("data", "results", "reports") for path in (root / top).rglob("*"))
    return any(path.is_symlink() for path in outputs)


def _chosen(names: list[str]) -> list[Kind]:
    known = {each.name: each for each in KINDS}
    for name in names:
        if name not in known:
            raise UsageError(f"{name}: not one of {', '.join(known)}")
    return [known[name] for name in names] if names else list(KINDS)


def _agreed(question: str) -> bool:
    """Ask; without a terminal nobody answers, so nothing is removed."""
    if not sys.stdin.isatty():
        tell(f"{question} nobody is there to ask; --yes removes it")
        return False
    try:
        return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}
    except EOFError:
        return False


def _bytes(place: Path) -> int:
    """Bytes that are free without it: a file that has other names, by hard links, stays there."""
    files = [place] if place.is_file() else [each for each in place.rglob("*") if each.is_file()]
    return sum(each.lstat().st_size for each in files if each.lstat().st_nlink == 1)


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        _make_writable(place)  # DVC protects its cache
        shutil.rmtree(place)
    else:
        place.unlink()


def _make_writable(folder: Path) -> None:
    for each in [folder, *(path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink())]:
        each.chmod(0o755)
