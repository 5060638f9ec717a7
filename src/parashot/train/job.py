"""Description of one training, pickled to every rank."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from parashot.data.manifest import read_manifest, sha256
from parashot.parallel.registry import pretraining_options, step_options
from parashot.parallel.strategy import StepOptions
from parashot.params import Params
from parashot.records import Provenance, Run
from parashot.task import Task
from parashot.tasks.pretraining import PretrainingTask
from parashot.tasks.relation import RelationTask

NO_PROVENANCE = Provenance()

_TRAIN_NOTHING = {"classify", "cli", "doctor", "questions", "report", "sweep", "tracking"}
"""Packages of parashot that no training depends on."""


@dataclass(frozen=True)
class Job:
    """A training to run and what becomes of it.

    stage: name of the DVC stage. out: folder of results. validate_every: steps. model: model file, by default
    `out`/model.safetensors. batch_per: `rank` lets every rank draw its own batchsz and its own items. live:
    called with the run so far, outside the clock. scratch: folder where unfinished trainings are saved; None:
    nowhere. identity: what the training depends on; with another one it never goes on from a saved state.
    wanted: replicas, of which a small batch may leave some idle.
    """

    stage: str
    task: Task
    strategy: str
    options: StepOptions
    params: Params
    out: Path
    validate_every: int
    batch_per: str = "global"
    model: Path | None = None
    provenance: Provenance = NO_PROVENANCE
    live: Callable[[Run], None] | None = None
    scratch: Path | None = None
    identity: tuple[object, ...] = ()
    wanted: int = 0

    @property
    def name(self) -> str:
        """The training in messages and in MLflow: `train ddp`, `pretrain`."""
        return self.stage.replace("-", " ", 1)

    def checkpoint_folder(self, world_size: int) -> Path | None:
        """Folder of this training's saved states: its own among all others."""
        if self.scratch is None:
            return None
        parts = (self.stage, self.identity, world_size)
        return self.scratch / hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def episode_job(
    strategy: str,
    params: Params,
    packed: Path,
    out: Path,
    provenance: Provenance = NO_PROVENANCE,
    live: Callable[[Run], None] | None = None,
    scratch: Path | None = None,
    pretrained: Path | None = None,
) -> Job:
    """Describe a training of the Relation Network by `strategy`."""
    # a model file that is missing fails where it is loaded
    digest = sha256(pretrained) if pretrained is not None and pretrained.is_file() else ""
    return Job(
        stage=f"train-{strategy}",
        task=RelationTask(params, packed, pretrained),
        strategy=strategy,
        options=step_options(params.train),
        params=params,
        out=out,
        validate_every=params.train.validate_every,
        batch_per=params.train.batch_per,
        provenance=provenance,
        live=live,
        scratch=scratch,
        identity=(*_identity(provenance, packed), digest),
    )


def pretraining_job(
    params: Params,
    packed: Path,
    weights: Path,
    out: Path,
    provenance: Provenance = NO_PROVENANCE,
    live: Callable[[Run], None] | None = None,
    scratch: Path | None = None,
) -> Job:
    """Describe the pretraining of the embedding, whose model file becomes `weights`."""
    task = PretrainingTask(params, packed)
    return Job(
        stage="pretrain",
        task=task,
        strategy="serial",
        options=pretraining_options(params),
        params=params,
        out=out,
        validate_every=params.pretrain.validate_every * task.epoch_steps,
        model=weights,
        provenance=provenance,
        live=live,
        scratch=scratch,
        identity=_identity(provenance, packed),
    )


def _identity(provenance: Provenance, packed: Path) -> tuple[object, ...]:
    """Params, data and code of the training; one that NaN stopped goes on when told to skip such steps."""
    settings = {key: value for key, value in provenance.params.items() if key != "train.on_nonfinite"}
    return settings, read_manifest(packed), code_digest()


@cache
def code_digest() -> str:
    """Name the code that trains: other code has another name."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        name = file.relative_to(package)
        if name.parts[0] not in _TRAIN_NOTHING:
            digest.update(f"{name.as_posix()}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:12]
