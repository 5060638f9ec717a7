"""The accuracy question: the chosen model on test, and warm-ups."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tiny_data import EVALUATED, PACKED_EPISODES, SEED, tiny_params

from parashot.errors import RecordError
from parashot.model.network import build_network
from parashot.model.weights import save_weights
from parashot.parallel.registry import STRATEGIES
from parashot.parsing import Value
from parashot.questions.accuracy.measure import evaluate_chosen
from parashot.questions.accuracy.records import EvaluateResult, WarmupRun
from parashot.questions.accuracy.warmup import study_warmup
from parashot.records import Provenance, read_json, read_result, read_rows, read_runs, write_result
from parashot.task import mean_and_ci95
from parashot.tasks.evaluation import draw_split, episode_accuracies
from parashot.train.records import EpisodeAccuracy, TaskAccuracy, TrainResult

pytestmark = pytest.mark.usefixtures("one_core")


def make_trainings(folder: Path, val_accuracies: dict[str, float]) -> Path:
    """A result for every strategy, each with a network of its own; those without an accuracy were skipped."""
    model = tiny_params().model
    for seed, name in enumerate(STRATEGIES):
        result = TrainResult(name, "skipped", "it is switched off")
        if name in val_accuracies:
            result = TrainResult(name, "ok", "", val_accuracy=val_accuracies[name])
            save_weights(folder / name / "model.safetensors", model, build_network(model, seed).state_dict())
        write_result(folder / name / "result.json", result)
    return folder


def test_the_best_on_validation_is_measured_on_test(tiny_packed: Path, tmp_path: Path) -> None:
    out, accuracies = tmp_path / "out", {"serial": 0.4, "dp": 0.6, "ddp": 0.0}
    trainings = make_trainings(tmp_path / "train", accuracies)
    evaluate_chosen(tiny_params(), tiny_packed, trainings, out, Provenance({}, {"source": "tiny"}))

    episodes = draw_split(tiny_packed, "test", EVALUATED, PACKED_EPISODES, SEED)
    network = build_network(tiny_params().model, list(STRATEGIES).index("dp"))
    expected = episode_accuracies(network, episodes)
    rows = read_rows(EpisodeAccuracy, out / "test_episodes.csv")
    assert [each.episode for each in rows] == list(range(PACKED_EPISODES))
    np.testing.assert_allclose([each.accuracy for each in rows], expected)

    result = read_result(EvaluateResult, out / "result.json")
    assert (result.strategy, result.episodes) == ("dp", PACKED_EPISODES)
    assert (result.n_way, result.k_shot, result.k_query) == (2, 1, 3)
    assert (result.test_accuracy, result.test_accuracy_ci95) == pytest.approx(mean_and_ci95(expected))
    one, three = read_rows(TaskAccuracy, out / "tasks.csv")
    assert (one.k_shot, one.accuracy) == (1, result.test_accuracy)
    assert (three.k_shot, three.episodes, three.transductive_episodes) == (3, PACKED_EPISODES, 2)
    metrics = read_json(out / "metrics.json")
    assert set(metrics) == {"test_1_shot", "test_3_shot"}
    assert metrics["test_1_shot"]["accuracy"] == result.test_accuracy
    parent, *children = read_runs(out / "records.jsonl")
    assert parent.stage == "evaluate"
    assert {*parent.artifacts} == {"result.json", "tasks.csv", "test_episodes.csv"}
    assert (out / (parent.model or "")).resolve() == trainings / "dp/model.safetensors"
    assert [each.name for each in children] == ["evaluate: test_1_shot", "evaluate: test_3_shot"]
    assert all(each.tags["source"] == "tiny" for each in (parent, *children))


def test_trainings_that_are_missing_are_one_line(tiny_packed: Path, tmp_path: Path) -> None:
    trainings = make_trainings(tmp_path / "train", {})
    for line in (r"^.*no strategy was trained; enable one.*$", r"^.*ddp/result\.json: cannot be read.*$"):
        with pytest.raises(RecordError, match=line):
            evaluate_chosen(tiny_params(), tiny_packed, trainings, tmp_path / "out", Provenance())
        assert not (tmp_path / "out").exists()
        (trainings / "ddp/result.json").unlink(missing_ok=True)


def test_every_size_is_trained_with_and_without_by_every_seed(tiny_packed: Path, tmp_path: Path) -> None:
    settings: dict[str, Value] = {
        "seed": 7,
        "train.lr_batchsz": 2,
        "train.learning_rate": 0.001,
        "warmup_study.enabled": True,
        "warmup_study.sizes": [2, 4],
        "warmup_study.episodes": 8,
        "warmup_study.warmup_share": 0.5,
        "warmup_study.seeds": 3,
    }
    study_warmup(tiny_params(settings), tiny_packed, tmp_path / "out", Provenance())
    runs = read_rows(WarmupRun, tmp_path / "out/runs.csv")
    of_each_seed = {(2, 0, 4, 0.001), (2, 2, 4, 0.001), (4, 0, 2, 0.002), (4, 1, 2, 0.002)}
    trained = Counter((each.batchsz, each.warmup_steps, each.steps, each.learning_rate) for each in runs)
    assert trained == dict.fromkeys(of_each_seed, 3)
    assert {each.seed for each in runs} == {7, 8, 9}
    assert len({each.val_accuracy for each in runs}) > 1
    _, *children = read_runs(tmp_path / "out/records.jsonl")
    assert [each.params["warmup_steps"] for each in children] == ["0", "2", "0", "1"]
    metrics = read_json(tmp_path / "out/metrics.json")
    mine = [each.val_accuracy for each in runs if (each.batchsz, each.warmup_steps) == (4, 1)]
    assert metrics["batchsz4_warmup1"]["val_accuracy_mean"] == pytest.approx(sum(mine) / 3)
