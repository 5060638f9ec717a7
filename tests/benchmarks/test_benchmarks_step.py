"""The study's way and ours do the same; sides run, are clocked fairly, and fail in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks import ddp_efficiency, step, step_roofline, step_sides
from benchmarks.outcome import Outcome, show
from benchmarks.peers.study_step import StudyStep, Switches, one_pass, two_passes
from benchmarks.step_sides import OURS, STUDY, ClockedSteps, make_step, our_strategy
from benchmarks.turns import Side
from benchmarks.workload import Workload
from parashot.errors import DeviceError
from parashot.model.network import build_network
from parashot.questions.statistics import Interval

CPU = torch.device("cpu")
TINY = Workload("conv4", 16, 1, 2)
pytestmark = pytest.mark.usefixtures("one_core")


def evaluating(network: nn.Module) -> nn.Module:
    """Batch norm in eval mode: an image's maps do not depend on who shares its pass."""
    return network.eval()


def gradients(network: nn.Module) -> dict[str, Tensor]:
    found = {}
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        found[name] = parameter.grad.contiguous().clone()
    return found


def study(workload: Workload, switches: Switches) -> tuple[float, dict[str, Tensor]]:
    way = StudyStep(workload.params(), workload.batch(), CPU, switches)
    evaluating(way.network)
    return float(way()), gradients(way.network)


# --- the same work --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", [TINY, replace(TINY, k_query=3), Workload("bottleneck", 32, 1, 1)])
def test_the_studys_way_and_ours_have_one_loss_and_gradient(workload: Workload) -> None:
    loss, wanted = study(workload, STUDY["study"])
    strategy = our_strategy(workload, **OURS["fp32"])
    evaluating(strategy.network)
    ours = strategy.step(workload.batch())
    assert float(ours[0]) / workload.batchsz == pytest.approx(loss, abs=1e-5)
    for name, gradient in gradients(strategy.network).items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("name", list(STUDY)[1:])
def test_no_switch_changes_loss_or_gradient(name: str) -> None:
    loss, wanted = study(TINY, STUDY["study"])
    switched, found = study(TINY, STUDY[name])
    assert switched == pytest.approx(loss, abs=1e-5)
    for parameter, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[parameter], rtol=1e-3, atol=1e-5, msg=parameter)


def test_each_way_turns_one_switch_more() -> None:
    ways = [vars(switches) for switches in STUDY.values()]
    for before, after in pairwise(ways):
        assert sum(before[key] != after[key] for key in before) == 1


def test_the_study_embeds_support_and_query_with_statistics_of_their_own() -> None:
    network = build_network(replace(TINY.params().model, pairing="concat"), seed=0)
    support, query = (torch.randn(each.shape) for each in TINY.batch()[:2])
    with torch.no_grad():
        apart, together = (embed(network, support, query) for embed in (two_passes, one_pass))
        assert not torch.allclose(apart, together, atol=1e-4)
        evaluating(network)
        apart, together = (embed(network, support, query) for embed in (two_passes, one_pass))
        torch.testing.assert_close(apart, together, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [*STUDY, *(name for name in OURS if name != "bf16, compile")])
def test_every_side_learns(name: str) -> None:
    take_step = make_step(name, TINY)
    losses = []
    for _ in range(8):
        result = take_step()
        assert isinstance(result, Tensor)
        losses.append(float(result.flatten()[0]))
    assert min(losses[4:]) < losses[0]


def test_images_lie_in_memory_as_the_way_wants_them() -> None:
    layouts = {"study": torch.contiguous_format, "channels last": torch.channels_last}
    for name, layout in layouts.items():
        way = StudyStep(TINY.params(), TINY.batch(), CPU, STUDY[name])
        assert all(each.flatten(0, -4).is_contiguous(memory_format=layout) for each in way.images)
        assert way.network.embedding[1][0].weight.is_contiguous(memory_format=layout)


# --- workloads ------------------------------------------------------------------------------------------


