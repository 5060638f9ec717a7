"""What the loop trains and checkpoints save: a strategy around episodes, or the classifier of pretraining."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

import torch
from torch import nn

from parashot.parallel.context import Context

Batch_contra = TypeVar("Batch_contra", contravariant=True)


class Trainee(Protocol[Batch_contra]):
    """A network, its optimizer and the step that trains it."""

    @property
    def context(self) -> Context:
        """The process that trains."""

    @property
    def network(self) -> nn.Module:
        """What of the network this rank holds."""

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The one of `network`."""

    @property
    def reads(self) -> str:
        """What steps are made of: episodes or images."""

    @property
    def skips_nonfinite(self) -> bool:
        """Whether a step that met NaN or infinity was left out."""

    @property
    def remedy(self) -> str:
        """What to do against NaN and infinity."""

    def step(self, batch: Batch_contra) -> torch.Tensor:
        """Do one optimizer step; returns [3]: summed loss, summed accuracy, not 0 where it was not finite."""

    def set_learning_rate(self, rate: float) -> None:
        """Use `rate` from the next step on."""

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The whole state on the CPU. Every rank calls it, and gets it."""

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take up a whole state."""

    def gathered(self, own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Whole tensors from this rank's `own`, each shaped like the one of its name in `network`."""

    def own_parts(self, whole: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What this rank holds of `whole` tensors."""
