"""FLOPs, bytes and bounds of operators, against formulas written by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import roofline
from benchmarks.roofline import Limits, Op, OpSum, by_operator, record
from benchmarks.workload import Workload
from parashot.questions.statistics import Interval

FLOAT = 4
LIMITS = Limits({torch.float32: 1000.0, torch.bfloat16: 4000.0}, bytes_per_second=100.0)


def only(ops: list[Op]) -> Op:
    (op,) = ops
    return op


def test_flop_and_bytes_of_a_convolution() -> None:
    images, weight = torch.randn(2, 3, 8, 10), torch.randn(5, 3, 3, 3)
    op = only(record(lambda: F.conv2d(images, weight, stride=2, padding=1)))
    assert op.flop == 2 * (2 * 5 * 4 * 5) * (3 * 3 * 3)
    assert op.moved_bytes == FLOAT * (2 * 3 * 8 * 10 + 5 * 3 * 3 * 3 + 2 * 5 * 4 * 5)


@pytest.mark.parametrize(("images_need_gradient", "times"), [(False, 1), (True, 2)])
def test_backward_of_a_convolution_costs_it_once_per_gradient(images_need_gradient: bool, times: int) -> None:
    images = torch.randn(2, 3, 8, 8, requires_grad=images_need_gradient)
    conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
    ops = record(lambda: conv(images).backward(torch.ones(2, 4, 8, 8)))
    work = {op.name: op for op in ops}
    assert work["convolution_backward"].flop == times * work["convolution"].flop
    inputs, weight, maps = 2 * 3 * 8 * 8, 4 * 3 * 3 * 3, 2 * 4 * 8 * 8
    gradients = weight + (inputs if images_need_gradient else 0)
    assert work["convolution_backward"].moved_bytes == FLOAT * (inputs + weight + maps + gradients)


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
    maps, source, row = torch.randn(4, 6), torch.randn(4, 6), torch.randn(1, 6)
    expanded = row.expand(4, 6)
    assert record(lambda: (maps.view(6, 4).t().expand(5, -1, -1)[..., 0], torch.empty_like(maps))) == []
    assert only(record(maps.relu_)).moved_bytes == FLOAT * (24 + 24)
    assert only(record(lambda: maps.copy_(source))).moved_bytes == FLOAT * (24 + 24)  # not read
    assert only(record(maps.zero_)).moved_bytes == FLOAT * 24
    assert only(record(lambda: maps * maps)).moved_bytes == FLOAT * (24 + 24)  # one input, read once
    assert only(record(lambda: expanded + maps)).moved_bytes == FLOAT * (6 + 24 + 24)


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
    step = OpSum.of("all", ops, LIMITS)
    assert (step.calls, step.flop, step.moved_bytes) == (4, 6000, 510)
    assert step.bound_seconds == 2.0 + 3.0 + 0.5 + 1.0
    assert step.matrix_seconds == 2.0 + 2.0 + 0.5
    assert list(by_operator(ops)) == ["mm, float32", "mm, bfloat16", "add, int64"]
    with pytest.raises(KeyError):
        OpSum.of("all", [Op("mm", torch.float64, 2, 8)], LIMITS)


def test_shares_of_a_timed_step(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(64, 64, requires_grad=True)
    monkeypatch.setattr(roofline, "matrix_peak", lambda kinds, dtype, threads, device: 1e9)
    monkeypatch.setattr(roofline, "copy_bandwidth", lambda threads, device: 1e9)
    workload = Workload("conv4", 16, 1, 2)
    seconds = {"study": [9.0] * 3, "fp32": [2.0] * 3}
    shares, operators = roofline.tables(
        {workload: seconds}, lambda *_: lambda: (weight @ weight).sum().backward()
    )
    row = dict(zip(shares.columns, *shares.rows, strict=True))
    bound, share = row["roofline (ms)"], row["share of the roofline"]
    assert isinstance(bound, float) and isinstance(share, Interval)
    assert row["GFLOP"] == pytest.approx(3 * 2 * 64**3 / 1e9)
    assert share.value == pytest.approx(bound / 2000)
    *parts, whole = (cells[operators.columns.index("bound (ms)")] for cells in operators.rows)
    assert operators.rows[-1][0] == "all"
    assert sum(parts) == pytest.approx(whole) == pytest.approx(bound)  # type: ignore[arg-type]
