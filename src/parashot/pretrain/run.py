"""Pretraining: the embedding as a classifier of all training classes, before any episode.

Chen et al., Meta-Baseline (ICCV 2021), section 3. Writes the model file that trainings begin with, and
beside it a folder: result.json  history.csv  metrics.json  records.jsonl      (formats: records.py)
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from parashot.data.augment import Augmentation
from parashot.data.episodes import EpisodeSpec
from parashot.data.labelled import LabelledImages
from parashot.data.manifest import read_manifest
from parashot.data.packed import PackedSplit
from parashot.model.classifier import ImageClassifier
from parashot.model.losses import accuracy
from parashot.model.network import build_network
from parashot.model.weights import save_weights
from parashot.parallel.abilities import check_abilities
from parashot.parallel.context import Context, place
from parashot.parallel.launch import launch
from parashot.parallel.strategy import channels_last
from parashot.params import Params, select
from parashot.pretrain.classification import Classification, Varied
from parashot.pretrain.result import KNOBS, pretraining_run, write_pretraining
from parashot.progress import span
from parashot.records import Run, now_ms
from parashot.train.checkpoint import Checkpoints, Progress, key
from parashot.train.evaluate import EpisodeSet, mean_and_ci95, related
from parashot.train.loop import Trace, naming, train_steps
from parashot.train.records import PretrainResult, PretrainRow

log = logging.getLogger(__name__)

_RISING_SHARE = 0.2
"""Of the steps, over which the learning rate rises to its peak."""


@dataclass(frozen=True)
class PretrainJob:
    """What to pretrain, and where it goes; `live` is called with the run so far, outside the clock."""

    params: Params
    packed: Path
    weights: Path
    out: Path
    tags: Mapping[str, str] = field(default_factory=dict)
    live: Callable[[Run], None] | None = None
    scratch: Path | None = None
    """Where an unfinished one is saved; None: nowhere."""


def pretrain(job: PretrainJob) -> PretrainResult:
    """Pretrain the embedding on all cores or one GPU, and write its files.

    Goes on where a killed one was saved. Raises `DataError` where a batch is larger than the split.
    """
    placement = place(job.params.parallel)
    check_abilities(job.params, placement.device_type)
    whole = replace(placement, replicas=1, threads_per_replica=placement.cores)
    result = launch(_pretrain, whole, 1, job)
    assert result is not None  # this is the only process
    return result


def one_cycle(full: float, steps: int) -> Callable[[int], float]:
    """Learning rate of each step: a rise to `full`, then half a cosine down to 0.

    Smith and Topin, Super-Convergence (2017), with the cosine of Loshchilov and Hutter (ICLR 2017).
    """
    peak = max(1, round(_RISING_SHARE * steps))

    def rate(step: int) -> float:
        if step < peak:
            return full * (step + 1) / peak
        return full * 0.5 * (1 + math.cos(math.pi * (step - peak) / max(1, steps - peak)))

    return rate


def _pretrain(context: Context, job: PretrainJob) -> PretrainResult:
    return _Pretraining(context, job).run()


class _Pretraining:
    """What the pauses of one pretraining share."""

    def __init__(self, context: Context, job: PretrainJob) -> None:
        params, knobs = job.params, job.params.pretrain
        self.context, self.job, self.params = context, job, params
        self.uuid, self.start_ms, self.last_live = uuid.uuid4().hex, now_ms(), time.monotonic()
        split = PackedSplit(job.packed, "train")
        self.images = LabelledImages(split, params.seed, knobs.batchsz, context.device)
        self.plan = self.images.plan(knobs.epochs)
        self.epoch_steps = self.plan.steps // knobs.epochs
        self.network = channels_last(build_network(params.model, params.seed))
        augmentation = Augmentation(params.augment.crop, params.augment.flip, params.augment.jitter)
        self.classification = Classification(
            ImageClassifier(self.network, self.images.classes, knobs.classifier, params.seed),
            Varied(params.seed, "train", augmentation),
            self._size,
            context,
            weight_decay=knobs.weight_decay,
            label_smoothing=knobs.label_smoothing,
            bfloat16=params.train.precision == "bf16",
        )
        self.checkpoints = Checkpoints(_folder_of(job), context)
        self.progress = Progress()
        self.is_shown = False

    def run(self) -> PretrainResult:
        """Train and write."""
        try:
            trace = self._train()
        except BaseException:
            self._show_failed()
            raise
        finally:
            self.checkpoints.close()
        result = self._result(trace)
        rows = self._rows(trace)
        write_pretraining(self.job.out, result, rows, self._run(rows, result))
        save_weights(self.job.weights, self.params.model, self.network.state_dict())
        self.checkpoints.clear()
        return result

    def _train(self) -> Trace:
        self.progress = self.checkpoints.resume(self.classification)
        first = self.progress.step
        if first:
            log.info("pretrain: goes on after step %d of %d", first, self.plan.steps)
        with naming("pretrain"):
            return train_steps(
                self.classification,
                self.images.batches(self.plan, first),
                self.plan,
                learning_rate=one_cycle(self.params.pretrain.learning_rate, self.plan.steps),
                pauses=lambda done: self._validates(done) or self._saves(done),
                on_pause=self._pause,
                trace=self.progress.trace,
            )

    def _size(self, step: int) -> int:
        """Pixels that the network sees in a step."""
        small = step < self.params.pretrain.small_share * self.plan.steps
        return self.params.pretrain.small_size if small else self.params.model.image_size

    def _validates(self, done: int) -> bool:
        return done % (self.params.pretrain.validate_every * self.epoch_steps) == 0 or done == self.plan.steps

    def _saves(self, done: int) -> bool:
        return done % self.params.train.checkpoint_every == 0 and done < self.plan.steps

    def _pause(self, done: int, trace: Trace) -> bool:
        if self._validates(done):
            self._validate(done, trace)
        if self._saves(done):
            self.progress.step = done
            self.checkpoints.save(self.classification, self.progress)
        return True

    def _validate(self, done: int, trace: Trace) -> None:
        """Try the embedding on validation episodes, by its cosine, and report."""
        episodes = self._episodes(last=done == self.plan.steps)
        cosines = related(self.network, self.network.cosine, episodes)
        found = mean_and_ci95(accuracy(cosines).double().numpy())
        self.progress.validations[done] = found
        log.info(
            "pretrain: epoch %d of %d, loss %.3f, train %.1f%%, cosine on val %.1f ± %.1f%%, %s left",
            done // self.epoch_steps,
            self.params.pretrain.epochs,
            np.mean(trace.losses[-self.epoch_steps :]),
            100 * np.mean(trace.accuracies[-self.epoch_steps :]),
            100 * found[0],
            100 * found[1],
            span(trace.times.seconds / done * (self.plan.steps - done)),
            extra={"passing": done < self.plan.steps},
        )
        now = time.monotonic()
        if self.job.live and now - self.last_live >= self.params.tracking.live_seconds:
            self.last_live, self.is_shown = now, True
            self.job.live(self._run(self._rows(trace), None))

    def _show_failed(self) -> None:
        """Who watched it sees that it has ended."""
        if self.job.live and self.is_shown:
            run = self._run(self._rows(self.progress.trace), None)
            self.job.live(replace(run, status="failed", end_ms=now_ms()))

    def _episodes(self, last: bool) -> EpisodeSet:
        episode, split = self.params.episode, PackedSplit(self.job.packed, "val")
        spec = EpisodeSpec(episode.n_way, episode.k_shot, self.params.evaluate.k_query)
        count = (self.params.evaluate if last else self.params.train).val_episodes
        return EpisodeSet(split, spec, split.episodes[:count])

    def _rows(self, trace: Trace) -> list[PretrainRow]:
        seconds = np.cumsum(trace.times.step_seconds).tolist()
        unmeasured = (None, None)
        return [
            PretrainRow(
                done,
                done * self.plan.batchsz,
                seconds[done - 1],
                loss,
                trace.accuracies[done - 1],
                *self.progress.validations.get(done, unmeasured),
            )
            for done, loss in enumerate(trace.losses, start=1)
        ]

    def _run(self, rows: list[PretrainRow], result: PretrainResult | None) -> Run:
        return pretraining_run(self.uuid, self.params, self.job.tags, self.start_ms, rows, result)

    def _result(self, trace: Trace) -> PretrainResult:
        val_accuracy, val_accuracy_ci95 = self.progress.validations[self.plan.steps]
        return PretrainResult(
            status="ok",
            reason="",
            device=self.context.placement.device_type,
            threads=self.context.placement.threads_per_replica,
            classes=self.images.classes,
            epochs=self.params.pretrain.epochs,
            steps=self.plan.steps,
            images=self.plan.episodes,
            seconds=None if self.progress.resumed else trace.times.seconds,
            images_per_second=self.plan.episodes / sum(trace.times.step_seconds),
            train_accuracy=float(np.mean(trace.accuracies[-self.epoch_steps :])),
            val_accuracy=val_accuracy,
            val_accuracy_ci95=val_accuracy_ci95,
            val_episodes=self.params.evaluate.val_episodes,
            resumed=self.progress.resumed,
        )


def _folder_of(job: PretrainJob) -> Path | None:
    """Where it is saved: its own among all trainings, by what it depends on."""
    if job.scratch is None:
        return None
    return job.scratch / key("pretrain", select(job.params, KNOBS), read_manifest(job.packed))
