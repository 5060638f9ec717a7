"""The study's way and ours do the same; DDP, predictions and accuracies; a quick run of every command."""

from __future__ import annotations

import json
import math
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import study_builder as build
import torch
from torch import Tensor, nn

from benchmarks import norm, predict, workload
from benchmarks.__main__ import main
from benchmarks.peers.study_step import StudyStep, two_passes
from benchmarks.replicas import efficiency
from benchmarks.step import OURS
from benchmarks.workload import Workload, serial_strategy
from parashot.errors import DataError
from parashot.model.network import RelationNetwork, build_network
from parashot.params import Params
from parashot.questions.statistics import Interval

CPU = torch.device("cpu")
TINY = Workload("conv4", 16, 1, 2)
pytestmark = pytest.mark.usefixtures("one_core")


def gradients(network: nn.Module) -> dict[str, Tensor]:
    return {
        name: each.grad.contiguous().clone()
        for name, each in network.named_parameters()
        if each.grad is not None
    }


@pytest.mark.parametrize("work", [replace(TINY, k_query=3), Workload("bottleneck", 32, 1, 1)])
def test_the_studys_way_and_ours_have_one_loss_and_gradient(work: Workload) -> None:
    """With batch norm in eval mode, where an image's maps depend on no other."""
    study, strategy = StudyStep(work.params(), work.batch(), CPU), serial_strategy(work, OURS["fp32"])
    study.network.eval()
    strategy.network.eval()
    ours = strategy.step(work.batch())
    assert float(ours[0]) / work.batchsz == pytest.approx(float(study()), abs=1e-5)
    found, wanted = gradients(strategy.network), gradients(study.network)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


def test_the_studys_images_stay_in_pytorchs_own_order() -> None:
    way = StudyStep(TINY.params(), TINY.batch(), CPU)
    formats = set[bool]()

    def note(_: nn.Module, inputs: tuple[Tensor]) -> None:
        maps = inputs[0]
        if maps.shape[2] > 1:  # one pixel lies in both orders
            formats.add(maps.is_contiguous(memory_format=torch.channels_last))

    for module in way.network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(note)
    way()
    assert formats == {False}


def one_pass(network: RelationNetwork, support: Tensor, query: Tensor) -> Tensor:
    maps = network.embed(torch.cat((support.flatten(0, 2), query.flatten(0, 1))))
    first, others = maps.split([support.shape[:3].numel(), query.shape[:2].numel()])
    return network.relate(first.unflatten(0, support.shape[:3]), others.unflatten(0, query.shape[:2]))


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
    work = replace(TINY, batchsz=3)
    whole, shares = work.batch(), [work.batch(rank, 2) for rank in (0, 1)]
    assert [each.shape for each in whole.tensors[:2]] == [(3, 5, 1, 3, 16, 16), (3, 5, 3, 16, 16)]
    assert [each.tensors[2].tolist() for each in shares] == [[0, 1], [2]]


def test_efficiency_is_serial_over_twice_ddp() -> None:
    assert efficiency({"serial": [3.0] * 3, "ddp": [2.0] * 3}).value == 0.75


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


@pytest.mark.parametrize(("ddp", "status"), [(0.22, 0), (0.26, 1), (0.15, 1)])
def test_the_command_fails_where_a_prediction_is_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ddp: float, status: int
) -> None:
    measured = build.strategy_results({"serial": 0.4, "ddp": ddp}, own=0.0)
    monkeypatch.setattr(predict, "strategy_bench", lambda *_: measured)
    assert main(["predict", "--quick", "--to", str(tmp_path / "predict.json")]) == status
    rows = json.loads((tmp_path / "predict.json").read_text())["tables"][0]["rows"]
    assert [row["verdict"] for row in rows].count("off") == status


def test_ways_are_paired_by_seed_and_episode(
    tiny_packed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def accuracies(params: Params, packed: Path, embedding: Path) -> list[float]:
        return [float(params.seed), float(params.model.norm_episodes)]

    monkeypatch.setattr(norm, "ProcessPoolExecutor", lambda workers, **_: ThreadPoolExecutor(workers))
    monkeypatch.setattr(norm, "val_accuracies", accuracies)
    monkeypatch.setitem(norm.SEEDS, "miniimagenet", (5, 6))
    (embedding := tmp_path / "embedding.safetensors").touch()
    plain, ghost = norm.train_ways("miniimagenet", tiny_packed, embedding, quick=True)
    assert (plain.tolist(), ghost.tolist()) == ([[5, 0], [6, 0]], [[5, 1], [6, 1]])
    with pytest.raises(DataError, match="parashot recipe miniimagenet"):
        norm.train_ways("miniimagenet", tmp_path, embedding, quick=True)


def test_a_training_gives_the_accuracy_of_each_validation_episode(tiny_packed: Path) -> None:
    settings = {"train.episodes": 4, "train.batchsz": 2, "train.val_episodes": 4, "evaluate.val_episodes": 4}
    shape = {"episode.n_way": 2, "episode.k_query": 1, "evaluate.k_query": 1, "model.image_size": 16}
    params = workload.params_with({**norm._COMMON, **settings, **shape})
    accuracies = norm.val_accuracies(params, tiny_packed)
    assert len(accuracies) == 4 and all(0 <= each <= 1 for each in accuracies)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["check", "roofline", "pipeline", "predict", "leaks"])
def test_a_quick_run_of_a_command(
    name: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, result = tmp_path_factory.mktemp("t"), tmp_path_factory.mktemp("r") / "result.json"
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))  # a short path, as sockets need
    status = main([name, "--quick", "--to", str(result)])
    assert status == 0 or name in ("check", "predict")  # whose few small steps may be off
    libraries = ("pymp-", "torchinductor_")  # which keep theirs until the process ends, or longer
    assert [each for each in temporary.iterdir() if not each.name.startswith(libraries)] == []
    tables = json.loads(result.read_text())["tables"]
    cells = [cell for table in tables for row in table["rows"] for cell in row.values()]
    intervals = [cell for cell in cells if isinstance(cell, list)]
    assert all(low <= value <= high < math.inf for value, low, high in intervals)
    assert name == "check" or all(low > 0 for _, low, _ in intervals)  # one of its rows is a difference
    assert len(intervals) >= 3 or name == "leaks"
