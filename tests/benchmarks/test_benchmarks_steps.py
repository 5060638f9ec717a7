"""The study's way and ours do the same; DDP, predictions and accuracies; a quick run of every command."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks import equivalence, norm, predict, step, workload
from benchmarks.__main__ import main
from benchmarks.peers.study_step import StudyStep, Switches, one_pass, two_passes
from benchmarks.replicas import Replicas
from benchmarks.step import OURS, STUDY
from benchmarks.workload import Workload, serial_strategy
from parashot.errors import DataError
from parashot.model.network import build_network
from parashot.questions.scaling.records import CostMessage, CostStep
from parashot.questions.statistics import Interval
from parashot.questions.strategies.records import (
    StepTrace,
    StrategyBlock,
    StrategyResults,
    StrategyVariant,
)

CPU = torch.device("cpu")
TINY = Workload("conv4", 16, 1, 2)
pytestmark = pytest.mark.usefixtures("one_core")


def gradients(network: nn.Module) -> dict[str, Tensor]:
    return {
        name: each.grad.contiguous().clone()
        for name, each in network.named_parameters()
        if each.grad is not None
    }


def study(work: Workload, switches: Switches) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients of one step, with batch norm in eval mode: an image's maps depend on no other."""
    way = StudyStep(work.params(), work.batch(), CPU, switches)
    way.network.eval()
    return float(way()), gradients(way.network)


@pytest.mark.parametrize("work", [replace(TINY, k_query=3), Workload("bottleneck", 32, 1, 1)])
def test_the_studys_way_and_ours_have_one_loss_and_gradient(work: Workload) -> None:
    loss, wanted = study(work, STUDY["study"])
    strategy = serial_strategy(work, OURS["fp32"])
    strategy.network.eval()
    ours = strategy.step(work.batch())
    assert float(ours[0]) / work.batchsz == pytest.approx(loss, abs=1e-5)
    found = gradients(strategy.network)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", list(STUDY)[1:])
def test_no_switch_changes_loss_or_gradient(name: str) -> None:
    loss, wanted = study(TINY, STUDY["study"])
    switched, found = study(TINY, STUDY[name])
    assert switched == pytest.approx(loss, abs=1e-5)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


def test_each_way_turns_one_switch_more() -> None:
    for before, after in pairwise(vars(switches) for switches in STUDY.values()):
        assert sum(before[key] != after[key] for key in before) == 1


@pytest.mark.parametrize("name", STUDY)
def test_images_are_convolved_as_the_switch_says(name: str) -> None:
    way = StudyStep(TINY.params(), TINY.batch(), CPU, STUDY[name])
    formats = set[bool]()

    def note(_: nn.Module, inputs: tuple[Tensor]) -> None:
        maps = inputs[0]
        if maps.shape[2] > 1:  # one pixel lies in both orders
            formats.add(maps.is_contiguous(memory_format=torch.channels_last))

    for module in way.network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(note)
    way()
    assert formats == {STUDY[name].channels_last}


def test_the_study_embeds_support_and_query_with_statistics_of_their_own() -> None:
    network = build_network(replace(TINY.params().model, pairing="concat"), seed=0)
    support, query = (torch.randn(each.shape) for each in TINY.batch().tensors[:2])
    with torch.no_grad():
        apart, together = (scores(network, support, query) for scores in (two_passes, one_pass))
        assert not torch.allclose(apart, together, atol=1e-4)
        network.eval()
        apart, together = (scores(network, support, query) for scores in (two_passes, one_pass))
        torch.testing.assert_close(apart, together, rtol=1e-4, atol=1e-5)


def test_a_batch_is_shared_out_over_the_ranks() -> None:
    whole, shares = (
        replace(TINY, batchsz=3).batch(),
        [replace(TINY, batchsz=3).batch(rank, 2) for rank in (0, 1)],
    )
    assert [each.shape for each in whole.tensors[:2]] == [(3, 5, 1, 3, 16, 16), (3, 5, 3, 16, 16)]
    assert [each.tensors[2].tolist() for each in shares] == [[0, 1], [2]]


def test_a_row_holds_rates_and_ratios_to_the_study() -> None:
    seconds = {"study": [2.0, 2.0, 2.0], "bf16": [0.5, 0.5, 0.5]}
    peaks = {"study": 400.0 * 2**20, "bf16": 100.0 * 2**20}
    table = step.table(step.Comparison(Workload("conv4", 84, 1, 4), seconds, peaks))
    assert table.title == "Training step: conv4, 84 px, 1 query per class, batchsz 4"
    assert table.rows[1] == ["bf16", Interval(0.5, 0.5, 0.5), 8.0, 80.0, Interval(4.0, 4.0, 4.0), 100.0, 0.25]


def test_efficiency_is_serial_over_twice_ddp() -> None:
    measured = Replicas(TINY, serial=[3.0] * 3, ddp=[2.0] * 3, apart=[1.5] * 3)
    assert (measured.efficiency.value, measured.ceiling.value) == (0.75, 1.0)


