"""What a training is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from parashot.params import Params
from parashot.records import Run


@dataclass(frozen=True)
class Job:
    """A training to run; pickled to every rank. `live` is called with the run so far, outside the clock."""

    strategy: str
    params: Params
    packed: Path
    out: Path
    tags: Mapping[str, str] = field(default_factory=dict)
    live: Callable[[Run], None] | None = None
    scratch: Path | None = None
    """Where unfinished trainings are saved; None: nowhere."""
    pretrained: Path | None = None
    """Model file whose embedding the training begins with; None: all first weights are the seed's."""
