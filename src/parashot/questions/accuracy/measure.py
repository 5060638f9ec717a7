"""The model that validation chose, on the test split, once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from parashot.allocator import keep_freed_memory
from parashot.errors import DataError, RecordError
from parashot.model.losses import accuracy
from parashot.model.weights import load_network
from parashot.parallel.context import resolve_placement
from parashot.parallel.registry import STRATEGIES
from parashot.parallel.strategy import channels_last
from parashot.params import Params
from parashot.questions.accuracy.records import EvaluateResult, Evaluation
from parashot.questions.runs import Setting, Stage
from parashot.records import Provenance, read_result
from parashot.tasks.evaluation import EpisodeSet, draw_split
from parashot.tasks.few_shot import judge_episodes
from parashot.train.outcome import MODEL
from parashot.train.records import EpisodeAccuracy, TaskAccuracy, TrainResult

log = logging.getLogger(__name__)


def evaluate_chosen(params: Params, packed: Path, trainings: Path, out: Path, provenance: Provenance) -> None:
    """Choose by validation accuracy among `trainings`, measure on test, write `out`.

    Raises `RecordError` if none ran.
    """
    stage = Stage("evaluate", "evaluate", provenance)
    chosen = _chosen(trainings)
    placement = resolve_placement(params.parallel)
    keep_freed_memory()
    torch.set_num_threads(placement.cores)
    device = torch.device(placement.device_type)
    model = trainings / chosen / MODEL
    network = channels_last(load_network(model).to(device))
    transductive = params.evaluate.transductive_episodes
    said = "evaluate: %s on test, %d-shot %.2f ± %.2f%%, its cosine %.2f%%, %d episodes"
    tasks, scores = dict[int, TaskAccuracy](), dict[int, torch.Tensor]()  # by the number of shots
    for episodes in _tasks(params, packed):
        judged, task = judge_episodes(network, episodes, transductive)
        shown = [100 * each for each in (task.accuracy, task.accuracy_ci95, task.cosine_accuracy)]
        log.info(said, chosen, task.k_shot, *shown, task.episodes)
        tasks[task.k_shot], scores[task.k_shot] = task, judged[0]
    own = tasks[params.episode.k_shot]
    result = EvaluateResult(
        strategy=chosen,
        chosen_by="the highest validation accuracy after the last step",
        n_way=own.n_way,
        k_shot=own.k_shot,
        k_query=own.k_query,
        episodes=own.episodes,
        test_accuracy=own.accuracy,
        test_accuracy_ci95=own.accuracy_ci95,
    )
    accuracies = enumerate(accuracy(scores[own.k_shot]).double().tolist())
    of_episodes = tuple(EpisodeAccuracy(*each) for each in accuracies)
    results = Evaluation(result, of_episodes, tuple(tasks.values()))
    stage.write(out, results, [_setting(task) for task in tasks.values()], model=model)


def _setting(task: TaskAccuracy) -> Setting:
    options = {"n_way": task.n_way, "k_shot": task.k_shot, "k_query": task.k_query}
    return Setting(f"test_{task.k_shot}_shot", options, task)


def _chosen(trainings: Path) -> str:
    """The strategy whose training validation prefers."""
    results = [read_result(TrainResult, trainings / name / "result.json") for name in STRATEGIES]
    trained = {each.strategy: each.val_accuracy for each in results if each.val_accuracy is not None}
    if not trained:
        raise RecordError(
            f"{trainings}: no strategy was trained; enable one with parallel.serial.enabled=true"
        )
    return max(trained, key=lambda name: trained[name])


def _tasks(params: Params, packed: Path) -> Iterator[EpisodeSet]:
    """Test episodes with `episode.k_shot` shots, and others like them with those of `evaluate.k_shots`."""
    evaluate, episode = params.evaluate, params.episode
    for k_shot in sorted({episode.k_shot, *evaluate.k_shots}):
        spec = replace(params.tested_episode, k_shot=k_shot)
        try:
            yield draw_split(packed, "test", spec, evaluate.test_episodes, params.seed)
        except DataError as reason:
            if k_shot == episode.k_shot:
                raise
            log.info("evaluate: %d-shot is left out: %s", k_shot, reason)
