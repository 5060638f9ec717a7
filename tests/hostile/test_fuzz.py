"""Whatever the bytes, parsers answer with the project's own errors, each in one line, or accept them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from targets import ROOT, TARGETS

EXAMPLES = 80

quickly = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

changes = st.lists(
    st.tuples(
        st.sampled_from(["flip", "cut", "insert", "repeat"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 255),
        st.integers(1, 24),
    ),
    min_size=1,
    max_size=6,
)
"""What happens to a whole file: how, at which share of its length, with which byte, to how many bytes."""


def _changed(data: bytes, change: tuple[str, float, int, int]) -> bytes:
    how, share, byte, count = change
    at = int(share * len(data))
    if how == "flip":
        return data[:at] + bytes(each ^ byte for each in data[at : at + count]) + data[at + count :]
    part = data[at : at + count]
    middle = {"cut": b"", "insert": part + bytes([byte]) * count, "repeat": part * 9}
    return data[:at] + middle[how] + data[at + count :]


def _answers(name: str, data: bytes) -> bool:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TARGETS[name].answers(data, Path(folder))


@pytest.mark.parametrize("name", TARGETS)
def test_whole_files_are_accepted(name: str) -> None:
    """Else the fuzzing would never get far."""
    assert all(_answers(name, data) for data in TARGETS[name].whole())


@pytest.mark.parametrize("name", TARGETS)
@quickly
@given(data=st.binary(max_size=2_000))
def test_any_bytes(name: str, data: bytes) -> None:
    _answers(name, data)


@pytest.mark.parametrize("name", TARGETS)
@quickly
@given(which=st.integers(0), steps=changes)
def test_whole_files_with_changes(name: str, which: int, steps: list[Any]) -> None:
    files = TARGETS[name].whole()
    data = files[which % len(files)]
    for change in steps:
        data = _changed(data, change)
    _answers(name, data)


@quickly
@given(text=st.text())
def test_any_text_as_params_and_csv(text: str) -> None:
    for name in ("params", "csv"):
        _answers(name, text.encode("utf-8", "surrogatepass"))


OPCODES = [
    bytes([each]) for each in b"().]}0122NKU\x85\x86\x87\x88\x89abegijlopqrstu\x94\x93\x90\x91\x80RcQ\x81"
]


@quickly
@given(
    program=st.lists(st.sampled_from([*OPCODES, b"h\x00", b"q\x00", b"K\x01", b"U\x01a", b"cnumpy\ndtype\n"]))
)
def test_any_program_of_opcodes(program: list[bytes]) -> None:
    _answers("pickles", b"\x80\x04" + b"".join(program) + b".")


def test_the_longer_run_says_what_it_needs() -> None:
    if importlib.util.find_spec("atheris"):
        pytest.skip("atheris is installed")
    command = [sys.executable, "-m", "tests.hostile.fuzz", "csv", "--seconds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: atheris is not installed; get it with `pip install atheris`\n"
