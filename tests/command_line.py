"""Commands of parashot in this process, and what they print."""

from __future__ import annotations

import pytest

from parashot.cli import main


class Commands:
    """`parashot`, as a user calls it in this folder; `said`: what the last command wrote to stderr."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self.said = capsys, ""

    def __call__(self, *words: object, status: int = 0) -> str:
        """Return what a command prints that succeeds, or ends with `status`."""
        found, out = self._run(words)
        assert found == status, self.said
        return out

    def refused(self, *words: object, status: int = 1) -> str:
        """Return the one line that a command prints which fails."""
        assert self._run(words) == (status, "")
        assert self.said.startswith("error: ") and self.said.count("\n") == 1
        return self.said.removeprefix("error: ")

    def _run(self, words: tuple[object, ...]) -> tuple[int, str]:
        status = main([str(each) for each in words])
        printed = self._capsys.readouterr()
        self.said = printed.err
        return status, printed.out
