"""One whole training: strategy, loop, validation and saved states together."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch

from parashot.errors import DeviceError
from parashot.hardware import MemoryPeak, tree_memory_bytes
from parashot.parallel.abilities import check_options
from parashot.parallel.context import Context, Rendezvous, resolve_placement
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.launch import launch
from parashot.parallel.registry import STRATEGIES, build_strategy, unsupported_reason
from parashot.parallel.server import joined_by_torchrun
from parashot.progress import span
from parashot.records import Run, now_ms
from parashot.task import mean_and_ci95
from parashot.train.checkpoint import Checkpoints, TrainingProgress
from parashot.train.job import Job
from parashot.train.loop import Trace, synchronise, train_steps
from parashot.train.outcome import training_run, write_training
from parashot.train.records import TrainResult
from parashot.train.skipped import skip

log = logging.getLogger(__name__)

_MEMORY_STEPS, _MEMORY_INTERVAL_SECONDS = 3, 0.02


def train(job: Job) -> TrainResult | None:
    """Run `job` and write its folder; what cannot run here is recorded as skipped, with its reason.

    Returns None on every rank but the main one, where torchrun started several.
    """
    parallel, strategy = job.params.parallel, STRATEGIES[job.strategy]
    placement = resolve_placement(parallel)
    check_options(job.options, placement.device_type)
    reason = unsupported_reason(job.strategy, job.task, job.options, placement, parallel)
    if reason and joined_by_torchrun():  # asked for by name: no part of a study that can do without it
        raise DeviceError(reason)
    if reason:
        return skip(job.stage, job.strategy, reason, job.out, job.provenance)
    if joined_by_torchrun() and placement.replicas > 1 and strategy.processes(2) == 1:
        raise DeviceError(
            f"{job.strategy} is one process, but torchrun started {placement.replicas}; start it alone"
        )
    job = dataclasses.replace(job, wanted=placement.replicas)
    if job.batch_per == "global" and strategy.shares_items:
        placement = placement.for_batch(job.task.batchsz)
    placement = placement.with_rendezvous(max_restarts=Rendezvous.restarts_from_environment())
    return launch(train_rank, placement, strategy.processes(placement.replicas), job)


def train_on_all_cores(job: Job) -> TrainResult | None:
    """Run `job` in one process on all cores or one GPU."""
    placement = resolve_placement(job.params.parallel).on_all_cores()
    check_options(job.options, placement.device_type, f"{job.stage}.compile")
    return launch(train_rank, placement, 1, job)


def train_rank(context: Context, job: Job) -> TrainResult:
    """Train on one rank; the main one writes the result folder."""
    return _Training(context, job).run()


class _Training:
    """One rank's training: what its pauses share."""

    def __init__(self, context: Context, job: Job) -> None:
        self.context, self.job = context, job
        self.last_live, self.is_shown = time.monotonic(), False
        self.idle_bytes = tree_memory_bytes(os.getpid()) if context.device.type == "cpu" else 0
        self.strategy = build_strategy(job.strategy, job.task, job.options, context, job.params.parallel)
        # with batch_per: rank each has a budget and a batch of its own
        draws = context.world_size if job.batch_per == "rank" and self.strategy.shares_items else 1
        self.plan = self.strategy.plan(job.task.items * draws, job.task.batchsz * draws, context)
        self.val_accuracies: npt.NDArray[np.float64] = np.zeros(0)
        self.checkpoints = Checkpoints(job.checkpoint_folder(context.world_size), context)
        self.progress = TrainingProgress()

    def run(self) -> TrainResult:
        """Train, check, and on the main rank write."""
        try:
            memory = self._memory_of_steps()
            self._train()
            result = self._result(memory)
            state = self.strategy.state_dict()
            if self.context.is_main:
                run = self._run(result)
                write_training(self.job, self.progress, self.plan, result, self.val_accuracies, state, run)
                if self.job.live and self.is_shown:  # its stage may be the last one that is wanted
                    self.job.live(dataclasses.replace(run, status="unpublished"))
            self.context.wait_for_all()
            self.checkpoints.clear()
            return result
        except BaseException:
            if self.job.live and self.is_shown:  # whoever watches sees that it has ended
                self.job.live(dataclasses.replace(self._run(), status="failed", end_ms=now_ms()))
            raise
        finally:
            self.strategy.close()
            self.checkpoints.close()

    def _train(self) -> None:
        """Train to the end, from the beginning or from where a killed training was."""
        self.progress = self.checkpoints.resume(self.strategy) or self.progress
        first = self.progress.step
        if first and self.context.is_main:
            log.info("%s: goes on after step %d of %d", self.job.name, first, self.plan.steps)
        train_steps(
            self.strategy,
            self.job.task.batches(self.plan, self.context, first),
            self.plan,
            name=self.job.name,
            pauses=lambda done: self._validates(done) or self._saves(done),
            on_pause=self._pause,
            trace=self.progress.trace,
        )

    def _validates(self, done: int) -> bool:
        return done % self.job.validate_every == 0 or done == self.plan.steps

    def _saves(self, done: int) -> bool:
        return done % self.job.params.train.checkpoint_every == 0 and done < self.plan.steps

    def _memory_of_steps(self) -> tuple[int, ...]:
        """Peak bytes of a few steps: of each CUDA device, or above idle of all ranks together.

        Taken before the clock starts, for sampling would disturb what is timed; the steps are undone.
        """
        before = self.strategy.state_dict()
        mine = [self.context.local_rank] if self.context.world_size > 1 else range(self.strategy.replicas)
        devices = [torch.device("cuda", each) for each in mine] if self.context.device.type == "cuda" else []
        for device in devices:
            torch.cuda.reset_peak_memory_stats(device)
        with MemoryPeak(_MEMORY_INTERVAL_SECONDS) as host:
            # without workers, which hold no part of the training; a resident split takes its room
            batches = self.job.task.batches(self.plan, self.context, in_process=True)
            for batch in islice(batches, _MEMORY_STEPS):
                self.strategy.step(batch)
            synchronise(self.context)
        del batches
        self.strategy.load_state_dict(before)
        self.strategy.optimizer.state.clear()
        if not devices:
            return (sum(from_all_ranks(host.peak_bytes - self.idle_bytes, self.context)),)
        own = [torch.cuda.max_memory_allocated(each) for each in devices]
        return tuple(peak for each in from_all_ranks(own, self.context) for peak in each)

    def _pause(self, done: int, trace: Trace) -> bool:
        """Validate and report, save, or both; the last time, check once more that replicas agree."""
        if self._validates(done):
            self._validate(done)
        if self._saves(done) or done == self.plan.steps:
            self._compare_replicas(done)
        if self._saves(done):
            self.progress.step = done
            self.checkpoints.save(self.strategy, self.progress)
        return True

    def _compare_replicas(self, done: int) -> None:
        if self.progress.drifted or self.strategy.replicas_agree():
            return
        self.progress.drifted = True
        if self.context.is_main:
            log.warning(
                "%s: after step %d the replicas hold different parameters; "
                "the result is the main one's, and no longer one training",
                self.job.name,
                done,
            )

    def _validate(self, done: int) -> None:
        self.strategy.synchronise_buffers()
        network = self.strategy.whole_network()
        with _all_cores(self.context):
            last = done == self.plan.steps
            self.val_accuracies = self.job.task.validate(network, self.context, last=last)
        self.progress.validations[done] = mean_and_ci95(self.val_accuracies)
        if self.context.is_main:
            self._report(done)

    def _report(self, done: int) -> None:
        trace, (accuracy, ci95) = self.progress.trace, self.progress.validations[done]
        log.info(
            "%s: step %d of %d, loss %.4f, train %.1f%%, val %.1f ± %.1f%%, %s left",
            self.job.name,
            done,
            self.plan.steps,
            trace.losses[-1],
            100 * self._train_accuracy(),
            100 * accuracy,
            100 * ci95,
            span(trace.seconds / done * (self.plan.steps - done)),
            extra={"passing": done < self.plan.steps},
        )
        now = time.monotonic()
        if self.job.live and now - self.last_live >= self.job.params.tracking.live_seconds:
            self.last_live, self.is_shown = now, True
            self.job.live(self._run())

    def _train_accuracy(self) -> float:
        """Mean of the last steps, as many as lie between two validations."""
        return float(np.mean(self.progress.trace.accuracies[-self.job.validate_every :]))

    def _run(self, result: TrainResult | None = None) -> Run:
        return training_run(self.job, self.progress, self.plan, result, self._how())

    def _result(self, memory: tuple[int, ...]) -> TrainResult:
        placement, trace = self.context.placement, self.progress.trace
        accuracy, ci95 = mean_and_ci95(self.val_accuracies)
        return TrainResult(
            strategy=self.job.strategy,
            status="ok",
            reason="",
            device=placement.device_type,
            how=self._how(),
            replicas=self.strategy.replicas,
            threads_per_replica=placement.threads_per_replica,
            batchsz=self.plan.batchsz,
            batch_per=self.job.batch_per,
            steps=len(trace.step_seconds),
            items=self.plan.items,
            seconds=None if self.progress.resumed else trace.seconds,
            seconds_per_step=float(np.median(trace.step_seconds)),
            data_share=sum(trace.data_seconds) / trace.seconds,
            val_accuracy=accuracy,
            val_accuracy_ci95=ci95,
            val_episodes=len(self.val_accuracies),
            peak_memory_bytes=max(memory),
            memory_by_device=memory if self.context.device.type == "cuda" else (),
            ranks_identical=not self.progress.drifted,
            parameters=sum(each.numel() for each in self.strategy.whole_network().parameters()),
            resumed=self.progress.resumed,
            nonfinite_steps=len(trace.nonfinite),
            train_accuracy=self._train_accuracy(),
        )

    def _how(self) -> str:
        """What really runs, and whether a small batch leaves replicas idle."""
        wanted = self.job.wanted
        if self.job.strategy == "serial" or self.strategy.replicas >= wanted:
            return self.strategy.how
        fed = f"batchsz {self.plan.batchsz} feeds only {self.strategy.replicas} of {wanted}"
        return f"{self.strategy.how}; {fed}"


@contextmanager
def _all_cores(context: Context) -> Iterator[None]:
    """Lend a lone CPU process all cores, outside the clock; ranks and GPUs keep what they have."""
    placement = context.placement
    lone = context.world_size == 1 and context.device.type == "cpu"
    torch.set_num_threads(placement.cores if lone else placement.threads_per_replica)
    try:
        yield
    finally:
        torch.set_num_threads(placement.threads_per_replica)
