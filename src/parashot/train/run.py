"""One whole training: assemble data, network, strategy and loop, and write its result folder.

    result.json  history.csv  val_episodes.csv  model.pt  metrics.json  records.jsonl      (formats: records.py)
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import distributed as dist

from parashot.data.episodes import EpisodeSpec
from parashot.data.loaders import EpisodeDataset, Plan, episode_loader, workers_of_rank
from parashot.data.packed import PackedSplit
from parashot.files import replacing_folder
from parashot.hardware import MemoryPeak, tree_memory_bytes
from parashot.model.network import build_network
from parashot.model.weights import save_weights
from parashot.parallel.context import Context, fit_to_batch, place
from parashot.parallel.launch import launch
from parashot.parallel.registry import STRATEGIES, build_strategy, obstacle
from parashot.parallel.strategy import Strategy
from parashot.params import Params, flatten
from parashot.records import (
    EpisodeAccuracy,
    HistoryRow,
    Metric,
    Run,
    TrainResult,
    now_ms,
    write_metrics,
    write_result,
    write_rows,
    write_runs,
)
from parashot.train.evaluate import mean_and_ci95, shared_episode_accuracies
from parashot.train.loop import Trace, train_steps
from parashot.train.objective import build_objective, optimizer_maker

log = logging.getLogger(__name__)

_SETTLING_STEPS = 3
"""The first steps pay for caches and allocations; the median step leaves them out."""

_MEMORY_INTERVAL_SECONDS = 0.1


@dataclass(frozen=True)
class Job:
    """A training to run; pickled to every rank. `live` is called with the run so far, outside the clock."""

    strategy: str
    params: Params
    packed: Path
    out: Path
    tags: Mapping[str, str] = field(default_factory=dict)
    live: Callable[[Run], None] | None = None


def train(job: Job) -> TrainResult | None:
    """Run `job` and write its folder; what cannot run here is recorded as skipped, with its reason.

    Returns None on every rank but the first, where torchrun started several.
    """
    params = job.params
    if not getattr(params.parallel, job.strategy).enabled:
        return _skip(job, f"parallel.{job.strategy}.enabled is false")
    placement = place(params.parallel)
    if reason := obstacle(job.strategy, placement, torch.cuda.device_count()):
        return _skip(job, reason)
    if params.train.batch_per == "global":
        placement = fit_to_batch(placement, params.train.batchsz)
    return launch(train_rank, placement, STRATEGIES[job.strategy].processes(placement.replicas), job)


def train_rank(context: Context, job: Job) -> TrainResult:
    """The training of one rank. The first one writes the result folder."""
    return _Training(context, job).run()


class _Training:
    """One rank's training: what its pauses share."""

    def __init__(self, context: Context, job: Job) -> None:
        params = job.params
        self.context, self.job, self.params = context, job, params
        self.start_ms = now_ms()
        self.idle_bytes = tree_memory_bytes(os.getpid()) if context.device.type == "cpu" else 0
        own_episodes = context.ranks if params.train.batch_per == "rank" else 1
        self.plan = Plan(
            params.train.episodes * own_episodes, params.train.batchsz * own_episodes, context.rank, context.ranks
        )
        self.val = PackedSplit(job.packed, "val")
        self.strategy: Strategy = build_strategy(
            job.strategy,
            build_network(params.model, params.seed),
            build_objective(params),
            optimizer_maker(params),
            context,
            params.parallel,
        )
        self.validations: dict[int, tuple[float, float]] = {}
        self.val_accuracies: npt.NDArray[np.float64] = np.zeros(0)
        self.until_first_pause = ExitStack()
        self.last_live = time.monotonic()

    def run(self) -> TrainResult:
        """Train, check, and on the first rank write."""
        try:
            with self.until_first_pause:
                memory = self.until_first_pause.enter_context(MemoryPeak(_MEMORY_INTERVAL_SECONDS))
                trace = train_steps(
                    self.strategy,
                    self._batches(),
                    self.plan,
                    pause_every=self.params.train.validate_every,
                    on_pause=self._pause,
                )
            result = self._result(trace, memory.peak_bytes)
            state = self.strategy.state_dict()
        finally:
            self.strategy.close()
        if self.context.is_first:
            self._write(trace, result, state)
        return result

    def _batches(self):  # type: ignore[no-untyped-def]
        params, context = self.params, self.context
        dataset = EpisodeDataset(
            PackedSplit(self.job.packed, "train"),
            EpisodeSpec(params.episode.n_way, params.episode.k_shot, params.episode.k_query),
            self.plan,
            params.seed,
            params.loader.backend,
            params.model.image_size,
        )
        workers = workers_of_rank(params.loader.workers, context.local_rank, context.local_ranks)
        return episode_loader(dataset, workers, params.loader.prefetch, context.device)

    def _pause(self, done: int, trace: Trace) -> bool:
        """Validate and report. Memory is that of training steps, so its watch ends where the first validation begins."""
        self.until_first_pause.close()
        evaluate, last = self.params.evaluate, done == self.plan.steps
        episodes = evaluate.val_episodes if last else self.params.train.val_episodes
        spec = EpisodeSpec(self.params.episode.n_way, self.params.episode.k_shot, evaluate.k_query)
        self.strategy.synchronise_buffers()
        with _all_cores(self.context):
            self.val_accuracies = shared_episode_accuracies(
                self.strategy.network, self.val, self.val.episodes[:episodes], spec,
                self.params.model.image_size, self.context,
            )
        self.validations[done] = mean_and_ci95(self.val_accuracies)
        if self.context.is_first:
            self._report(done, trace)
        return True

    def _report(self, done: int, trace: Trace) -> None:
        accuracy, ci95 = self.validations[done]
        remaining = trace.times.seconds / done * (self.plan.steps - done)
        log.info(
            "train %s: step %d of %d, loss %.4f, val %.1f ± %.1f%%, %.1f s left",
            self.job.strategy, done, self.plan.steps, trace.losses[-1], 100 * accuracy, 100 * ci95, remaining,
        )
        now = time.monotonic()
        if self.job.live and now - self.last_live >= self.params.tracking.live_seconds:
            self.last_live = now
            self.job.live(self._record(trace, None))

    def _result(self, trace: Trace, peak_bytes: int) -> TrainResult:
        context, times = self.context, trace.times
        accuracy, ci95 = mean_and_ci95(self.val_accuracies)
        settled = times.step_seconds[_SETTLING_STEPS:] or times.step_seconds
        by_device = _memory_by_device(context, self.strategy.replicas)
        return TrainResult(
            strategy=self.job.strategy,
            status="ok",
            reason="",
            device=context.placement.device_type,
            how=self._how(),
            replicas=self.strategy.replicas,
            threads_per_replica=context.placement.threads_per_replica,
            batchsz=self.plan.batchsz,
            batch_per=self.params.train.batch_per,
            steps=len(times.step_seconds),
            episodes=self.plan.episodes,
            seconds=times.seconds,
            seconds_per_step=float(np.median(settled)),
            data_share=sum(times.data_seconds) / times.seconds,
            val_accuracy=accuracy,
            val_accuracy_ci95=ci95,
            val_episodes=len(self.val_accuracies),
            peak_memory_bytes=max(by_device) if by_device else _sum_over_ranks(context, peak_bytes - self.idle_bytes),
            memory_by_device=by_device,
            ranks_identical=self.strategy.agree(),
            parameters=sum(each.numel() for each in self.strategy.network.parameters()),
        )

    def _how(self) -> str:
        wanted = place(self.params.parallel).replicas
        if self.job.strategy == "serial" or self.strategy.replicas >= wanted:
            return self.strategy.how
        return f"{self.strategy.how}; batchsz {self.plan.batchsz} feeds only {self.strategy.replicas} of {wanted}"

    def _history(self, trace: Trace) -> list[HistoryRow]:
        seconds = np.cumsum(trace.times.step_seconds).tolist()
        rows = []
        for index, loss in enumerate(trace.losses):
            accuracy, ci95 = self.validations.get(index + 1, (None, None))
            rows.append(
                HistoryRow(
                    step=index + 1,
                    episodes=min((index + 1) * self.plan.batchsz, self.plan.episodes),
                    seconds=seconds[index],
                    step_seconds=trace.times.step_seconds[index],
                    data_seconds=trace.times.data_seconds[index],
                    loss=loss,
                    train_accuracy=trace.accuracies[index],
                    val_accuracy=accuracy,
                    val_accuracy_ci95=ci95,
                )
            )
        return rows

    def _record(self, trace: Trace, result: TrainResult | None) -> Run:
        """The run as MLflow is told it: while it trains (`result` None), and when it is done."""
        metrics = [
            Metric(key, value, row.step, self.start_ms + round(1000 * row.seconds))
            for row in self._history(trace)
            for key in ("loss", "train_accuracy", "step_seconds", "val_accuracy")
            if (value := getattr(row, key)) is not None
        ]
        if result is not None:
            step = result.steps
            metrics += [Metric(key, float(value), step, now_ms()) for key, value in metrics_of(result).items()]
        return Run(
            name=f"train {self.job.strategy}",
            stage=f"train-{self.job.strategy}",
            status="running" if result is None else "ok",
            start_ms=self.start_ms,
            end_ms=None if result is None else now_ms(),
            params=flatten(self.params),
            tags={**self.job.tags, "strategy": self.job.strategy, "how": self._how()},
            metrics=tuple(metrics),
            artifacts=() if result is None else ("history.csv", "val_episodes.csv", "result.json", "model.pt"),
            model=None if result is None else "model.pt",
            uuid=self.uuid,
        )

    @property
    def uuid(self) -> str:
        """The same for the live and the final record."""
        if not hasattr(self, "_uuid"):
            self._uuid = os.urandom(16).hex()
        return self._uuid

    def _write(self, trace: Trace, result: TrainResult, state: dict[str, torch.Tensor]) -> None:
        accuracies = [EpisodeAccuracy(index, float(each)) for index, each in enumerate(self.val_accuracies)]
        with replacing_folder(self.job.out) as folder:
            write_result(folder / "result.json", result)
            write_metrics(folder / "metrics.json", metrics_of(result))
            write_rows(folder / "history.csv", HistoryRow, self._history(trace))
            write_rows(folder / "val_episodes.csv", EpisodeAccuracy, accuracies)
            save_weights(folder / "model.pt", self.params.model, state)
            write_runs(folder / "records.jsonl", [self._record(trace, result)])


