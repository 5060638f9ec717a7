"""Progress: one line that rewrites itself on a terminal, and silence where nobody looks."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from parashot.progress import OneLine, Progress, log, passing, span


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    caplog.set_level(logging.INFO, log.name)


def sent(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a stderr of 80 columns is sent by some work."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(log, "handlers", [handler := OneLine()])
    progress = Progress("bench", 3, "round")
    progress(1)
    progress(2)
    log.info("something to keep")
    progress(3)
    passing("100%% of a long word: %s", "x" * 300)
    handler.end()
    stream.write("an answer\n")
    return stream.getvalue()


def test_a_terminal_sees_one_line_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    text = sent(Terminal(), monkeypatch)
    lines = text.removesuffix("\n").split("\n")
    kept, end, word, answer = (each.split("\r\x1b[K")[-1] for each in lines)
    assert answer == "an answer"
    assert kept == "something to keep" and end.startswith("bench: 3 rounds in ")
    assert word.startswith("100% of a long word: xxx") and len(word) == 79
    assert "bench: round 1 of 3, " in text and text.endswith("\n")


def test_elsewhere_only_what_it_ends_with(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, end, _ = sent(io.StringIO(), monkeypatch).splitlines()
    assert kept == "something to keep" and end.startswith("bench: 3 rounds in ")


def test_spans() -> None:
    assert [span(each) for each in (0.4, 99, 100, 5000, 9000)] == ["0 s", "99 s", "2 min", "83 min", "2.5 h"]