def test_ghost_norm_is_judged_by_its_ratio_and_over_trainings() -> None:
    times = {TINY: {"plain": [1.0, 1.1, 1.2], "ghost": [1.1, 1.21, 1.32]}}
    (row,) = norm._steps_table(times).rows
    ratio = row[3]
    assert isinstance(ratio, Interval)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.1, 1.1, 1.1))
    assert row[-1] == "falls short"
    plain = np.full((3, 4), 0.5)
    gains = np.array([0.01, 0.02, 0.03])
    *seeds, over_all = norm._accuracy_table(plain, plain + gains[:, None]).rows
    points = [row[3] for row in seeds]
    assert [each.value for each in points if isinstance(each, Interval)] == pytest.approx([1, 2, 3])
    difference = over_all[3]
    assert isinstance(difference, Interval) and over_all[4] == "trainings"
    half = 4.303 * 1 / 3**0.5  # Student's t with 2 degrees of freedom
    assert (difference.value, difference.low) == pytest.approx((2, 2 - half), abs=1e-3)


# --- the model of cost ----------------------------------------------------------------------------------


def bench(ddp: float) -> StrategyResults:
    """0.1 s per episode and nothing else; two replicas take `ddp` seconds for 4 episodes."""
    times, rounds = {"serial": 0.4, "ddp": ddp}, range(3)
    return StrategyResults(
        tuple(StrategyVariant(name, name, "ok", "", place, 1, 4) for place, name in enumerate(times, 1)),
        tuple(StrategyBlock(0, number, name, 1, each) for name, each in times.items() for number in rounds),
        (StepTrace("ddp", 2, 2, 1, 0, 0, 0, 0, 0, 0, 0, 400, 400),),
        cost_steps=tuple(
            CostStep(number, busy, size, 1, 0.1 * size)
            for number in rounds
            for busy in (1, 2)
            for size in (1, 2, 4)
        ),
        cost_messages=tuple(
            CostMessage(number, 2, size, 1, 1e-5 + 1e-9 * size)
            for number in rounds
            for size in (2**12, 2**20)
        ),
    )


@pytest.mark.parametrize(("ddp", "status"), [(0.22, 0), (0.25, 1), (0.15, 1)])
def test_the_command_fails_where_a_prediction_is_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ddp: float, status: int
) -> None:
    monkeypatch.setattr(predict, "strategy_bench", lambda *_: bench(ddp))
    assert main(["predict", "--quick", "--to", str(tmp_path / "predict.json")]) == status
    rows = json.loads((tmp_path / "predict.json").read_text())["tables"][0]["rows"]
    assert [row["verdict"] for row in rows].count("off") == status


# --- accuracy -------------------------------------------------------------------------------------------


def test_ways_are_paired_by_seed_and_episode(
    tiny_packed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Pool:
        """Stands in for a pool of processes."""

        __enter__ = lambda self: self  # noqa: E731
        __exit__ = lambda *_: None  # noqa: E731

        def map(self, function: Any, params: Any, packed: Any) -> Any:
            assert [each.train.precision for each in params] == ["fp32", "bf16"]
            assert [each.model.pairing for each in params] == ["concat", "split"]
            return [[0.4, 0.6], [0.42, 0.6]]

    monkeypatch.setattr(equivalence, "ProcessPoolExecutor", lambda *_, **__: Pool())
    outcome = equivalence.run(quick=True, packed=tiny_packed)
    row = outcome.tables[0].rows[0]
    assert list(row[1:3]) == [pytest.approx(50), pytest.approx(51)]
    assert np.allclose(outcome.raw["differences"], [0.02, 0])
    with pytest.raises(DataError, match="parashot recipe miniimagenet"):
        equivalence.run(quick=True, packed=tmp_path)


def test_a_training_gives_the_accuracy_of_each_validation_episode(tiny_packed: Path) -> None:
    settings = {"train.episodes": 4, "train.batchsz": 2, "train.val_episodes": 4, "evaluate.val_episodes": 4}
    shape = {"episode.n_way": 2, "episode.k_query": 1, "evaluate.k_query": 1, "model.image_size": 16}
    params = workload.params_with({**equivalence._COMMON, **settings, **shape})
    accuracies = equivalence.val_accuracies(params, tiny_packed)
    assert len(accuracies) == 4 and all(0 <= each <= 1 for each in accuracies)


# --- whole commands -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loader", "step", "scale", "machine", "pipeline", "predict", "leaks"])
def test_a_quick_run_of_a_command(
    name: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, result = tmp_path_factory.mktemp("t"), tmp_path_factory.mktemp("r") / "result.json"
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))  # a short path, as sockets need
    status = main([name, "--quick", "--to", str(result)])
    assert status == 0 or name == "predict"  # whose few small steps may be off
    libraries = ("pymp-", "torchinductor_")  # which keep theirs until the process ends, or longer
    assert [each for each in temporary.iterdir() if not each.name.startswith(libraries)] == []
    tables = json.loads(result.read_text())["tables"]
    cells = [cell for table in tables for row in table["rows"] for cell in row.values()]
    intervals = [cell for cell in cells if isinstance(cell, list)]
    assert all(0 < low <= value <= high < math.inf for value, low, high in intervals)
    assert len(intervals) >= 3 or name == "leaks"
