"""The state of an unfinished training on disk, so that a killed one goes on where it was.

A folder per training holds the last two states, each a file that is there whole or not at all: the whole
network and the whole state of its optimizer, under plain names, whatever the strategy, so that any rank can
take up what any other has saved. No random state is kept: episodes are functions of the step.
"""

from __future__ import annotations

import fcntl
import logging
import shutil
import socket
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import torch
from torch import distributed as dist

from parashot.errors import DeviceError
from parashot.files import replacing_file
from parashot.parallel.context import Context
from parashot.parallel.exchange import from_all_ranks
from parashot.parallel.strategy import Strategy
from parashot.records import now_ms
from parashot.train.loop import Trace

log = logging.getLogger(__name__)

_KEPT = 2
"""Files of a training: the last, and the one before it, should the last turn out damaged."""

Moments = dict[str, dict[str, torch.Tensor]]
"""By kind (exp_avg, ...), then by parameter."""


@dataclass
class TrainingProgress:
    """How far a training has come, and what it has seen: loss, accuracy and time of each step so far.

    uuid, start_ms: of its run in MLflow, which is one however often it is taken up again.
    """

    step: int = 0
    trace: Trace = field(default_factory=Trace)
    validations: dict[int, tuple[float, float]] = field(default_factory=dict)
    resumed: int = 0
    """How often it was taken up again."""
    drifted: bool = False
    """Whether replicas were seen to hold different parameters; a state holds the first one's."""
    uuid: str = field(default_factory=lambda: uuid4().hex)
    start_ms: int = field(default_factory=now_ms)


class Checkpoints:
    """The saved states of one training in `folder`; without a folder, nothing is saved or found."""

    def __init__(self, folder: Path | None, context: Context) -> None:
        """Raises `DeviceError` where another process trains this, now, on this host."""
        if folder is not None and context.local_world_size < context.world_size:
            folder = folder.with_name(f"{folder.name}-{socket.gethostname()}")  # hosts may share the disk
        self.folder, self.context = folder, context
        self._writes = context.local_rank == 0
        self._lock: IO[bytes] | None = None
        if folder is not None and self._writes:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(folder)

    def save(self, strategy: Strategy, progress: TrainingProgress) -> None:
        """Save the state after `progress.step` steps. Every rank calls it; one on each host writes."""
        if self.folder is None:
            return
        moments, counts = optimizer_state(strategy)
        network = strategy.state_dict()
        content = {"network": network, "moments": moments, "counts": counts, "progress": progress}
        if self._writes:
            path = self.folder / f"step-{progress.step:012d}.pt"
            with replacing_file(path) as temporary, temporary.open("wb") as file:
                torch.save(content, file)  # given a path, torch would not say what the disk said
            for old in sorted(self.folder.glob("step-*.pt"))[:-_KEPT]:
                old.unlink()

    def resume(self, strategy: Strategy) -> TrainingProgress | None:
        """Let `strategy` load the last state that any host has saved, or return None. Every rank calls it."""
        content = self._last()
        if content is None:
            return None
        strategy.load_state_dict(content["network"])
        load_optimizer_state(strategy, content["moments"], content["counts"])
        progress: TrainingProgress = content["progress"]
        progress.resumed += 1
        return progress

    def clear(self) -> None:
        """Forget the training: its results are written."""
        self.close()
        if self.folder is not None and self._writes:
            shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Let another process train this."""
        if self._lock is not None:
            self._lock.close()

    def _last(self) -> dict[str, Any] | None:
        """The newest whole state, read by the first rank that has it and handed to all."""
        mine = self._readable()
        newest = from_all_ranks(mine["progress"].step if mine else -1, self.context)
        holder = newest.index(max(newest))
        if newest[holder] < 0:
            return None
        if self.context.world_size > 1:
            box = [mine if holder == self.context.rank else None]
            dist.broadcast_object_list(box, group=self.context.group, group_src=holder)
            mine = box[0]
        return mine

    def _readable(self) -> dict[str, Any] | None:
        if self.folder is None or not self._writes:
            return None
        for file in sorted(self.folder.glob("step-*.pt"), reverse=True):
            content = _read(file)
            if content is not None:
                return content
            log.warning("%s: damaged; an earlier state is taken up", file)
        return None


def optimizer_state(strategy: Strategy) -> tuple[Moments, dict[str, float]]:
    """Whole moments on the CPU by kind and parameter, and what is counted for all parameters alike."""
    names: dict[torch.Tensor, str] = {each: name for name, each in strategy.network.named_parameters()}
    own: Moments = {}
    counts: dict[str, float] = {}
    for parameter, state in strategy.optimizer.state.items():
        for kind, value in state.items():
            if value.dim() == 0:
                counts[kind] = float(value)
            else:
                own.setdefault(kind, {})[names[parameter]] = value
    whole = {kind: strategy.gathered(tensors) for kind, tensors in sorted(own.items())}
    return {
        kind: {name: value.detach().cpu() for name, value in tensors.items()}
        for kind, tensors in whole.items()
    }, counts


def load_optimizer_state(strategy: Strategy, moments: Moments, counts: Mapping[str, float]) -> None:
    """Give each parameter its part of the moments, where it lies."""
    own = {kind: strategy.own_parts(tensors) for kind, tensors in moments.items()}
    fused = any(group.get("fused") for group in strategy.optimizer.param_groups)
    strategy.optimizer.state.clear()
    for name, parameter in strategy.network.named_parameters():
        state = {
            kind: torch.empty_like(parameter).copy_(tensors[name])
            for kind, tensors in own.items()
            if name in tensors
        }
        if not state:
            continue
        device = parameter.device if fused else torch.device("cpu")
        steps = {kind: torch.tensor(count, device=device) for kind, count in counts.items()}
        strategy.optimizer.state[parameter] = {**steps, **state}


def _locked(folder: Path) -> IO[bytes]:
    lock = (folder / "lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise DeviceError(f"{folder}: another process trains this already; wait for it, or end it") from error
    return lock


def _read(file: Path) -> dict[str, Any] | None:
    """The content of a file, or None where it is damaged. Nothing in it is executed.

    Its format is that of this code: other code has folders of other names (`code_digest`).
    """
    with suppress(Exception), zipfile.ZipFile(file) as archive:  # malformed bytes raise almost anything
        if archive.testzip() is not None:  # a checksum differs; torch.load compares none
            return None
        with torch.serialization.safe_globals([TrainingProgress, Trace]):
            content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        return content
    return None
