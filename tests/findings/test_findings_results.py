"""What the stages wrote is what the findings read."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import study_builder as build

from parashot.errors import RecordError
from parashot.questions.accuracy.records import Confusion, ShownScore, WarmupRun
from parashot.questions.batchsz.records import BatchszBlock, BatchszRun
from parashot.questions.loader.records import LoaderBlock
from parashot.questions.results import StudyResults, load_results
from parashot.questions.scaling.records import CostMessage, CostStep
from parashot.questions.step.records import TuneBlock
from parashot.questions.strategies.records import StepAnatomy, StepShares, StrategyBlock, StrategyVariant
from parashot.questions.summary import summarize
from parashot.records import write_metrics, write_result, write_rows
from parashot.train.records import EpisodeAccuracy, HistoryRow, PretrainRow, SeedAccuracy, TaskAccuracy

STRATEGIES = ("serial", "dp", "ddp")


def write_study(root: Path, study: StudyResults) -> None:
    """Write a study as the stages do."""
    folder = root / "results"
    assert study.tune and study.loader and study.strategies and study.batchsz and study.evaluate
    write_result(root / "hardware.json", study.hardware)
    write_result(folder / "choices.json", study.tune.choices)
    write_rows(folder / "tune/blocks.csv", TuneBlock, study.tune.blocks)
    write_rows(folder / "loader/blocks.csv", LoaderBlock, study.loader.blocks)
    write_metrics(folder / "loader/metrics.json", study.loader.metrics)
    write_rows(folder / "strategies/variants.csv", StrategyVariant, study.strategies.variants)
    write_rows(folder / "strategies/blocks.csv", StrategyBlock, study.strategies.blocks)
    write_rows(folder / "strategies/anatomy.csv", StepAnatomy, study.strategies.anatomy)
    write_rows(folder / "strategies/shares.csv", StepShares, study.strategies.shares)
    write_rows(folder / "strategies/cost_steps.csv", CostStep, study.strategies.cost_steps)
    write_rows(folder / "strategies/cost_messages.csv", CostMessage, study.strategies.cost_messages)
    write_metrics(folder / "strategies/metrics.json", study.strategies.metrics)
    assert study.pretraining
    write_result(folder / "pretrain/result.json", study.pretraining.result)
    write_rows(folder / "pretrain/history.csv", PretrainRow, study.pretraining.history)
    for name, training in study.training.items():
        write_result(folder / "train" / name / "result.json", training.result)
        if training.result.status == "ok":
            write_rows(folder / "train" / name / "history.csv", HistoryRow, training.history)
            write_rows(folder / "train" / name / "val_episodes.csv", EpisodeAccuracy, training.val_episodes)
        if training.seeds:
            write_rows(folder / "train" / name / "seeds.csv", SeedAccuracy, training.seeds)
    write_rows(folder / "batchsz/runs.csv", BatchszRun, study.batchsz.runs)
    write_rows(folder / "batchsz/blocks.csv", BatchszBlock, study.batchsz.blocks)
    write_rows(folder / "warmup/runs.csv", WarmupRun, study.warmup or ())
    write_result(folder / "evaluate/result.json", study.evaluate.result)
    write_rows(folder / "evaluate/test_episodes.csv", EpisodeAccuracy, study.evaluate.test_episodes)
    write_rows(folder / "evaluate/confusion.csv", Confusion, study.evaluate.confusion)
    write_rows(folder / "evaluate/tasks.csv", TaskAccuracy, study.evaluate.tasks)
    shown = [score for each in study.evaluate.shown for score in each.scores]
    write_rows(folder / "evaluate/shown.csv", ShownScore, shown)
    for number, each in enumerate(study.evaluate.shown):
        (folder / f"evaluate/episode_{number}.png").write_bytes(each.images)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_study(tmp_path, build.study())
    return tmp_path


def test_a_study_survives_its_files(root: Path) -> None:
    assert load_results(root, STRATEGIES) == build.study()


def test_further_seeds_survive_their_files(tmp_path: Path) -> None:
    seeds = tuple(SeedAccuracy(seed, episode, 0.25) for seed in range(3) for episode in range(4))
    study = build.study()
    study = replace(study, training={**study.training, "dp": replace(study.training["dp"], seeds=seeds)})
    write_study(tmp_path, study)
    assert load_results(tmp_path, STRATEGIES) == study


def test_a_missing_picture_of_an_episode_is_named(root: Path) -> None:
    (root / "results/evaluate/episode_1.png").unlink()
    with pytest.raises(RecordError, match=r"episode_1\.png: missing; run `dvc repro -f -s evaluate`"):
        load_results(root, STRATEGIES)


def test_a_study_from_before_the_model_of_cost_is_read(root: Path) -> None:
    for name in ("cost_steps.csv", "cost_messages.csv"):
        (root / "results/strategies" / name).unlink()
    results = load_results(root, STRATEGIES)
    assert results.strategies and results.strategies.cost_steps == results.strategies.cost_messages == ()
    summary = summarize(results, build.params())
    assert summary["scaling"]["rows"] == [] and len(summary["scaling"]["published"]) == 3


def test_skipped_trainings_need_only_their_result(root: Path) -> None:
    shutil.rmtree(root / "results/train/ddp")
    skipped = build.skipped_training("ddp", "one GPU")
    write_result(root / "results/train/ddp/result.json", skipped.result)
    assert load_results(root, STRATEGIES).training["ddp"] == skipped


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("hardware.json", "hardware"),
        ("results/tune", "tune"),
        ("results/loader", "loader"),
        ("results/strategies", "strategies"),
        ("results/pretrain", "pretrain"),
        ("results/train/dp", "train/dp"),
        ("results/batchsz", "batchsz"),
        ("results/warmup", "warmup"),
        ("results/evaluate", "evaluate"),
        ("results/loader/metrics.json", "loader"),
    ],
)
def test_a_missing_part_is_one_line_or_left_out(root: Path, path: str, part: str) -> None:
    target = root / path
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    with pytest.raises(RecordError, match="dvc repro") as error:
        load_results(root, STRATEGIES)
    assert "\n" not in str(error.value)
    results = load_results(root, STRATEGIES, partial=True)
    assert list(results.missing) == [part]
    assert str(root) not in results.missing[part] and "dvc repro" in results.missing[part]
    assert summarize(results, build.params())["missing"] == results.missing


def test_a_malformed_file_is_named(root: Path) -> None:
    (root / "results/loader/blocks.csv").write_text("round,backend\n0,jpeg\n")
    with pytest.raises(RecordError, match=r"loader/blocks\.csv: not a LoaderBlock"):
        load_results(root, STRATEGIES)


def test_wholly_skipped_batch_sizes_need_no_blocks(root: Path) -> None:
    skipped = [BatchszRun(30, "skipped", "one GPU", 0, 0.0, None, 0, 600, 0.0, None, None)]
    write_rows(root / "results/batchsz/runs.csv", BatchszRun, skipped)
    (root / "results/batchsz/blocks.csv").unlink()
    batchsz = load_results(root, STRATEGIES).batchsz
    assert batchsz and batchsz.runs == tuple(skipped) and batchsz.blocks == ()


def test_only_the_strategies_asked_for_are_read(root: Path) -> None:
    assert set(load_results(root, ("dp",)).training) == {"dp"}
