"""FLOPs, bytes and bounds of operators, against formulas written by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from benchmarks import limits, roofline
from benchmarks.roofline import Limits, Op, record
from benchmarks.workload import Workload
from parashot.questions.statistics import Interval

FLOAT = 4
LIMITS = Limits({torch.float32: 1000.0, torch.bfloat16: 4000.0}, bytes_per_second=100.0)


def test_convolutions_cost_what_they_compute_and_move() -> None:
    images, conv = torch.randn(2, 3, 8, 8), nn.Conv2d(3, 4, 3, padding=1, bias=False)
    work = {op.name: op for op in record(lambda: conv(images).backward(torch.ones(2, 4, 8, 8)))}
    inputs, weight, maps = 2 * 3 * 8 * 8, 4 * 3 * 3 * 3, 2 * 4 * 8 * 8
    forward, backward = work["convolution"], work["convolution_backward"]
    assert forward.flop == backward.flop == 2 * maps * (3 * 3 * 3)  # images need no gradient
    assert forward.moved_bytes == FLOAT * (inputs + weight + maps)
    assert backward.moved_bytes == FLOAT * (inputs + weight + maps + weight)


def test_an_operator_under_autocast_counts_in_the_dtype_it_runs_in() -> None:
    left, right = torch.randn(3, 5), torch.randn(5, 7)

    def product() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            left @ right

    *casts, op = record(product)
    assert [cast.name for cast in casts] == ["_to_copy", "_to_copy"]
    assert (op.dtype, op.flop) == (torch.bfloat16, 2 * 3 * 5 * 7)
    assert op.moved_bytes == 2 * (3 * 5 + 5 * 7 + 3 * 7)


def test_what_operators_move() -> None:
    maps, row = torch.randn(4, 6), torch.randn(1, 6)
    expanded = row.expand(4, 6)
    assert record(lambda: (maps.view(6, 4).t().expand(5, -1, -1)[..., 0], torch.empty_like(maps))) == []
    assert [op.moved_bytes for op in record(maps.relu_)] == [FLOAT * (24 + 24)]
    assert [op.moved_bytes for op in record(lambda: maps * maps)] == [FLOAT * (24 + 24)]  # read once
    assert [op.moved_bytes for op in record(lambda: expanded + maps)] == [FLOAT * (6 + 24 + 24)]


def test_an_optimizer_over_a_list_of_tensors_is_seen() -> None:
    weights = [nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(7))]
    optimizer = torch.optim.Adam(weights, fused=True)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()  # makes its state
    op = next(op for op in record(optimizer.step) if op.name == "_fused_adam_")
    read, written = 4 * 12 + 2, 4 * 12 + 2  # weight, gradient, two moments; a count of steps each
    assert FLOAT * (read + 3 * 12) <= op.moved_bytes <= FLOAT * (read + written)


def test_the_roofline_is_the_sum_of_the_operators_bounds() -> None:
    ops = [Op("mm", torch.float32, 2000, 100), Op("mm", torch.float32, 2000, 300)]
    ops += [Op("mm", torch.bfloat16, 2000, 10), Op("add", torch.int64, 0, 100)]
    assert LIMITS.bound_seconds(ops) == 2.0 + 3.0 + 0.5 + 1.0
    assert LIMITS.arithmetic_seconds(ops) == 2.0 + 2.0 + 0.5


def test_shares_of_a_timed_step(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(64, 64, requires_grad=True)
    monkeypatch.setattr(roofline, "matrix_peak", lambda dtype, quick: 1e9)
    monkeypatch.setattr(roofline, "copy_bandwidth", lambda quick: 1e9)
    monkeypatch.setattr(roofline, "make_step", lambda *_: lambda: (weight @ weight).sum().backward())
    table = roofline.shares({Workload("conv4", 16, 1, 2): {"fp32": [2.0] * 3}}, quick=True)
    row = dict(zip(table.columns, *table.rows, strict=True))
    bound, share = row["roofline (ms)"], row["share of the roofline"]
    assert isinstance(bound, float) and isinstance(share, Interval)
    assert row["GFLOP"] == pytest.approx(3 * 2 * 64**3 / 1e9)
    assert share.value == pytest.approx(bound / 2000)


def test_limits_are_of_the_flops_of_the_definition() -> None:
    assert limits._flops(limits._matrix_product(16, torch.bfloat16)) == 2 * 16**3
    maps = limits.CHANNELS * limits.PIXELS**2
    convolution = limits._convolution(3, 2, torch.float32)
    assert limits._flops(convolution) == 2 * (2 * maps) * (limits.CHANNELS * 3**2)
    assert 0 < limits.copy_bandwidth(quick=True) < math.inf