def test_a_batch_is_shared_out_over_the_ranks() -> None:
    workload = Workload("conv4", 16, 3, 5)
    shares = [workload.batch(rank=rank, ranks=2) for rank in range(2)]
    assert [tuple(share.support.shape) for share in shares] == [(3, 5, 1, 3, 16, 16), (2, 5, 1, 3, 16, 16)]
    assert [tuple(share.query.shape) for share in shares] == [(3, 15, 3, 16, 16), (2, 15, 3, 16, 16)]
    assert {share.total for share in shares} == {5}
    assert workload.images == 5 * 5 * (1 + 3)


def test_params_are_of_the_workload_however_params_yaml_is_turned() -> None:
    params = Workload("bottleneck", 84, 15, 4).params(recompute=True)
    model = params.model
    assert (model.embedding, model.image_size, model.pairing) == ("bottleneck", 84, "split")
    assert (params.episode.n_way, params.episode.k_shot, params.episode.k_query) == (5, 1, 15)
    assert (params.train.batchsz, params.train.loss, params.train.recompute) == (4, "mse", True)


# --- the clock ------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock that only steps move: item 0 is its time."""
    now = [0.0]
    monkeypatch.setattr(step_sides.time, "perf_counter", lambda: now[0])
    yield now


@pytest.mark.parametrize(("seconds", "steps"), [(0.2, 3), (0.5, 1), (4.0, 1)])
def test_a_block_clocks_enough_steps_and_leaves_the_first_out(
    clock: list[float], seconds: float, steps: int
) -> None:
    taken: list[float] = []

    def take_step() -> None:
        taken.append(seconds if taken and len(taken) != 2 + steps else 100.0)  # each block's first is slow
        clock[0] += taken[-1]

    block = ClockedSteps(take_step)
    assert block() == pytest.approx(seconds)
    assert len(taken) == 1 + 1 + steps  # to warm up, to see how long one takes, and clocked
    assert block() == pytest.approx(seconds)
    assert len(taken) == (1 + 1 + steps) + (1 + steps)


# --- comparisons ----------------------------------------------------------------------------------------


def test_sides_are_compared_in_processes_of_their_own() -> None:
    compared = step.compare("conv4", 16, 1, 1, ("study", "fp32"), blocks=1, memory=True)
    assert {name: len(series) for name, series in compared.seconds.items()} == {"study": 1, "fp32": 1}
    assert all(value > 0 for series in compared.seconds.values() for value in series)
    assert all(peak > 0 for peak in compared.peaks.values())
    assert compared.failures == {}


def test_a_side_that_fails_says_so_in_one_line() -> None:
    unknown: Any = "lenet"
    with pytest.raises(DeviceError) as caught:
        step.compare(unknown, 16, 1, 1, ("study",), blocks=2)
    assert str(caught.value) == "benchmark side 'study': KeyError: 'lenet'"


