"""The model that validation chose, on the test split, once."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from parashot.data.episodes import EpisodeSpec
from parashot.data.manifest import read_manifest
from parashot.data.packed import PackedSplit
from parashot.errors import DataError, RecordError
from parashot.files import replacing_folder
from parashot.model.losses import accuracy
from parashot.model.network import RelationNetwork
from parashot.model.weights import load_network
from parashot.parallel.allocator import keep_freed_memory
from parashot.parallel.context import place
from parashot.parallel.registry import STRATEGIES
from parashot.parallel.strategy import channels_last
from parashot.params import Params
from parashot.questions.accuracy.confusion import confusions
from parashot.questions.accuracy.records import Confusion, EvaluateResult
from parashot.questions.accuracy.shown import write_shown
from parashot.questions.runs import StageRuns
from parashot.records import read_result, write_metrics, write_result, write_rows, write_runs
from parashot.train.evaluate import EpisodeSet
from parashot.train.records import EpisodeAccuracy, TaskAccuracy, TrainResult
from parashot.train.tasks import draw_episodes, judge_episodes, task_accuracy, transductive_accuracies

log = logging.getLogger(__name__)

KNOBS = (
    "seed",
    "episode",
    "evaluate.k_query",
    "evaluate.k_shots",
    "evaluate.test_episodes",
    "evaluate.transductive_episodes",
    "parallel.device",
    "parallel.replicas",
)
ARTIFACTS = ("result.json", "tasks.csv", "test_episodes.csv", "confusion.csv")


def evaluate_chosen(
    params: Params, packed: Path, trainings: Path, out: Path, tags: Mapping[str, str]
) -> None:
    """Choose by validation accuracy among `trainings`, measure on test, write `out`.

    Raises `RecordError` if none ran.
    """
    runs = StageRuns("evaluate", "evaluate", params, KNOBS, tags, ARTIFACTS)
    chosen = _chosen(trainings)
    placement = place(params.parallel)
    keep_freed_memory()
    torch.set_num_threads(placement.cores)
    device = torch.device(placement.device_type)
    network = channels_last(load_network(trainings / chosen / "model.pt").to(device))
    split, names = PackedSplit(packed, "test"), read_manifest(packed).splits["test"].classes
    found = []
    for episodes in _tasks(params, split, names):
        found.append(_measured(network, episodes, params.evaluate.transductive_episodes))
        _tell(chosen, found[-1].accuracy)
    own = next(each for each in found if each.episodes.spec.k_shot == params.episode.k_shot)
    metrics = _metrics(own.accuracy, [each.accuracy for each in found])
    with replacing_folder(out) as folder:
        write_result(folder / "result.json", _result(chosen, own.accuracy))
        write_rows(folder / "tasks.csv", TaskAccuracy, [each.accuracy for each in found])
        accuracies = enumerate(accuracy(own.scores).double().tolist())
        write_rows(
            folder / "test_episodes.csv", EpisodeAccuracy, [EpisodeAccuracy(*each) for each in accuracies]
        )
        confused = confusions(own.scores.numpy(), own.episodes.rows, split.class_sizes, names)
        write_rows(folder / "confusion.csv", Confusion, confused)
        write_shown(folder, split, own.episodes.rows, own.scores.numpy(), own.episodes.spec)
        write_metrics(folder / "metrics.json", metrics)
        write_runs(folder / "records.jsonl", runs.all(metrics))


class _Measured(NamedTuple):
    """Episodes, scores [e, q, n] of them, and what they sum up to."""

    episodes: EpisodeSet
    scores: torch.Tensor
    accuracy: TaskAccuracy


def _measured(network: RelationNetwork, episodes: EpisodeSet, transductive: int) -> _Measured:
    judged = judge_episodes(network, episodes)
    apart = transductive_accuracies(network, episodes[:transductive])
    return _Measured(episodes, judged[0], task_accuracy(judged, apart, episodes.spec))


def _result(chosen: str, own: TaskAccuracy) -> EvaluateResult:
    return EvaluateResult(
        strategy=chosen,
        chosen_by="the highest validation accuracy after the last step",
        n_way=own.n_way,
        k_shot=own.k_shot,
        k_query=own.k_query,
        episodes=own.episodes,
        test_accuracy=own.accuracy,
        test_accuracy_ci95=own.accuracy_ci95,
    )


def _chosen(trainings: Path) -> str:
    """The strategy whose training validation prefers."""
    results = [read_result(TrainResult, trainings / name / "result.json") for name in STRATEGIES]
    trained = {each.strategy: each.val_accuracy for each in results if each.val_accuracy is not None}
    if not trained:
        raise RecordError(
            f"{trainings}: no strategy was trained; enable one with parallel.serial.enabled=true"
        )
    return max(trained, key=lambda name: trained[name])


def _tasks(params: Params, split: PackedSplit, names: Sequence[str]) -> Iterator[EpisodeSet]:
    """The packed episodes, and others like them with as many shots as `evaluate.k_shots` says."""
    evaluate, episode = params.evaluate, params.episode
    for k_shot in sorted({episode.k_shot, *evaluate.k_shots}):
        spec = EpisodeSpec(episode.n_way, k_shot, evaluate.k_query)
        if k_shot == episode.k_shot:
            yield EpisodeSet(split, spec, split.episodes)
            continue
        try:
            yield draw_episodes(split, names, spec, evaluate.test_episodes, params.seed)
        except DataError as reason:
            log.info("evaluate: %d-shot is left out: %s", k_shot, reason)


def _tell(chosen: str, task: TaskAccuracy) -> None:
    log.info(
        "evaluate: %s on test, %d-shot %.2f ± %.2f%%, its cosine %.2f%%, %d episodes",
        chosen,
        task.k_shot,
        100 * task.accuracy,
        100 * task.accuracy_ci95,
        100 * task.cosine_accuracy,
        task.episodes,
    )


def _metrics(own: TaskAccuracy, tasks: Sequence[TaskAccuracy]) -> dict[str, float | int | str]:
    metrics: dict[str, float | int | str] = {
        "test_accuracy": own.accuracy,
        "test_accuracy_ci95": own.accuracy_ci95,
        "cosine_accuracy": own.cosine_accuracy,
        "margin": own.margin,
        "margin_ci95": own.margin_ci95,
        "episodes": own.episodes,
    }
    others = (each for each in tasks if each is not own)
    return metrics | {f"test_accuracy_{each.k_shot}_shot": each.accuracy for each in others}
