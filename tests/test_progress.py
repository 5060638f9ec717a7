"""Progress: one line that rewrites itself on a real terminal, and silence where nobody looks."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from parashot.progress import span

PROGRAM = """
import logging
from parashot.progress import OneLine, Progress, passing
logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[OneLine()])
progress = Progress("bench", 3, "round")
progress(1)
progress(2)
logging.info("something to keep")
progress(3)
passing("100%% of a long word: %s", "x" * 300)
"""


def on_a_terminal(program: str) -> str:
    """What a terminal of 80 columns is sent."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        sent = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:  # the other side has closed
                break
            if not chunk:
                break
            sent += chunk
    os.close(ours)
    assert process.returncode == 0
    return sent.decode()


def test_a_terminal_sees_one_line_at_a_time() -> None:
    sent = on_a_terminal(PROGRAM)
    lines = [each.split("\r\x1b[K")[-1] for each in sent.removesuffix("\r\n").split("\r\n")]
    assert lines[0] == "something to keep"
    assert lines[1].startswith("bench: 3 rounds in ")
    assert lines[2].startswith("100% of a long word: xxx") and len(lines[2]) == 79
    assert len(lines) == 3 and sent.endswith("\n")
    assert "bench: round 1 of 3, " in sent


def test_elsewhere_only_what_it_ends_with() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    kept, end = done.stderr.splitlines()
    assert (done.stdout, kept) == ("", "something to keep") and end.startswith("bench: 3 rounds in ")


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (5000, "83 min"), (9000, "2.5 h")]
)
def test_spans(seconds: float, words: str) -> None:
    assert span(seconds) == words
