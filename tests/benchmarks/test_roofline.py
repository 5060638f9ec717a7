"""FLOPs, bytes and bounds of operators, against formulas written by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.roofline import Limits, Op, OpSum, by_operator, record, total
from parashot.model.embeddings import conv4
from parashot.model.pairing import SplitPairs
from parashot.model.relation import ConvHead

FLOAT = 4
LIMITS = Limits({torch.float32: 1000.0, torch.bfloat16: 4000.0}, bytes_per_second=100.0)


def only(ops: list[Op]) -> Op:
    (op,) = ops
    return op


def flop(ops: list[Op]) -> int:
    return sum(op.flop for op in ops)


# --- arithmetic -----------------------------------------------------------------------------------------


def test_flop_and_bytes_of_a_convolution() -> None:
    images, weight = torch.randn(2, 3, 8, 10), torch.randn(5, 3, 3, 3)
    op = only(record(lambda: F.conv2d(images, weight, stride=2, padding=1)))
    assert op.name == "convolution"
    assert op.flop == 2 * (2 * 5 * 4 * 5) * (3 * 3 * 3)
    assert op.moved_bytes == FLOAT * (2 * 3 * 8 * 10 + 5 * 3 * 3 * 3 + 2 * 5 * 4 * 5)


@pytest.mark.parametrize(("images_need_gradient", "times"), [(False, 1), (True, 2)])
def test_backward_of_a_convolution_costs_it_once_per_gradient(images_need_gradient: bool, times: int) -> None:
    images = torch.randn(2, 3, 8, 8, requires_grad=images_need_gradient)
    conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
    ops = record(lambda: conv(images).backward(torch.ones(2, 4, 8, 8)))
    work = {op.name: op for op in ops}
    assert work["convolution"].flop == 2 * (2 * 4 * 8 * 8) * (3 * 3 * 3)
    assert work["convolution_backward"].flop == times * work["convolution"].flop
    inputs, weight, maps = 2 * 3 * 8 * 8, 4 * 3 * 3 * 3, 2 * 4 * 8 * 8
    gradients = weight + (inputs if images_need_gradient else 0)
    assert work["convolution_backward"].moved_bytes == FLOAT * (inputs + weight + maps + gradients)


def test_flop_and_bytes_of_a_matrix_product() -> None:
    left, right = torch.randn(3, 5), torch.randn(5, 7)
    op = only(record(lambda: left @ right))
    assert (op.flop, op.moved_bytes) == (2 * 3 * 5 * 7, FLOAT * (3 * 5 + 5 * 7 + 3 * 7))


def test_flop_of_conv4_and_its_head() -> None:
    side, supports, queries = 32, 5, 10
    images = torch.randn(supports + queries, 3, side, side)

    def forward() -> None:
        maps = conv4()(images)
        support, query = maps[:supports].unsqueeze(0), maps[supports:].unsqueeze(0)
        ConvHead(64)(SplitPairs(support, query))

    def convolution(number: int, pixels: int, inputs: int) -> int:
        return 2 * number * pixels * 64 * inputs * 9

    pixels, pairs = side * side, supports * queries
    embedding = (
        convolution(len(images), pixels, 3)
        + convolution(len(images), pixels // 4, 64)
        + 2 * convolution(len(images), pixels // 16, 64)
    )
    head = (
        convolution(supports + queries, pixels // 16, 64)  # once per map, not once per pair
        + convolution(pairs, pixels // 64, 64)
        + 2 * pairs * (576 * 8 + 8 * 1)
    )
    assert flop(record(forward)) == embedding + head


def test_an_operator_under_autocast_counts_in_the_dtype_it_runs_in() -> None:
    left, right = torch.randn(3, 5), torch.randn(5, 7)

    def product() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            left @ right

    *casts, op = record(product)
    assert [cast.name for cast in casts] == ["_to_copy", "_to_copy"]
    assert (op.dtype, op.moved_bytes) == (torch.bfloat16, 2 * (3 * 5 + 5 * 7 + 3 * 7))


# --- bytes ----------------------------------------------------------------------------------------------


def test_views_and_allocations_move_nothing() -> None:
    maps = torch.randn(2, 3, 4)

    def nothing() -> None:
        maps.view(6, 4).t().unsqueeze(0).expand(5, -1, -1)[..., 0].detach()
        torch.empty_like(maps)

    assert record(nothing) == []


def test_an_operator_in_place_reads_and_writes() -> None:
    maps = torch.randn(6)
    assert only(record(maps.relu_)).moved_bytes == FLOAT * (6 + 6)


def test_a_tensor_that_is_overwritten_is_not_read() -> None:
    source, target = torch.randn(6), torch.randn(6)
    assert only(record(lambda: target.copy_(source))).moved_bytes == FLOAT * (6 + 6)
    assert only(record(target.zero_)).moved_bytes == FLOAT * 6


def test_an_input_is_read_once() -> None:
    maps = torch.randn(6)
    assert only(record(lambda: maps * maps)).moved_bytes == FLOAT * (6 + 6)


def test_an_expanded_input_is_as_large_as_its_memory() -> None:
    row, maps = torch.randn(1, 6), torch.randn(4, 6)
    expanded = row.expand(4, 6)
    assert only(record(lambda: expanded + maps)).moved_bytes == FLOAT * (6 + 4 * 6 + 4 * 6)


def test_a_norm_reads_its_maps_and_writes_them_with_their_statistics() -> None:
    norm, maps = nn.BatchNorm2d(3), torch.randn(2, 3, 4, 4)
    steps, op = record(lambda: norm(maps))
    assert steps.name == "add_"  # it counts its batches
    running, affine, saved = 2 * 3, 2 * 3, 2 * 3  # torch does not declare that it writes the running ones
    assert op.moved_bytes == FLOAT * (maps.numel() + running + affine + maps.numel() + saved)


def test_an_optimizer_over_a_list_of_tensors_is_seen() -> None:
    weights = [nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(7))]
    optimizer = torch.optim.Adam(weights, fused=True)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()  # makes its state
    op = next(op for op in record(optimizer.step) if op.name == "_fused_adam_")
    read, written = 4 * 12 + 2, 4 * 12 + 2  # weight, gradient, two moments; a count of steps each
    assert FLOAT * (read + 3 * 12) <= op.moved_bytes <= FLOAT * (read + written)


# --- bounds ---------------------------------------------------------------------------------------------


def test_roofline_of_two_layers_is_the_sum_of_their_bounds() -> None:
    net = nn.Sequential(nn.Linear(64, 32, bias=False), nn.ReLU())
    images = torch.randn(16, 64)
    ops = record(lambda: net(images))
    product_flop = 2 * 16 * 64 * 32
    product_bytes = FLOAT * (16 * 64 + 64 * 32 + 16 * 32)
    relu_bytes = FLOAT * 2 * 16 * 32
    step = total("step", ops, Limits({torch.float32: 1e3}, bytes_per_second=1e3))
    assert product_flop > product_bytes
    assert step.flop == product_flop
    assert step.moved_bytes == product_bytes + relu_bytes
    assert step.matrix_seconds == pytest.approx(product_flop / 1e3)
    assert step.bound_seconds == pytest.approx(product_flop / 1e3 + relu_bytes / 1e3)


@pytest.mark.parametrize(
    ("dtype", "flop", "moved", "seconds"),
    [
        (torch.float32, 2000, 100, 2.0),
        (torch.float32, 2000, 300, 3.0),
        (torch.bfloat16, 2000, 10, 0.5),
        (torch.int64, 0, 100, 1.0),
    ],
)
def test_bound_is_whichever_takes_longer(dtype: torch.dtype, flop: int, moved: int, seconds: float) -> None:
    assert Op("some", dtype, flop, moved).alone(LIMITS).bound_seconds == seconds


def test_a_peak_that_was_not_measured_is_asked_for() -> None:
    with pytest.raises(KeyError):
        total("step", [Op("mm", torch.float64, 2, 8)], LIMITS)


def test_operators_are_listed_by_their_share() -> None:
    quick, slow = Op("relu", torch.float32, 0, 100), Op("mm", torch.float32, 5000, 100)
    ops = [quick, slow, quick, Op("mm", torch.bfloat16, 4000, 100)]
    sums = by_operator(ops, LIMITS)
    calls = {each.name: each.calls for each in sums}
    assert list(calls.items()) == [("mm, float32", 1), ("relu, float32", 2), ("mm, bfloat16", 1)]
    assert OpSum.of("step", sums) == total("step", ops, LIMITS)
