"""The study of batch sizes under DDP of one process.

Every step of a training takes two ticks of a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest
from small_tasks import alone
from standing_ranks import StandingRanks
from tiny_data import tiny_params
from torch import distributed as dist

from parashot.params import Params
from parashot.parsing import Value
from parashot.progress import span
from parashot.questions.batchsz import measure
from parashot.questions.batchsz.records import BatchszBlock, BatchszRun, BatchszTraining, GradientSample
from parashot.questions.batchsz.rows import episode_seconds
from parashot.records import Provenance, read_json, read_rows, read_runs
from parashot.tasks.relation import RelationTask
from parashot.train import loop

BASELINE, SIZES = 4, (1, 4, 8)
BUDGET = 16
TICKS = 2  # of a step
LIMIT = TICKS * BUDGET / BASELINE


def params(settings: dict[str, Value] | None = None) -> Params:
    return tiny_params(
        {
            "parallel.replicas": 1,
            "parallel.bench.blocks": 7,
            "batchsz_study.sizes": [*SIZES],
            "batchsz_study.baseline": BASELINE,
            "batchsz_study.episodes": BUDGET,
            **(settings or {}),
        }
    )


@pytest.fixture(scope="module", autouse=True)
def few_episodes() -> Iterator[None]:
    """Gradients of 8 episodes instead of 40, running statistics of 6 instead of 60."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "NOISE_EPISODES", 8)
        patch.setattr(measure, "STATISTICS_EPISODES", 6)
        yield


@pytest.fixture(scope="module")
def studied(tiny_packed: Path, tmp_path_factory: pytest.TempPathFactory, one_core: None) -> Path:
    """The study's results; the loop reads its clock twice a step, at the batch's arrival and at the end."""
    ticks = count()
    out = tmp_path_factory.mktemp("batchsz") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
        provenance = Provenance({}, {"source": "tiny"})
        measure.study_batch_sizes(params(), tiny_packed, None, out, provenance)
    return out


def test_the_baseline_sets_the_limit_at_which_others_are_stopped(studied: Path) -> None:
    """One is stopped within as many episodes as two steps of the baseline have."""
    runs = {each.batchsz: each for each in read_rows(BatchszRun, studied / "runs.csv")}
    assert list(runs) == [*SIZES]
    assert [each.limit_seconds for each in runs.values()] == [LIMIT, None, LIMIT]
    stopped = runs[1]
    assert (stopped.status, stopped.reason) == ("stopped", f"over the time of batchsz 4, {span(LIMIT)}")
    assert stopped.seconds is not None and LIMIT < stopped.seconds <= LIMIT + TICKS * 2 * BASELINE
    assert stopped.seconds == TICKS * stopped.episodes
    assert stopped.projected_seconds == TICKS * BUDGET
    for size, took in ((BASELINE, LIMIT), (8, LIMIT / 2)):
        run = runs[size]
        assert (run.status, run.reason, run.episodes) == ("ok", "", BUDGET)
        assert run.projected_seconds == run.seconds == took
    assert all(each.val_accuracy is not None and each.replicas == 1 for each in runs.values())
    assert not dist.is_initialized()

    _, *children = read_runs(studied / "records.jsonl")
    assert {each.name: each.status for each in children} == {
        **{f"batch sizes: batchsz{size}": run.status for size, run in runs.items()},
        **{f"batch sizes: batchsz{size}_in_equal_time": "ok" for size in SIZES},
    }
    assert children[0].tags == {"source": "tiny", "strategy": "ddp", "reason": stopped.reason}
    assert len([each for each in children[0].metrics if each.key == "seconds_per_episode_block"]) == 7
    metrics = read_json(studied / "metrics.json")
    assert set(metrics) == {f"batchsz{size}{what}" for size in SIZES for what in ("", "_in_equal_time")}
    trainings = read_rows(BatchszTraining, studied / "trainings.csv")
    by_seed = [each.val_accuracy for each in trainings if each.batchsz == 8]
    assert by_seed == [each.value for each in children[-1].metrics if each.key == "val_accuracy_block"]
    assert metrics["batchsz1"]["projected_seconds"] == TICKS * BUDGET
    assert {"val_accuracy", "seconds_per_episode_low", "communication_share"} <= set(metrics["batchsz8"])


