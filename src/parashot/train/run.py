"""One whole training: assemble data, network, strategy and loop, and write its result folder.

result.json  history.csv  val_episodes.csv  model.pt  metrics.json  records.jsonl      (formats: records.py)
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import distributed as dist

from parashot.data.loaders import episode_loader
from parashot.data.manifest import read_manifest, sha256
from parashot.errors import DeviceError
from parashot.hardware import MemoryPeak, tree_memory_bytes
from parashot.parallel.abilities import check_abilities
from parashot.parallel.context import (
    Context,
    control_group,
    fit_to_batch,
    place,
    starting_again,
    wait_for_all,
)
from parashot.parallel.launch import launch
from parashot.parallel.peers import naming_lost_peers
from parashot.parallel.registry import STRATEGIES, obstacle, splits_batch
from parashot.parallel.torchrun import joined_by_torchrun
from parashot.progress import span
from parashot.records import Run, now_ms
from parashot.train.assemble import new_strategy, training_batches, training_episodes, validate
from parashot.train.checkpoint import Checkpoints, Progress, key
from parashot.train.evaluate import mean_and_ci95
from parashot.train.job import Job
from parashot.train.knobs import params_of
from parashot.train.loop import Trace, naming, synchronise, train_steps
from parashot.train.objective import learning_rates
from parashot.train.outcome import history_rows, training_run, write_training
from parashot.train.records import HistoryRow, TrainResult
from parashot.train.skipped import skip

log = logging.getLogger(__name__)

_MEMORY_STEPS, _MEMORY_INTERVAL_SECONDS = 3, 0.02


def train(job: Job) -> TrainResult | None:
    """Run `job` and write its folder; what cannot run here is recorded as skipped, with its reason.

    Returns None on every rank but the first, where torchrun started several.
    """
    params = job.params
    placement = place(params.parallel)
    check_abilities(params, placement.device_type)
    if reason := params.parallel.switched_off(job.strategy):
        return skip(job, reason)
    if reason := obstacle(job.strategy, params, placement, torch.cuda.device_count()):
        if joined_by_torchrun():  # asked for by name: no part of a study that can do without it
            raise DeviceError(reason)
        return skip(job, reason)
    if joined_by_torchrun() and placement.replicas > 1 and STRATEGIES[job.strategy].processes(2) == 1:
        raise DeviceError(
            f"{job.strategy} is one process, but torchrun started {placement.replicas}; start it alone"
        )
    if params.train.batch_per == "global" and splits_batch(job.strategy):
        placement = fit_to_batch(placement, params.train.batchsz)
    placement = starting_again(placement, int(os.environ.get("PARASHOT_MAX_RESTARTS", "3")))
    return launch(train_rank, placement, STRATEGIES[job.strategy].processes(placement.replicas), job)


def train_rank(context: Context, job: Job) -> TrainResult:
    """The training of one rank; the first one writes the result folder."""
    control = control_group(context)
    with naming_lost_peers(context, control):
        return _Training(context, job, control).run()


class _Training:
    """One rank's training: what its pauses share."""

    def __init__(self, context: Context, job: Job, control: dist.ProcessGroup | None) -> None:
        params = job.params
        self.control = control
        self.context, self.job, self.params = context, job, params
        self.uuid, self.start_ms, self.last_live = uuid.uuid4().hex, now_ms(), time.monotonic()
        self.is_shown = False
        self.idle_bytes = tree_memory_bytes(os.getpid()) if context.device.type == "cpu" else 0
        self.strategy = new_strategy(job.strategy, params, context, pretrained=job.pretrained)
        drawn = 1
        if params.train.batch_per == "rank" and splits_batch(job.strategy):
            drawn = context.ranks
        episodes, batchsz = params.train.episodes * drawn, params.train.batchsz * drawn
        self.plan = self.strategy.plan(episodes, batchsz, context.rank, context.ranks)
        self.episodes = training_episodes(params, job.packed, self.plan)
        self.val_accuracies: npt.NDArray[np.float64] = np.zeros(0)
        self.checkpoints = Checkpoints(_folder_of(job, context), context)
        self.progress = Progress()

    def run(self) -> TrainResult:
        """Train, check, and on the first rank write."""
        try:
            memory = self._memory_of_steps()
            trace = self._train()
            result = self._result(trace, memory)
            state = self.strategy.state_dict()
        except BaseException:
            self._show_failed()
            raise
        finally:
            self.strategy.close()
            self.checkpoints.close()
        if self.context.is_first:
            history, run = self._history(trace), self._run(trace, result)
            write_training(self.job.out, result, history, self.val_accuracies, self.params.model, state, run)
        wait_for_all(self.control)
        self.checkpoints.clear()
        return result

    def _train(self) -> Trace:
        """Train to the end, from the beginning or from where a killed training was."""
        self.progress = self.checkpoints.resume(self.strategy)
        first = self.progress.step
        if first and self.context.is_first:
            log.info("train %s: goes on after step %d of %d", self.job.strategy, first, self.plan.steps)
        with naming(f"train {self.job.strategy}"):
            return train_steps(
                self.strategy,
                training_batches(self.params, self.job.packed, self.plan, self.context, first),
                self.plan,
                learning_rate=learning_rates(self.params, self.plan.steps, self.plan.batchsz),
                pauses=lambda done: self._validates(done) or self._saves(done),
                on_pause=self._pause,
                trace=self.progress.trace,
            )

    def _validates(self, done: int) -> bool:
        return done % self.params.train.validate_every == 0 or done == self.plan.steps

    def _saves(self, done: int) -> bool:
        return done % self.params.train.checkpoint_every == 0 and done < self.plan.steps

    def _memory_of_steps(self) -> tuple[int, ...]:
        """Peak bytes of a few steps: of each CUDA device, or above idle of all ranks together.

        Taken before the clock starts, for sampling would disturb what is timed; the steps are forgotten.
        """
        before = self.strategy.state_dict()
        devices = _own_devices(self.context, self.strategy.replicas)
        for device in devices:
            torch.cuda.reset_peak_memory_stats(device)
        with MemoryPeak(_MEMORY_INTERVAL_SECONDS) as host:
            # without workers, which hold no part of the training; a resident split takes its room
            batches = episode_loader(self.episodes, 0, 1, self.context.device)
            for batch in islice(batches, _MEMORY_STEPS):
                self.strategy.step(batch)
            synchronise(self.context)
        del batches
        self.strategy.load_state_dict(before)
        self.strategy.optimizer.state.clear()
        mine = [torch.cuda.max_memory_allocated(device) for device in devices] or [
            host.peak_bytes - self.idle_bytes
        ]
        everyone = [mine]
        if self.context.ranks > 1:
            everyone = [[]] * self.context.ranks
            dist.all_gather_object(everyone, mine, group=self.context.group)
        peaks = [peak for each in everyone for peak in each]
        return tuple(peaks) if devices else (sum(peaks),)

    def _pause(self, done: int, trace: Trace) -> bool:
        """Validate and report, save, or both; the last time, look once more whether replicas agree."""
        if self._validates(done):
            self._validate(done, trace)
        if self._saves(done) or done == self.plan.steps:
            self._compare_replicas(done)
        if self._saves(done):
            self.progress.step = done
            self.checkpoints.save(self.strategy, self.progress)
        return True

    def _compare_replicas(self, done: int) -> None:
        """Note where replicas have drifted apart. Every rank calls it."""
        if self.progress.drifted or self.strategy.agree():
            return
        self.progress.drifted = True
        if self.context.is_first:
            log.warning(
                "train %s: after step %d the replicas hold different parameters; "
                "what comes of it is the first one's, and no longer one training",
                self.job.strategy,
                done,
            )

    def _validate(self, done: int, trace: Trace) -> None:
        last = done == self.plan.steps
        episodes = self.params.evaluate.val_episodes if last else self.params.train.val_episodes
        self.strategy.synchronise_buffers()
        network = self.strategy.whole_network()
        with _all_cores(self.context):
            self.val_accuracies = validate(network, self.params, self.job.packed, episodes, self.context)
        self.progress.validations[done] = mean_and_ci95(self.val_accuracies)
        if self.context.is_first:
            self._report(done, trace)

    def _report(self, done: int, trace: Trace) -> None:
        accuracy, ci95 = self.progress.validations[done]
        log.info(
            "train %s: step %d of %d, loss %.4f, val %.1f ± %.1f%%, %s left",
            self.job.strategy,
            done,
            self.plan.steps,
            trace.losses[-1],
            100 * accuracy,
            100 * ci95,
            span(trace.times.seconds / done * (self.plan.steps - done)),
            extra={"passing": done < self.plan.steps},
        )
        now = time.monotonic()
        if self.job.live and now - self.last_live >= self.params.tracking.live_seconds:
            self.last_live, self.is_shown = now, True
            self.job.live(self._run(trace, None))

    def _show_failed(self) -> None:
        """Who watched the training sees that it has ended."""
        if self.job.live and self.is_shown:
            run = self._run(self.progress.trace, None)
            self.job.live(replace(run, status="failed", end_ms=now_ms()))

    def _history(self, trace: Trace) -> list[HistoryRow]:
        return history_rows(trace, self.plan, self.progress.validations)

    def _run(self, trace: Trace, result: TrainResult | None) -> Run:
        return training_run(
            uuid=self.uuid,
            strategy=self.job.strategy,
            params=self.params,
            tags={**self.job.tags, "how": self._how()},
            start_ms=self.start_ms,
            history=self._history(trace),
            result=result,
        )

    def _result(self, trace: Trace, memory: tuple[int, ...]) -> TrainResult:
        context, times = self.context, trace.times
        accuracy, ci95 = mean_and_ci95(self.val_accuracies)
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
            seconds=None if self.progress.resumed else times.seconds,
            seconds_per_step=float(np.median(times.step_seconds)),
            data_share=sum(times.data_seconds) / times.seconds,
            val_accuracy=accuracy,
            val_accuracy_ci95=ci95,
            val_episodes=len(self.val_accuracies),
            peak_memory_bytes=max(memory),
            memory_by_device=memory if context.device.type == "cuda" else (),
            ranks_identical=not self.progress.drifted,
            resumed=self.progress.resumed,
            nonfinite_steps=len(trace.nonfinite),
            parameters=sum(each.numel() for each in self.strategy.whole_network().parameters()),
        )

    def _how(self) -> str:
        """What really runs, and where a small batch leaves replicas idle, that too."""
        wanted = place(self.params.parallel).replicas
        if self.job.strategy == "serial" or self.strategy.replicas >= wanted:
            return self.strategy.how
        fed = f"batchsz {self.plan.batchsz} feeds only {self.strategy.replicas} of {wanted}"
        return f"{self.strategy.how}; {fed}"


@contextmanager
def _all_cores(context: Context) -> Iterator[None]:
    """Lend a lone CPU process all cores, outside the clock; ranks and GPUs keep what they have."""
    lone = context.ranks == 1 and context.device.type == "cpu"
    torch.set_num_threads(context.placement.cores if lone else context.placement.threads_per_replica)
    try:
        yield
    finally:
        torch.set_num_threads(context.placement.threads_per_replica)


def _folder_of(job: Job, context: Context) -> Path | None:
    """Where this training is saved: its own among all others, by what it depends on."""
    if job.scratch is None:
        return None
    knobs = params_of(job.params, job.strategy)
    del knobs["train.on_nonfinite"]  # one that was stopped goes on, leaving such steps out
    begun = job.pretrained and sha256(job.pretrained)
    return job.scratch / key(job.strategy, knobs, read_manifest(job.packed), context.ranks, begun)


def _own_devices(context: Context, replicas: int) -> list[torch.device]:
    """The CUDA devices this process drives; empty on a CPU."""
    if context.device.type != "cuda":
        return []
    return [context.device] if context.ranks > 1 else [torch.device("cuda", each) for each in range(replicas)]
