"""What is wrong with a file, in one line, and the commands that mend it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from parashot.plain import printable

Kind = Literal["damaged", "missing", "changed"]


@dataclass(frozen=True)
class Fault:
    """A file that is not what it should be. One that was `changed` was written by someone: no damage."""

    kind: Kind
    path: str
    what: str
    fix: str


class Names:
    """Paths as they are said and typed by who works in `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def said(self, path: Path) -> str:
        """A path in a line."""
        inside = path.is_relative_to(self._root)
        return printable((path.relative_to(self._root) if inside else path).as_posix())

    def typed(self, *paths: Path) -> str:
        """Paths in a command."""
        return " ".join(shlex.quote(self.said(each)) for each in paths)


def checkout(file: str) -> str:
    """Take a file from the cache. It must be gone: where no time stamp has changed, DVC would leave it."""
    return f"rm -f {file} && dvc checkout {file}"


def make_again(stage: str, *, without: Iterable[str]) -> str:
    """Run a stage. What is damaged must be gone: DVC believes its cache, and would link the same again."""
    gone = " ".join(without)
    return f"{f'rm -rf {gone} && ' if gone else ''}dvc repro --force --single-item {shlex.quote(stage)}"


def cache_again(stage: str, *, without: str) -> str:
    """Put outputs of a stage that are whole into the cache, in place of a damaged object."""
    return f"rm -f {without} && dvc commit --force {shlex.quote(stage)}"


def take_back_or_keep(stage: str, output: str) -> str:
    """What there is to do about an output that someone has changed."""
    return f"rm -rf {output} && dvc checkout {output}  # to keep it: dvc commit --force {shlex.quote(stage)}"
