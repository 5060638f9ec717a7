"""Whatever the bytes, parsers answer with the project's own errors, each in one line, or accept them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from targets import TARGETS

quickly = settings(max_examples=60, deadline=None, derandomize=True)

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
"""Changes of a whole file: how, at which share of its length, with which byte, to how many bytes."""


def _changed(data: bytes, change: tuple[str, float, int, int]) -> bytes:
    how, share, byte, count = change
    at = int(share * len(data))
    part = data[at : at + count]
    middle = {
        "flip": bytes(each ^ byte for each in part),
        "cut": b"",
        "insert": part + bytes([byte]) * count,
        "repeat": part * 9,
    }
    return data[:at] + middle[how] + data[at + count :]


@pytest.mark.parametrize("name", TARGETS)
def test_whole_files_are_accepted(name: str) -> None:
    """Else the fuzzing would never get far."""
    assert all(TARGETS[name].accepts(data) for data in TARGETS[name].whole())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGETS)
@quickly
@given(data=st.binary(max_size=2_000))
def test_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name].accepts(data)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TARGETS)
@quickly
@given(which=st.integers(0), steps=changes)
def test_whole_files_with_changes(name: str, which: int, steps: list[Any]) -> None:
    files = TARGETS[name].whole()
    data = files[which % len(files)]
    for change in steps:
        data = _changed(data, change)
    TARGETS[name].accepts(data)
