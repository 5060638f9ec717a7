"""Copies beside compute: what is made of the times, and the measurement itself where there is a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from parashot.questions.step.copy_overlap import OverlapTimes, _seconds, measure_overlap
from tiny_data import tiny_params

from parashot.parallel.context import Context, Placement
from parashot.questions.statistics import Resampling

ROUNDS = 9


def test_what_is_hidden_is_a_ratio_above_one() -> None:
    hidden = OverlapTimes([1.0] * ROUNDS, [3.0] * ROUNDS, [3.2] * ROUNDS).metrics(Resampling(resamples=200))
    assert hidden["copy_overlap_ratio"] == pytest.approx(4 / 3.2)
    apart = OverlapTimes([1.0] * ROUNDS, [3.0] * ROUNDS, [4.0] * ROUNDS).metrics(Resampling(resamples=200))
    assert apart["copy_overlap_ratio_low"] == apart["copy_overlap_ratio_high"] == 1


def test_a_block_begins_and_ends_with_an_idle_device() -> None:
    calls: list[str] = []
    assert _seconds(lambda: calls.append("copy"), lambda: calls.append("idle")) > 0
    assert calls == ["idle", *["copy"] * 3, "idle"]


def test_on_a_cpu_nothing_is_copied(tiny_packed: Path) -> None:
    context = Context(0, 1, 0, 1, Placement("cpu", 1, 1, 1))
    assert measure_overlap(context, tiny_params(), tiny_packed) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")
def test_on_a_gpu_all_three_are_timed(tiny_packed: Path) -> None:
    context = Context(0, 1, 0, 1, Placement("cuda", 1, 1, 1))
    params = tiny_params()
    params = replace(params, parallel=replace(params.parallel, device="cuda"))
    found = measure_overlap(context, params, tiny_packed)
    assert found is not None
    assert all(each > 0 for series in (found.copying, found.computing, found.both) for each in series)