def test_a_size_below_the_number_of_replicas_runs_on_as_many(tiny_packed: Path, ranks: StandingRanks) -> None:
    own = params(
        {"parallel.replicas": 2, "batchsz_study.sizes": [1, BASELINE], "batchsz_study.seconds": 0.05}
    )
    found = ranks(2, measure.batchsz_rank, RelationTask(own, tiny_packed))
    assert [(each.batchsz, each.replicas) for each in found.runs] == [(1, 1), (BASELINE, 2)]
    assert {each.batchsz for each in found.blocks} == {each.batchsz for each in found.trainings} == {1, 4}


def test_blocks_are_interleaved_and_gradients_of_episodes_compared_with_their_mean(studied: Path) -> None:
    blocks = read_rows(BatchszBlock, studied / "blocks.csv")
    found = [(each.round, each.batchsz, each.synchronised) for each in blocks]
    assert sorted(found) == list(product(range(7), SIZES, (False, True)))
    assert [each.round for each in blocks] == sorted(each.round for each in blocks)
    steps = {(each.batchsz, each.episodes, each.steps) for each in blocks}
    assert steps == {(size, size, 1) for size in SIZES}  # blocks of tests need not last
    assert all(each.seconds > 0 for each in blocks)
    samples = read_rows(GradientSample, studied / "gradients.csv")
    assert [each.episode for each in samples] == [*range(measure.NOISE_EPISODES)]
    mean_squared = sum(each.dot_with_mean for each in samples) / len(samples)
    assert 0 < mean_squared < sum(each.squared_norm for each in samples) / len(samples)


def test_every_size_is_trained_for_the_same_seconds_with_every_seed(studied: Path) -> None:
    """Blocks are timed by the real clock: so many episodes as 0.1 s hold at the size's own speed."""
    trainings = read_rows(BatchszTraining, studied / "trainings.csv")
    first = params().seed
    found = [(each.batchsz, each.seed) for each in trainings]
    assert found == [*product(SIZES, range(first, first + 3))]
    blocks = read_rows(BatchszBlock, studied / "blocks.csv")
    for each in trainings:
        speeds = episode_seconds(blocks, each.batchsz).values()
        assert each.steps == max(1, round(0.1 / median(speeds) / each.batchsz))
        assert each.episodes == each.steps * each.batchsz
        assert each.learning_rate == pytest.approx(params().train.learning_rate * (each.batchsz / 8) ** 0.5)
    assert len({each.val_accuracy for each in trainings}) > 1


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize(("target", "times"), [(0.01, [1]), (1.0, [1, 2, 4, 8])])
def test_what_lacks_the_target_is_trained_again_in_twice_the_time(
    tiny_packed: Path, target: float, times: list[int]
) -> None:
    """On 11 episodes of 3 queries no network is right in all."""
    settings: dict[str, Value] = {"batchsz_study.target": target, "batchsz_study.seconds": 0.5}
    own = params({**settings, "train.precision": "fp32"})
    trained, _ = measure.train_sizes(alone(), RelationTask(own, tiny_packed), {2: 0.25})
    seeds = range(own.seed, own.seed + own.batchsz_study.seeds)
    assert [(each.seed, each.seconds) for each in trained] == [
        (seed, 0.5 * time) for seed in seeds for time in times
    ]
    assert all(each.steps == round(each.seconds / 0.25 / 2) for each in trained)


@pytest.mark.usefixtures("one_core")
def test_the_baseline_is_repeated_in_fp32_step_for_step(tiny_packed: Path) -> None:
    """What bf16 trainings are compared with is what fp32 would have trained from the start."""
    changes: dict[str, Value] = {"batchsz_study.sizes": [2, BASELINE], "batchsz_study.seconds": 0.5}
    half, full = (
        RelationTask(params({**changes, "train.precision": each}), tiny_packed) for each in ("bf16", "fp32")
    )
    (_, repeated), (in_full, none) = (
        measure.train_sizes(alone(), each, {2: 0.25, BASELINE: 0.1}) for each in (half, full)
    )
    assert repeated == [each for each in in_full if each.batchsz == BASELINE]
    assert none == []


def test_without_ddp_every_size_is_skipped_with_the_reason(tiny_packed: Path, tmp_path: Path) -> None:
    out, reason = tmp_path / "out", "parallel.ddp.enabled is false"
    off = params({"parallel.ddp.enabled": False})
    measure.study_batch_sizes(off, tiny_packed, None, out, Provenance())
    runs = read_rows(BatchszRun, out / "runs.csv")
    told = [(each.batchsz, each.status, each.reason) for each in runs]
    assert told == [(size, "skipped", reason) for size in SIZES]
    _, *children = read_runs(out / "records.jsonl")
    recorded = [(each.status, each.tags["reason"], each.metrics) for each in children]
    assert recorded == [("skipped", reason, ())] * len(SIZES)