def metrics_of(result: TrainResult) -> dict[str, float | int]:
    """The flat numbers of a training, under the names all reports use."""
    numbers = {
        "seconds": result.seconds,
        "seconds_per_step": result.seconds_per_step,
        "episodes_per_second": result.episodes / result.seconds if result.seconds else None,
        "data_share": result.data_share,
        "val_accuracy": result.val_accuracy,
        "val_accuracy_ci95": result.val_accuracy_ci95,
        "peak_memory_bytes": result.peak_memory_bytes,
        "replicas": result.replicas,
        "steps": result.steps,
    }
    return {key: value for key, value in numbers.items() if value is not None}


def _skip(job: Job, reason: str) -> TrainResult:
    """Record that a strategy was not run, and why."""
    result = TrainResult(job.strategy, "skipped", reason)
    run = Run(
        name=f"train {job.strategy}",
        stage=f"train-{job.strategy}",
        status="skipped",
        start_ms=now_ms(),
        end_ms=now_ms(),
        params=flatten(job.params),
        tags={**job.tags, "strategy": job.strategy, "reason": reason},
        artifacts=("result.json",),
    )
    with replacing_folder(job.out) as folder:
        write_result(folder / "result.json", result)
        write_metrics(folder / "metrics.json", {"skipped": 1})
        write_runs(folder / "records.jsonl", [run])
    log.info("train %s: skipped, %s", job.strategy, reason)
    return result


class _all_cores:  # noqa: N801
    """Lend a lone CPU process all cores, outside the clock; ranks and GPUs keep what they have."""

    def __init__(self, context: Context) -> None:
        self.placement = context.placement
        self.lend = context.ranks == 1 and context.device.type == "cpu"

    def __enter__(self) -> None:
        if self.lend:
            torch.set_num_threads(self.placement.cores)

    def __exit__(self, *error: object) -> None:
        if self.lend:
            torch.set_num_threads(self.placement.threads_per_replica)


def _memory_by_device(context: Context, replicas: int) -> tuple[int, ...]:
    """CUDA: bytes allocated at most on each device that took part; elsewhere empty."""
    if context.device.type != "cuda":
        return ()
    if context.ranks == 1:
        return tuple(torch.cuda.max_memory_allocated(index) for index in range(replicas))
    gathered: list[int] = [0] * context.ranks
    dist.all_gather_object(gathered, torch.cuda.max_memory_allocated(context.device), group=context.group)
    return tuple(gathered)


def _sum_over_ranks(context: Context, value: int) -> int:
    if context.ranks == 1:
        return value
    total = torch.tensor([value], dtype=torch.int64)
    dist.all_reduce(total, group=context.group)
    return int(total)
