"""The model that validation chose, on the test split, once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import torch

from parashot.data.episodes import EpisodeSpec
from parashot.data.manifest import read_manifest
from parashot.data.packed import PackedSplit
from parashot.errors import RecordError
from parashot.files import replacing_folder
from parashot.model.losses import accuracy
from parashot.model.weights import load_network
from parashot.parallel.allocator import keep_freed_memory
from parashot.parallel.context import place
from parashot.parallel.registry import STRATEGIES
from parashot.parallel.strategy import channels_last
from parashot.params import Params
from parashot.records import (
    Confusion,
    EpisodeAccuracy,
    EvaluateResult,
    TrainResult,
    read_result,
    write_metrics,
    write_result,
    write_rows,
    write_runs,
)
from parashot.study.confusion import confusions
from parashot.study.runs import StageRuns
from parashot.study.shown import write_shown
from parashot.train.evaluate import episode_scores, mean_and_ci95

log = logging.getLogger(__name__)

KNOBS = ("episode", "model.image_size", "evaluate.k_query", "parallel.device", "parallel.replicas")


def evaluate_chosen(
    params: Params, packed: Path, trainings: Path, out: Path, tags: Mapping[str, str]
) -> None:
    """Choose by validation accuracy among `trainings`, measure on test, write `out`.

    Raises `RecordError` if none ran.
    """
    runs = StageRuns(
        "evaluate", "evaluate", params, KNOBS, tags, ["result.json", "test_episodes.csv", "confusion.csv"]
    )
    results = [read_result(TrainResult, trainings / name / "result.json") for name in STRATEGIES]
    trained = {each.strategy: each.val_accuracy for each in results if each.val_accuracy is not None}
    if not trained:
        raise RecordError(
            f"{trainings}: no strategy was trained; enable one with parallel.serial.enabled=true"
        )
    chosen = max(trained, key=lambda name: trained[name])
    spec = EpisodeSpec(params.episode.n_way, params.episode.k_shot, params.evaluate.k_query)
    placement = place(params.parallel)
    keep_freed_memory()
    torch.set_num_threads(placement.cores)
    device = torch.device(placement.device_type)
    network = channels_last(load_network(trainings / chosen / "model.pt").to(device))
    split = PackedSplit(packed, "test")
    scores = episode_scores(network, split, split.episodes, spec, params.model.image_size, device)
    accuracies = accuracy(scores).double().numpy()
    mean, ci95 = mean_and_ci95(accuracies)
    log.info(
        "evaluate: %s on test, %.2f ± %.2f%%, %d episodes",
        chosen,
        100 * mean,
        100 * ci95,
        len(accuracies),
    )
    result = EvaluateResult(
        strategy=chosen,
        chosen_by="the highest validation accuracy after the last step",
        n_way=spec.n_way,
        k_shot=spec.k_shot,
        k_query=spec.k_query,
        episodes=len(accuracies),
        test_accuracy=mean,
        test_accuracy_ci95=ci95,
    )
    metrics = {"test_accuracy": mean, "test_accuracy_ci95": ci95, "episodes": len(accuracies)}
    with replacing_folder(out) as folder:
        write_result(folder / "result.json", result)
        rows = [EpisodeAccuracy(index, float(each)) for index, each in enumerate(accuracies)]
        write_rows(folder / "test_episodes.csv", EpisodeAccuracy, rows)
        names = read_manifest(packed).splits["test"].classes
        confused = confusions(scores.numpy(), split.episodes, split.class_sizes, names)
        write_rows(folder / "confusion.csv", Confusion, confused)
        write_shown(folder, split, split.episodes, scores.numpy(), spec)
        write_metrics(folder / "metrics.json", metrics)
        write_runs(folder / "records.jsonl", runs.all(metrics))
