"""Time to accuracy: a level counts from when validation stays there, and pretraining is counted in."""

from __future__ import annotations

from dataclasses import replace

import pytest
import study_builder as build
from hypothesis import given
from hypothesis import strategies as st

from parashot.questions.accuracy.time_to_accuracy import seconds_to, time_to_accuracy
from parashot.questions.results import Training

POINTS = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1)), max_size=20).map(sorted)


def training(*accuracies: float) -> Training:
    """A training of 100 s, validated as often as there are accuracies."""
    whole = build.training("ddp", seconds=100.0)
    every = 100 // len(accuracies)
    history = tuple(
        replace(row, val_accuracy=accuracies[row.step // every - 1] if row.step % every == 0 else None)
        for row in whole.history
    )
    return replace(whole, history=history, result=replace(whole.result, val_accuracy=accuracies[-1]))


def test_a_level_is_reached_when_validation_stays_there() -> None:
    [row] = time_to_accuracy({"ddp": training(0.51, 0.49, 0.53, 0.56, 0.60)}, None, images_per_episode=10)
    assert (row.seconds_to_50, row.seconds_to_55, row.seconds_to_58_2) == (60, 80, 100)
    assert row.seconds_to_62 is None
    assert (row.pretraining_seconds, row.training_seconds, row.images) == (0.0, 100, 16_000)


def test_pretraining_is_counted_in() -> None:
    before = build.pretraining(seconds=30.0)
    [row] = time_to_accuracy({"ddp": training(0.51, 0.56)}, before, images_per_episode=10)
    assert (row.seconds_to_50, row.seconds_to_55) == (80, 130)
    assert (row.pretraining_seconds, row.images) == (30, 16_000 + 6 * 128)


@pytest.mark.parametrize("part", ["training", "pretraining"])
def test_what_was_taken_up_again_has_no_time(part: str) -> None:
    done, before = training(0.6, 0.6), build.pretraining()
    if part == "training":
        done = replace(done, result=replace(done.result, seconds=None))
    else:
        before = replace(before, result=replace(before.result, seconds=None))
    [row] = time_to_accuracy({"ddp": done}, before, 10)
    assert row.seconds_to_50 is None


def test_a_skipped_training_has_no_row() -> None:
    assert time_to_accuracy({"dp": build.skipped_training("dp", "one GPU")}, None, 10) == []


@given(level=st.floats(0, 1), points=POINTS)
def test_all_that_follows_is_at_or_above_the_level(level: float, points: list[tuple[float, float]]) -> None:
    reached = seconds_to(level, points)
    if reached is None:
        assert not points or points[-1][1] < level
    else:
        assert all(accuracy >= level for seconds, accuracy in points if seconds > reached)
        assert any(seconds == reached and accuracy >= level for seconds, accuracy in points)