class FailingTurns:
    """Stands in for `Turns`: a side that compiles cannot be made, others take a second."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self.sides = sides

    def __enter__(self) -> FailingTurns:
        if any(side.name == "bf16, compile" for side in self.sides):
            raise DeviceError(
                "benchmark side 'bf16, compile': InvalidCxxCompiler: none of g++ found" + "!" * 300
            )
        return self

    def __exit__(self, *_: object) -> None: ...

    def seconds(self, blocks: int, warmups: int = 1) -> dict[str, list[float]]:
        return {side.name: [1.0] * blocks for side in self.sides}

    def peak_memory(self) -> dict[str, int]:
        return {side.name: 2**20 for side in self.sides}


def test_a_side_that_this_machine_cannot_run_is_told_and_left_out(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(step, "Turns", FailingTurns)
    step._obstacle.cache_clear()  # what is found here holds for no other test
    request.addfinalizer(step._obstacle.cache_clear)
    compared = step.compare("conv4", 16, 1, 1, ("study", "fp32", "bf16, compile"), blocks=2, memory=True)
    assert list(compared.seconds) == ["study", "fp32"]
    reason = compared.failures["bf16, compile"]
    assert "InvalidCxxCompiler: none of g++ found" in reason
    assert "\n" not in reason
    with pytest.raises(DeviceError, match=r"'bf16, compile' cannot run here: .*g\+\+") as caught:
        compared.times_faster("bf16, compile")
    assert "\n" not in str(caught.value)
    shown = show(Outcome("step", [step._table(compared)]))
    row = next(line for line in shown.splitlines() if line.startswith("| bf16, compile"))
    assert "g++" in row


def test_a_row_holds_rates_and_ratios_to_the_study() -> None:
    workload = Workload("conv4", 84, 1, 4)
    seconds = {"study": [2.0, 2.0, 2.0], "bf16": [0.5, 0.5, 0.5]}
    compared = step.Comparison(workload, seconds, {"study": 400 * 2**20, "bf16": 100 * 2**20}, {})
    title = step._table(compared).title
    assert title == "Training step: conv4, 84 px, 1 query per class, batchsz 4"
    row = step._table(compared).rows[1]
    assert row == ["bf16", Interval(0.5, 0.5, 0.5), 8.0, 80.0, Interval(4.0, 4.0, 4.0), 100.0, 0.25]


# --- roofline of a timed step ---------------------------------------------------------------------------


def test_shares_of_a_timed_step(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[torch.dtype, str]] = []

    def peak(dtype: torch.dtype, threads: int, device: str) -> float:
        asked.append((dtype, device))
        return 1e9

    monkeypatch.setattr(step_roofline, "matrix_peak_flops", peak)
    monkeypatch.setattr(step_roofline, "copy_bandwidth", lambda threads, device: 1e9)
    seconds = {"study": [9.0] * 3, "fp32": [2.0] * 3}
    shares, operators = step_roofline.tables({TINY: seconds})
    assert asked == [(torch.float32, "cpu")]
    (row,) = (dict(zip(shares.columns, cells, strict=True)) for cells in shares.rows)
    assert row["precision"] == "fp32"
    bound, share, of_peak = (
        row[name] for name in shares.columns if name == "roofline (ms)" or "share" in name
    )
    assert isinstance(bound, float)
    assert isinstance(share, Interval)
    assert isinstance(of_peak, Interval)
    assert share.value == pytest.approx(bound / 2000)
    assert of_peak.value == pytest.approx(row["GFLOP"] / 2)  # type: ignore[operator]
    parts = [cells[operators.columns.index("bound (ms)")] for cells in operators.rows]
    assert operators.rows[-1][0] == "all"
    assert sum(parts[:-1]) == pytest.approx(parts[-1])  # type: ignore[arg-type]
    assert parts[-1] == pytest.approx(bound)


# --- DDP ------------------------------------------------------------------------------------------------


def test_efficiency_is_serial_over_twice_ddp() -> None:
    measured = ddp_efficiency.Measured(TINY, serial=[3.0] * 3, ddp=[2.0] * 3, apart=[1.5] * 3)
    assert measured.efficiency == Interval(0.75, 0.75, 0.75)
    assert measured.ceiling == Interval(1.0, 1.0, 1.0)
    assert ddp_efficiency.table([measured]).rows[0][-2:] == (measured.efficiency, measured.ceiling)


def test_ddp_and_serial_are_timed_in_turn() -> None:
    measured = ddp_efficiency.measure(TINY, steps=1, blocks=2)
    assert len(measured.serial) == len(measured.ddp) == len(measured.apart) == 2
    assert min(*measured.serial, *measured.ddp, *measured.apart) > 0


def test_quick_efficiency_is_of_a_small_step(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[Workload, int]] = []

    def measure(workload: Workload, steps: int, blocks: int = 7) -> ddp_efficiency.Measured:
        called.append((workload, blocks))
        return ddp_efficiency.Measured(workload, [1.8] * blocks, [1.0] * blocks, [1.0] * blocks)

    monkeypatch.setattr(ddp_efficiency, "measure", measure)
    assert ddp_efficiency.measure_reference(quick=True).efficiency.value == pytest.approx(0.9)
    assert ddp_efficiency.measure_reference(quick=False).efficiency.value == pytest.approx(0.9)
    (small, few), (reference, blocks) = called
    assert small.image_size < reference.image_size
    assert few < 7 <= blocks
